"""RecordCounts (20006), version 0: how many records a reader gets from positions. No other broker knows this request.

Asked of the leaders of partitions. Counted is what a reader of committed records gets up to the last stable offset: no
markers, nothing that was aborted, nothing that the cleaner took. What lies between that and the high watermark comes as
`undecided`. Counts that are not known yet are made until `timeout_ms` is over, and -1 where that was not enough: the
node continues, so a later request gets the count. A position below the log start counts from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from strandline.codec.messages.record_counts_request import RecordCountsRequest
from strandline.codec.messages.record_counts_response import (
    PartitionCounts,
    PositionCount,
    RecordCountsResponse,
    TopicCounts,
)
from strandline.errors import ErrorCode
from strandline.handlers.support.absent_partitions import led_partition
from strandline.handlers.support.context import RequestContext
from strandline.log.segment.time_lookup import Part
from strandline.partition.counting import Counted
from strandline.partition.partition import Partition
from strandline.runtime.time_slicing import gradually

API_KEY = 20_006
VERSIONS = (0, 0)

POSITIONS_MAX: Final = 20_000
"""Positions of one request that are counted; the others are left out."""
TIMEOUT_MS_MAX: Final = 60_000


class _Missing(NamedTuple):
    """A position that could not be answered at once."""

    partition: Partition
    result: PositionCount


def handle(context: RequestContext, request: RecordCountsRequest) -> None:
    answer = _Answer(context, request)
    gradually(context.node.runtime, answer.look(), lambda _: answer.count_missing())


class _Answer:
    """One request under way."""

    def __init__(self, context: RequestContext, request: RecordCountsRequest) -> None:
        self._context = context
        self._request = request
        self._response = RecordCountsResponse()
        self._missing: list[_Missing] = []
        self._is_answered = False

    def look(self) -> Iterator[None]:
        """Fill in the counts that are known, position by position."""
        node = self._context.node
        positions = 0
        for topic in self._request.topics:
            result = TopicCounts(name=topic.name)
            self._response.topics.append(result)
            for asked in topic.partitions:
                partition = led_partition(node, topic.name, asked.partition)
                code = partition if isinstance(partition, int) else _refusal(partition)
                each = PartitionCounts(partition=asked.partition, error_code=code)
                result.partitions.append(each)
                if code or isinstance(partition, int):
                    node.count_error(API_KEY, code)
                    yield
                    continue
                each.log_start_offset = partition.log_start_offset
                each.last_stable_offset = partition.last_stable_offset
                each.high_watermark = partition.high_watermark
                for offset in asked.offsets[: POSITIONS_MAX - positions]:
                    positions += 1
                    position = PositionCount(offset=offset)
                    each.counts.append(position)
                    counted = node.lag.counting.at_hand(partition, offset)
                    if counted is not None:
                        _set(position, counted)
                    else:
                        self._missing.append(_Missing(partition, position))
                    yield
                yield

    def count_missing(self) -> None:
        node = self._context.node
        if self._missing and node.lag.counting.run(self._count_missing(), lambda _found, _error: self._reply()):
            timeout_ms = min(self._request.timeout_ms, TIMEOUT_MS_MAX)
            if timeout_ms > 0 and not self._is_answered:
                node.runtime.call_later(timeout_ms / 1000, self._reply)
                return
        self._reply()

    def _count_missing(self) -> Part[None]:
        for partition, result in self._missing:
            counted = yield from self._context.node.lag.counting.counted(partition, result.offset)
            if counted is not None:
                _set(result, counted)
            # Whatever it took: others have their turn between two.
            yield None

    def _reply(self) -> None:
        if not self._is_answered:
            self._is_answered = True
            self._context.reply(self._response)


def _refusal(partition: Partition) -> int:
    if partition.log.failure is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if partition.high_watermark < partition.epoch_start_offset:
        # A new leader does not know yet what was committed before it led: its end might lie before one sent already.
        return ErrorCode.OFFSET_NOT_AVAILABLE
    return ErrorCode.NONE


def _set(result: PositionCount, counted: Counted) -> None:
    result.records, result.undecided = counted
