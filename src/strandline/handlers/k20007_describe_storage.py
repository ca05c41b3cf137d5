"""DescribeStorage (20007), version 0: how logs lie on this node's disk, and what becomes of them.

It is Strandline's own; no other broker knows it. Asked of every broker that has a replica: each tells of its own files,
for leaders and followers delete, clean and scrub for themselves. Partitions that are not here are left out. Segments
are told when asked for, the oldest and the newest of each partition. The time of a segment's first record is not kept
in memory: a thread reads it, of some segments for each answer, and of the others it is -1. A long answer is put
together a share per turn of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from strandline.codec.message_codec import encode
from strandline.codec.messages.describe_storage_request import DescribeStorageRequest
from strandline.codec.messages.describe_storage_response import (
    DescribeStorageResponse,
    StoredPartition,
    StoredSegment,
    TierStatus,
)
from strandline.codec.record_batch import HAS_DELETE_HORIZON, BatchHeader
from strandline.errors import ErrorCode, RequestError, StrandlineError, error_code
from strandline.handlers.support.context import EncodedResponse, RequestContext
from strandline.handlers.support.response_parts import joined
from strandline.handlers.support.storage_facts import add_cleaning, add_deletion, add_scrubbing, asked_partitions
from strandline.log.maintenance.retention import newest_ms
from strandline.log.segment.segment import Segment
from strandline.log.segment.segment_times import read_newest_ms
from strandline.partition.partition import Partition
from strandline.partition.position_lookup import batch_time_ms
from strandline.runtime.time_slicing import gradually

API_KEY = 20_007
VERSIONS = (0, 0)

SEGMENTS_MAX: Final = 1_000
"""Segments of one partition in an answer: one half of them the oldest, the other the newest."""
ANSWER_SEGMENTS_MAX: Final = 50_000
"""Segments in one response; partitions beyond that have only their number of segments."""
TIMES_READ_MAX: Final = 2_000
"""Segments whose first and last times are read from disk for one answer."""
TIMES_PER_TRIP: Final = 16
"""Segments that one trip to a thread holds open."""

_UNKNOWN: Final = -1


class Times(NamedTuple):
    """What the files of a segment tell, as large as it was then: the times of its first and of its newest record."""

    size_bytes: int
    first_ms: int
    newest_ms: int


def handle(context: RequestContext, request: DescribeStorageRequest) -> None:
    _Description(context, request).begin()


class _Description:
    """One answer on its way: the room on the disk, then the times that only files know, then the partitions."""

    def __init__(self, context: RequestContext, request: DescribeStorageRequest) -> None:
        self._context = context
        self._node = context.node
        self._request = request
        self._answer = DescribeStorageResponse(node_id=context.node.node_id)
        self._segments_left = ANSWER_SEGMENTS_MAX
        self._unread: list[Segment] = []
        self._first_times: dict[Segment, int] = {}
        """When the first records of segments were written that were read for this answer."""

    def begin(self) -> None:
        # A file system may keep who asks waiting, one on a network above all.
        self._node.runtime.in_thread(self._node.directory.space, self._on_space)

    def _on_space(self, space: tuple[int, int] | None, error: BaseException | None) -> None:
        if space is not None:
            self._answer.total_bytes, self._answer.usable_bytes = space
        elif error is not None:
            self._answer.error_code = error_code(error)
        if self._request.include_segments:
            gradually(self._node.runtime, self._look_for_unread(), lambda _: self._read_some())
        else:
            self._describe()

    # Times

    def _look_for_unread(self) -> Iterator[None]:
        for name, index in asked_partitions(self._node, self._request):
            partition = self._node.partition(name, index)
            if partition is not None and partition.log.failure is None:
                for segment in _shown(partition.log.segments):
                    if segment.size_bytes and not _knows_its_times(segment):
                        self._unread.append(segment)
                        if len(self._unread) >= TIMES_READ_MAX:
                            return
            yield

    def _read_some(self) -> None:
        some: list[Segment] = []
        while self._unread and len(some) < TIMES_PER_TRIP:
            segment = self._unread.pop()
            try:
                if not segment.deleted:
                    segment.retain()
                    some.append(segment)
            except OSError:
                continue  # Its times stay unknown; a Fetch of its records returns the error.
        if some:
            self._node.runtime.in_thread(partial(_read_times, some), partial(self._on_times, some))
        else:
            self._describe()

    def _on_times(self, held: list[Segment], times: list[Times] | None, error: BaseException | None) -> None:
        for segment in held:
            segment.release()
        for segment, (size_bytes, first_ms, newest) in zip(held, times or (), strict=error is None):
            self._first_times[segment] = first_ms
            if newest >= 0 and newest_ms(segment) is None:
                # What retention would have a thread read, too.
                segment.newest_read = size_bytes, newest
        self._read_some()

    # The answer

    def _describe(self) -> None:
        node, config = self._node, self._node.config
        self._answer.now_ms = node.runtime.now_ms()
        self._answer.started_ms = node.started_ms
        self._answer.retention_check_ms = config.log_retention_check_interval_ms
        self._answer.cleaner_backoff_ms = config.log_cleaner_backoff_ms
        self._answer.scrub_interval_ms = config.log_scrub_interval_ms
        report = node.tier_report()
        if report is not None:
            self._answer.tiers = [TierStatus(**report._asdict())]
        gradually(node.runtime, self._partitions(), self._reply)

    def _reply(self, parts: list[bytes]) -> None:
        version, tiers = self._context.api_version, self._answer.tiers
        # Tagged, so it comes behind the partitions.
        tail_size = len(encode(self._answer, version))
        self._answer.tiers = []
        tail_size -= len(encode(self._answer, version))
        self._answer.tiers = tiers
        self._context.reply(EncodedResponse(joined(self._answer, version, parts, tail_size=tail_size)))

    def _partitions(self) -> Iterator[bytes]:
        for name, index in asked_partitions(self._node, self._request):
            partition = self._node.partition(name, index)
            if partition is not None:
                yield encode(self._stored(partition), self._context.api_version)
            elif (failure := self._why_not_open(name, index)) is not None:
                image = self._node.image.partition(name, index)
                is_leader = image is not None and image.leader == self._node.node_id
                stored = StoredPartition(topic=name, partition=index, is_leader=is_leader)
                _add_failure(stored, failure)
                yield encode(stored, self._context.api_version)

    def _why_not_open(self, name: str, index: int) -> StrandlineError | None:
        progress = self._node.recovery_of(name, index)
        if progress is not None:
            return RequestError(ErrorCode.REPLICA_NOT_AVAILABLE, progress)
        return self._node.log_failure(name, index)

    def _stored(self, partition: Partition) -> StoredPartition:
        log, config = partition.log, partition.config
        stored = StoredPartition(
            topic=partition.topic,
            partition=partition.index,
            is_leader=partition.is_leader,
            log_start_offset=log.log_start_offset,
            last_stable_offset=partition.last_stable_offset,
            high_watermark=partition.high_watermark,
            log_end_offset=log.log_end_offset,
            size_bytes=log.size_bytes(),
            bytes_in=partition.bytes_in,
            cleanup_policy=",".join(config.cleanup_policy),
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            segment_ms=config.segment_ms,
            segment_bytes=config.segment_bytes,
            segments_total=len(log.segments),
        )
        if log.failure is not None:
            _add_failure(stored, log.failure)
            return stored
        now_ms = self._answer.now_ms
        add_deletion(stored, partition, now_ms)
        add_cleaning(stored, self._node, partition, now_ms)
        add_scrubbing(stored, self._node, partition)
        if self._request.include_segments and self._segments_left > 0:
            stored.segments = self._segments(partition)
            self._segments_left -= len(stored.segments)
        return stored

    def _segments(self, partition: Partition) -> list[StoredSegment]:
        log = partition.log
        ends = dict(zip(log.base_offsets, [*log.base_offsets[1:], log.log_end_offset], strict=True))
        result = []
        for segment in _shown(log.segments):
            first_ms = segment.first_timestamp_ms
            if first_ms < 0:
                first_ms = self._first_times.get(segment, _UNKNOWN)
            newest = newest_ms(segment)
            result.append(
                StoredSegment(
                    base_offset=segment.base_offset,
                    end_offset=ends[segment.base_offset],
                    size_bytes=segment.size_bytes,
                    first_timestamp_ms=first_ms,
                    max_timestamp_ms=_UNKNOWN if newest is None else newest,
                    is_active=segment.is_active,
                )
            )
        return result


def _shown(segments: list[Segment]) -> list[Segment]:
    half = SEGMENTS_MAX // 2
    return [*segments[:half], *segments[-half:]] if len(segments) > SEGMENTS_MAX else list(segments)


def _knows_its_times(segment: Segment) -> bool:
    return segment.first_timestamp_ms >= 0 and newest_ms(segment) is not None


def _read_times(segments: list[Segment]) -> list[Times]:
    """Read the times of segments; runs in a thread."""
    return [_times_of(segment) for segment in segments]


def _times_of(segment: Segment) -> Times:
    size_bytes = segment.size_bytes
    try:
        for header, _ in segment.headers(0, may_block=True):
            return Times(size_bytes, _first_time_ms(header), read_newest_ms(segment))
    except (StrandlineError, OSError):
        # A damaged file is the scrubber's to tell of, with more to say than that its times are not known.
        return Times(size_bytes, _UNKNOWN, _UNKNOWN)
    return Times(size_bytes, _UNKNOWN, _UNKNOWN)


def _first_time_ms(header: BatchHeader) -> int:
    # The field of the base timestamp holds something else once the cleaner has set a delete horizon.
    return header.max_timestamp if header.attributes & HAS_DELETE_HORIZON else batch_time_ms(header)


def _add_failure(stored: StoredPartition, failure: StrandlineError) -> None:
    stored.error_code = error_code(failure)
    stored.error_message = str(failure)
