"""ListOffsets (2), versions 1-11: the first and last offset of a partition, or the first at or after a time.

Honoured: earliest, latest, a timestamp, max timestamp (7+), for read_committed below the last stable offset; earliest
local (8+), latest tiered (9+) and earliest pending upload (11+), which for a topic that is not tiered are the earliest
and twice "none"; leader epochs (4+). A look-up by time in the object store waits for
`remote.list.offsets.request.timeout.ms` at most; nothing else waits. Not yet: a replica id and the timeout of the
request are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from strandline.codec.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from strandline.errors import ErrorCode, RequestError, StrandlineError, error_code
from strandline.handlers.support.absent_partitions import led_partition
from strandline.handlers.support.context import RequestContext
from strandline.log.segment.time_lookup import FoundTime
from strandline.partition.look_up import FoundCallback
from strandline.partition.partition import Partition
from strandline.partition.tier import Tier
from strandline.runtime.time_slicing import gradually

API_KEY = 2
VERSIONS = (1, 11)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

READ_COMMITTED = 1

_FIRST_VERSION_OF = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


LookUp = Callable[[FoundCallback], None]


def handle(context: RequestContext, request: ListOffsetsRequest) -> None:
    times = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    look_up = _LookUp(context, read_committed=request.isolation_level == READ_COMMITTED)

    def answer_all() -> Iterator[None]:
        for topic in request.topics:
            answers = ListOffsetsTopicResponse(name=topic.name)
            look_up.response.topics.append(answers)
            for asked in topic.partitions:
                answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
                answers.partitions.append(answer)
                if times[topic.name, asked.partition_index] > 1:
                    answer.error_code = ErrorCode.INVALID_REQUEST
                else:
                    look_up.answer_partition(topic.name, asked, answer)
                yield

    # A look-up by time may open a batch; a request that asks for a thousand of them has its share of each turn.
    gradually(context.node.runtime, answer_all(), lambda _: look_up.finish())


class _LookUp:
    """One request under way: the answer as far as it is known, and how many look-ups are still out."""

    def __init__(self, context: RequestContext, *, read_committed: bool) -> None:
        self._context = context
        self._read_committed = read_committed
        self._open = 0
        self._all_asked = False
        self.response = ListOffsetsResponse()

    def finish(self) -> None:
        self._all_asked = True
        if self._open == 0:
            self._context.reply(self.response)

    def answer_partition(self, topic: str, asked: ListOffsetsPartition, answer: ListOffsetsPartitionResponse) -> None:
        # Only times from 0 on are times; below, each number has its meaning from some version on.
        if asked.timestamp < 0 and self._context.api_version < _FIRST_VERSION_OF.get(asked.timestamp, 0x7FFF):
            answer.error_code = ErrorCode.UNSUPPORTED_VERSION
            return
        partition = led_partition(self._context.node, topic, asked.partition_index)
        if isinstance(partition, int):
            answer.error_code = partition
            return
        try:
            partition.check_leader_epoch(asked.current_leader_epoch)
            self._find(partition, asked.timestamp, answer)
        except StrandlineError as error:
            answer.error_code = error_code(error)

    def _find(self, partition: Partition, timestamp: int, answer: ListOffsetsPartitionResponse) -> None:
        if timestamp == LATEST:
            self._check_available(partition)
            self._set(answer, FoundTime(self._end_offset(partition), -1, partition.leader_epoch))
        elif timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = partition.log_start_offset if timestamp == EARLIEST else partition.log.log_start_offset
            self._set(answer, FoundTime(start, -1, partition.epoch_of(start)))
        elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            if partition.tier is not None:
                offset, epoch = partition.tier.highest()
                if timestamp == EARLIEST_PENDING_UPLOAD:
                    offset = max(offset + 1, partition.log_start_offset)
                    epoch = partition.epoch_of(offset)
                self._set(answer, FoundTime(offset, -1, epoch))
        elif timestamp == MAX_TIMESTAMP:
            look_up = partial(partition.max_timestamp_offset, committed_only=self._read_committed)
            self._start(look_up, partition, answer)
        elif timestamp >= 0:
            look_up = partial(partition.offset_for_timestamp, timestamp, committed_only=self._read_committed)
            if partition.tier is not None and partition.log_start_offset < partition.log.log_start_offset:
                look_up = partial(_tier_first, partition.tier, timestamp, look_up)
            self._start(look_up, partition, answer)

    def _set(self, answer: ListOffsetsPartitionResponse, found: FoundTime) -> None:
        answer.offset = found.offset
        answer.timestamp = found.timestamp
        if self._context.api_version >= 4:
            answer.leader_epoch = found.leader_epoch

    def _end_offset(self, partition: Partition) -> int:
        """Return the end offset for a client: uncommitted records are hidden, because an election could remove them."""
        return partition.last_stable_offset if self._read_committed else partition.high_watermark

    def _check_available(self, partition: Partition) -> None:
        """A new leader does not know yet what its predecessors had committed. Until it does, the end that it could name
        might lie before one that clients already got (KIP-207)."""
        if partition.high_watermark < partition.epoch_start_offset:
            raise RequestError(
                ErrorCode.OFFSET_NOT_AVAILABLE if self._context.api_version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE,
                f"the high watermark of {partition!r} is below {partition.epoch_start_offset}, where its leader began",
            )

    def _start(self, look_up: LookUp, partition: Partition, answer: ListOffsetsPartitionResponse) -> None:
        def on_found(found: FoundTime | None, error: BaseException | None) -> None:
            if error is not None:
                answer.error_code = error_code(error)
            elif found is not None and found.offset < self._end_offset(partition):
                self._set(answer, found)
            elif partition.high_watermark < partition.epoch_start_offset:
                answer.error_code = (
                    ErrorCode.OFFSET_NOT_AVAILABLE if self._context.api_version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
                )
            self._open -= 1
            if self._open == 0 and self._all_asked:
                self._context.reply(self.response)

        self._open += 1
        try:
            look_up(on_found)
        except StrandlineError:
            # Rejected at once, so `on_found` is never called.
            self._open -= 1
            raise


def _tier_first(tier: Tier, timestamp_ms: int, look_up: LookUp, callback: FoundCallback) -> None:
    """Find a time in the object store, else in the local log."""

    def on_found(found: FoundTime | None, error: BaseException | None) -> None:
        if found is None and error is None:
            try:
                look_up(callback)
            except StrandlineError as refusal:
                callback(None, refusal)
        else:
            callback(found, error)

    tier.find_time(timestamp_ms, on_found)
