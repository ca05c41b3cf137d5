"""DeleteRecords (21), versions 0-2: the records of a partition below an offset, -1 for all that are committed.

Honoured: `cleanup.policy` (POLICY_VIOLATION unless it names `delete`), internal topics (refused), one outcome for each
partition, the timeout. Answered when the new log start offset is on the leader's disk and every replica that is there
has the new start offset: a crash right after the response brings nothing back. The files are deleted later.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.codec.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsRequest
from strandline.codec.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from strandline.errors import ErrorCode, StrandlineError, error_code
from strandline.handlers.support.absent_partitions import led_partition
from strandline.handlers.support.context import BrokerServices, RequestContext
from strandline.partition.trimming import delete_records, when_trimmed
from strandline.quorum.controller.topic_names import OBJECT_COMMITS, is_internal
from strandline.runtime.runtime import TimerHandle
from strandline.runtime.time_slicing import gradually

API_KEY = 21
VERSIONS = (0, 2)

NO_LOW_WATERMARK = -1


def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse | None:
    deadline = context.node.runtime.monotonic() + max(0, request.timeout_ms) / 1000
    asked = ((topic.name, each) for topic in request.topics for each in topic.partitions)

    def on_deleted(results: list[DeleteRecordsPartitionResult]) -> None:
        if all(result.error_code for result in results):
            context.reply(_response(request, results))
        else:
            context.node.write_start_offsets(lambda error: on_written(results, error))

    def on_written(results: list[DeleteRecordsPartitionResult], error: BaseException | None) -> None:
        if error is not None:
            # They are out of sight, but the next start may show them again.
            for result in results:
                if not result.error_code:
                    result.error_code, result.low_watermark = error_code(error), NO_LOW_WATERMARK
        names = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
        wait = _Wait(context, deadline, results, lambda: context.reply(_response(request, results)))
        wait.begin(names)

    gradually(context.node.runtime, (_delete(context.node, name, each) for name, each in asked), on_deleted)
    return None


def _response(request: DeleteRecordsRequest, results: list[DeleteRecordsPartitionResult]) -> DeleteRecordsResponse:
    left = iter(results)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=topic.name, partitions=[next(left) for _ in topic.partitions])
            for topic in request.topics
        ]
    )


def _delete(node: BrokerServices, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=NO_LOW_WATERMARK)
    partition = led_partition(node, topic, asked.partition_index)
    if isinstance(partition, int):
        result.error_code = partition
    elif is_internal(topic) or topic == OBJECT_COMMITS:
        result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        try:
            result.low_watermark = delete_records(partition, asked.offset)
        except StrandlineError as error:
            result.error_code = error_code(error)
    return result


class _Wait:
    """Waits for the followers to trim their logs, as the leader did."""

    def __init__(
        self,
        context: RequestContext,
        deadline: float,
        results: list[DeleteRecordsPartitionResult],
        on_done: Callable[[], object],
    ) -> None:
        self._node = context.node
        self._deadline = deadline
        self._results = results
        self._on_done = on_done
        self._left: dict[int, None] = {}
        self._timer: TimerHandle | None = None
        self._is_beginning = True

    def begin(self, names: list[tuple[str, int]]) -> None:
        for at, ((topic, index), result) in enumerate(zip(names, self._results, strict=True)):
            partition = self._node.partition(topic, index) if not result.error_code else None
            if partition is not None and partition.in_sync is not None:
                self._left[at] = None
                when_trimmed(partition, result.low_watermark, _PartitionWait(self, at))
        self._is_beginning = False
        if self._left:
            left_s = self._deadline - self._node.runtime.monotonic()
            self._timer = self._node.runtime.call_later(max(0.0, left_s), self._on_timeout)
        else:
            self._on_done()

    def on_trimmed(self, at: int, code: int) -> None:
        if at not in self._left:
            return
        del self._left[at]
        if code:
            self._results[at].error_code, self._results[at].low_watermark = code, NO_LOW_WATERMARK
        if not self._left and not self._is_beginning:
            if self._timer is not None:
                self._timer.cancel()
            self._on_done()

    def _on_timeout(self) -> None:
        """Answer in time, although some replica does not have the new start offset yet."""
        self._timer = None
        for at in list(self._left):
            self.on_trimmed(at, ErrorCode.REQUEST_TIMED_OUT)


class _PartitionWait:
    def __init__(self, wait: _Wait, at: int) -> None:
        self._wait = wait
        self._at = at

    def on_commit(self, error_code: int) -> None:
        self._wait.on_trimmed(self._at, error_code)
