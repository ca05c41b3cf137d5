"""A range of offsets of one partition, from its leader to Arrow: exactly what lies in it, or a sentence why not.

While one answer is decoded the next is already asked for, on the same connection. What passes (a leader that moved, a
broker that restarts, a lost connection) is tried again as long as anything came within `stall_timeout_s`. What does not
pass is data loss: offsets that the log no longer has, or has not, and a topic that was deleted or created again. Then
the reader fails and names topic, partition and range, or with `failOnDataLoss=false` says so in the log and goes on.
Gaps inside a log are sound: compaction, markers and aborted transactions leave them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final
from uuid import UUID

from strandline.client.cluster_client import (
    EARLIEST,
    LATEST,
    PASSING,
    PAUSE_S_MAX,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ClusterClient,
    has_id,
)
from strandline.client.connection import BrokerConnection
from strandline.client.failures import ClusterFailed, DataLost, TopicMissing
from strandline.codec.fetched_records import FetchedRecords
from strandline.codec.message_codec import decode_exact
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.fetch_response import FetchResponse
from strandline.errors import (
    CorruptBatch,
    Disconnected,
    ErrorCode,
    PeerError,
    TimedOut,
    UnsupportedVersion,
    named,
)
from strandline.ids import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_NAMES_UP_TO: Final = 12
"""From version 13 on a Fetch names topics by their ids."""
_PAUSE_S: Final = 0.02
_LEAST_BYTES: Final = 64 * 1024
"""Less is never asked for at the end of a range: another round trip costs more than what is thrown away."""
_BATCH_WALK: Final = Struct(">qi11xi")
"""Base offset, length and last offset delta of a batch."""
_HEADER_BYTES: Final = 61
_PREFIX_BYTES: Final = 12

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OffsetRange:
    """Offsets `start` up to, but not including, `end`. The id pins the topic: one of the same name is another."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: UUID = ZERO_UUID

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class FetchSettings:
    isolation_level: int = READ_COMMITTED
    partition_bytes_max: int = 4 * 1024 * 1024
    wait_ms_max: int = 500
    stall_timeout_s: float = 120.0
    fails_on_data_loss: bool = True


def read_range(
    client: ClusterClient, offsets: OffsetRange, settings: FetchSettings, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The records of a range as Arrow batches of `schema`, in the order of their offsets."""
    # Loaded here, because numpy and Arrow take 0.4 s and 25 MB, and most readers of answers make no Arrow.
    from strandline.client.arrow_rows import ArrowDecoder

    decoder = ArrowDecoder(schema, offsets.topic, offsets.partition)
    try:
        for start, answer in PartitionFetcher(client, offsets, settings).answers():
            # The list of aborted transactions is told to readers of what is committed only.
            yield from decoder.decode(answer.records, answer.aborted, start=start, end=offsets.end)
    except PeerError as error:
        raise ClusterFailed(
            f"{offsets.topic_partition} cannot be read in the range {offsets.start} to {offsets.end}: {error}; "
            "compare it with another replica, or leave the damaged offsets out"
        ) from error


def fetch_beginnings(
    client: ClusterClient, topic: str, topic_id: UUID, starts: Mapping[int, int], settings: FetchSettings
) -> dict[int, FetchedRecords]:
    """Return the first answers from an offset of each partition on, with one request to each leader, side by side.

    A partition of which no records came is left out, for whatever reason: a `PartitionFetcher` of its own finds it.
    """
    asked: dict[tuple[str, int], list[FetchPartition]] = {}
    try:
        for partition, offset in starts.items():
            leader, _ = client.leader_of(TopicPartition(topic, partition), topic_id=topic_id)
            one = FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=settings.partition_bytes_max
            )
            asked.setdefault(client.address_of(leader), []).append(one)
    except (Disconnected, TimedOut, TopicMissing):
        return {}
    requests = {
        address: FetchRequest(
            max_wait_ms=settings.wait_ms_max,
            min_bytes=1,
            max_bytes=sum(each.partition_max_bytes for each in partitions),
            isolation_level=settings.isolation_level,
            topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)],
        )
        for address, partitions in asked.items()
    }
    found: dict[int, FetchedRecords] = {}
    for answer in client.read_each(
        requests, _beginnings_told, version_max=None if has_id(topic_id) else _NAMES_UP_TO
    ).values():
        if not isinstance(answer, Disconnected | TimedOut):
            found.update(answer)
    return found


def _beginnings_told(view: memoryview, at: int, version: int) -> dict[int, FetchedRecords]:
    told = decode_exact(FetchResponse, version, view, at)
    return {
        each.partition_index: FetchedRecords(
            told.throttle_time_ms,
            each.error_code,
            True,
            each.high_watermark,
            each.last_stable_offset,
            [(one.producer_id, one.first_offset) for one in each.aborted_transactions or ()],
            memoryview(each.records),
        )
        for topic in told.responses
        for each in topic.partitions
        if not told.error_code and not each.error_code and each.records
    }


class PartitionFetcher:
    def __init__(
        self,
        client: ClusterClient,
        offsets: OffsetRange,
        settings: FetchSettings,
        *,
        asks_ahead: bool = True,
        beginning: FetchedRecords | None = None,
    ) -> None:
        """`beginning` is an answer of `fetch_beginnings` for the start of the range."""
        self._client = client
        self._asks_ahead = asks_ahead
        self._range = offsets
        self._settings = settings
        self.position = offsets.start
        self.bytes_per_offset = 0.0
        """Of the last answer, as its batches lie in the log."""
        self._asked: tuple[tuple[str, int], BrokerConnection] | None = None
        self._beginning = beginning
        self._progress_at = time.monotonic()

    def answers(self) -> Iterator[tuple[int, FetchedRecords]]:
        """The offset that was asked for and an answer with whole batches, until the range is read.

        Each is given out while the next one is under way, and holds until that one is asked for.
        """
        pause_s = _PAUSE_S
        try:
            while self.position < self._range.end:
                heard, answer = self._next()
                if answer is not None and len(answer.records):
                    position = self.position
                    next_position, self.bytes_per_offset = walked(answer.records, position)
                    if next_position > position:
                        self.position = next_position
                        self._progress_at = time.monotonic()
                        pause_s = _PAUSE_S
                        self._ask_ahead()
                        yield position, answer
                        continue
                    heard = "a batch that is never whole"
                elif answer is not None and self._is_behind(answer):
                    # The leader knows the log beyond our end and has no batch between: the last ones were compacted.
                    return
                if time.monotonic() - self._progress_at > self._settings.stall_timeout_s:
                    raise ClusterFailed(
                        f"nothing of {self._range.topic_partition} came from offset {self.position} on (up to "
                        f"{self._range.end}) within {self._settings.stall_timeout_s:g} s: {heard}"
                    )
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
        finally:
            # An answer that is still under way would be taken for that of the next request.
            self._hang_up()

    def _is_behind(self, answer: FetchedRecords) -> bool:
        stable = answer.last_stable_offset if self._settings.isolation_level == READ_COMMITTED else -1
        return (stable if stable >= 0 else answer.high_watermark) >= self._range.end

    def _next(self) -> tuple[str, FetchedRecords | None]:
        """The next answer without an error, or what was heard instead."""
        if self._beginning is not None:
            beginning, self._beginning = self._beginning, None
            return "no records", beginning
        try:
            if self._asked is None:
                self._ask()
            assert self._asked is not None
            answer = self._asked[1].receive_fetched(wait_s=self._settings.wait_ms_max / 1000)
            self._asked = None
        except (Disconnected, TimedOut) as error:
            self._hang_up()
            self._client.forget(self._range.topic)
            return str(error), None
        except UnsupportedVersion as error:
            raise ClusterFailed(f"{self._range.topic_partition} cannot be read: {error}") from error
        except TopicMissing:
            self._lose(self.position, self._range.end, "the topic is gone")
            return "the topic is gone", None
        return self._judged(answer)

    def _judged(self, answer: FetchedRecords) -> tuple[str, FetchedRecords | None]:
        code = named(answer.error_code)
        if code == ErrorCode.NONE and answer.is_told:
            if not len(answer.records) and answer.throttle_time_ms:
                # A broker that holds us back answers with nothing, which says nothing of the log.
                time.sleep(answer.throttle_time_ms / 1000)
                return "the broker holds us back by a quota", None
            return "no records", answer
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._on_out_of_range()
        elif code in PASSING or code == ErrorCode.NONE:
            self._client.forget(self._range.topic)
        elif code == ErrorCode.CORRUPT_MESSAGE:
            raise ClusterFailed(f"{self._range.topic_partition} is damaged at offset {self.position} on its leader")
        else:
            raise ClusterFailed(f"{self._range.topic_partition} cannot be read at {self.position}: {code.name}")
        return code.name, None

    # Asking

    def _ask(self) -> None:
        leader, topic_id = self._client.leader_of(self._range.topic_partition, topic_id=self._range.topic_id)
        address = self._client.address_of(leader)
        connection = self._client.connection(address)
        version = connection.version_for(FetchRequest, version_max=None if has_id(topic_id) else _NAMES_UP_TO)
        self._asked = (address, connection)
        connection.send(self._request(topic_id), version)

    def _ask_ahead(self) -> None:
        if not self._asks_ahead or self.position >= self._range.end:
            return
        try:
            self._ask()
        except (Disconnected, TimedOut, UnsupportedVersion, TopicMissing):
            # It comes again when the answer is wanted, and is judged there.
            self._hang_up()

    def _request(self, topic_id: UUID) -> FetchRequest:
        wanted = self._settings.partition_bytes_max
        if self.bytes_per_offset:
            left = int((self._range.end - self.position) * self.bytes_per_offset * 1.1)
            wanted = max(min(wanted, left), min(wanted, _LEAST_BYTES))
        partition = FetchPartition(
            partition=self._range.partition, fetch_offset=self.position, partition_max_bytes=wanted
        )
        return FetchRequest(
            max_wait_ms=self._settings.wait_ms_max,
            min_bytes=1,
            max_bytes=wanted,
            isolation_level=self._settings.isolation_level,
            topics=[FetchTopic(topic=self._range.topic, topic_id=topic_id, partitions=[partition])],
        )

    def _hang_up(self) -> None:
        if self._asked is not None:
            self._client.drop(self._asked[0])
            self._asked = None

    # Loss

    def _on_out_of_range(self) -> None:
        partition = self._range.topic_partition
        self._client.forget(partition.topic)
        try:
            # Of the whole log: what is not stable yet is not lost.
            earliest = self._client.list_offsets({partition: EARLIEST}, isolation_level=READ_UNCOMMITTED)[partition]
            latest = self._client.list_offsets({partition: LATEST}, isolation_level=READ_UNCOMMITTED)[partition]
        except TopicMissing:
            self._lose(self.position, self._range.end, "the topic is gone")
            return
        if self.position < earliest:
            self._lose(self.position, min(earliest, self._range.end), f"the log begins at {earliest}")
        elif self.position > latest:
            self._lose(self.position, self._range.end, f"the log ends at {latest}")

    def _lose(self, start: int, end: int, reason: str) -> None:
        words = lost_words(self._range.topic, self._range.partition, start, end, reason)
        if self._settings.fails_on_data_loss:
            raise DataLost(f"{words}; {ADVICE}")
        log.warning("%s; read on without them, because failOnDataLoss is false", words)
        self.position = end
        self._progress_at = time.monotonic()


ADVICE: Final = (
    'say option("failOnDataLoss", "false") to go on without them, or start with another checkpoint and startingOffsets'
)


def lost_words(topic: str, partition: int, start: int, end: int | None, reason: str) -> str:
    """Return the sentence about lost records. `end` is None if their number is not known."""
    lost = f"everything from offset {start} on is" if end is None else f"the offsets {start} to {end - 1} are"
    return f"topic {topic}, partition {partition}: {lost} lost ({reason})"


def walked(records: memoryview, position: int) -> tuple[int, float]:
    """The offset behind the last whole batch, `position` if there is none; and the bytes that an offset takes."""
    at = 0
    size = len(records)
    first: int | None = None
    while size - at >= _HEADER_BYTES:
        base_offset, length, last_delta = _BATCH_WALK.unpack_from(records, at)
        if length < _HEADER_BYTES - _PREFIX_BYTES:
            raise CorruptBatch(f"the batch length {length} at position {at} is smaller than a header")
        if at + _PREFIX_BYTES + length > size:
            break
        at += _PREFIX_BYTES + length
        first = base_offset if first is None else first
        position = max(position, base_offset + last_delta + 1)
    # From where the first batch begins, which may be far before what was asked for.
    return position, at / max(1, position - first) if first is not None else 0.0
