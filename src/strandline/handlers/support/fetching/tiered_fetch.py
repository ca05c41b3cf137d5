"""The reads from the object store that one Fetch waits for.

A Fetch below the local start of a tiered partition begins a read, and waits `remote.fetch.max.wait.ms` for it at most.
If records of other partitions are there it does not wait at all. The read goes on without it and fills a cache, where
the next Fetch finds the records.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from strandline.codec.current_leader import NO_TAGS
from strandline.codec.fetch import PartitionData
from strandline.errors import ErrorCode, StrandlineError, error_code
from strandline.log.segment.log_slice import LogSlice
from strandline.partition.fetch_session import EntryKey, FetchEntry
from strandline.partition.partition import Partition
from strandline.partition.tier import FollowedState, RemoteRecords, Tier

if TYPE_CHECKING:
    from strandline.handlers.support.context import BrokerServices

READ_COMMITTED = 1


class TieredFetch(Protocol):
    node: BrokerServices
    size_bytes_min: int
    wait_ms: int
    isolation_level: int

    def refuse(self, entry: FetchEntry, code: int) -> PartitionData[LogSlice]: ...

    def on_tiered(self) -> None: ...


class TieredReads:
    """What became of the reads of one Fetch, by partition and offset."""

    __slots__ = ("_fetch", "_found")

    def __init__(self, fetch: TieredFetch) -> None:
        self._fetch = fetch
        self._found: dict[tuple[EntryKey, int], RemoteRecords | BaseException | None] = {}
        """None for a read that is under way."""

    def read(
        self, partition: Partition, entry: FetchEntry, remaining: int, *, at_least_one: bool
    ) -> PartitionData[LogSlice]:
        """Return the records of a partition if they are there; begin to read them if that was not done."""
        offset, log, fetch = entry.fetch_offset, partition.log, self._fetch
        if partition.tier is not None and partition.tier.follows_index and not partition.is_leader:
            return self._read_followed(partition, partition.tier, entry, remaining, at_least_one=at_least_one)
        if not partition.log_start_offset <= offset < log.log_start_offset or partition.tier is None:
            return fetch.refuse(entry, ErrorCode.OFFSET_OUT_OF_RANGE)
        if not partition.is_leader:
            return fetch.refuse(entry, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        state = FollowedState(partition.log_start_offset, partition.high_watermark, partition.last_stable_offset)
        return self._read(partition.tier, state, entry, remaining, at_least_one=at_least_one)

    def _read_followed(
        self, partition: Partition, tier: Tier, entry: FetchEntry, remaining: int, *, at_least_one: bool
    ) -> PartitionData[LogSlice]:
        """Return committed records of an object topic that another broker leads, as far as they are known here."""
        offset, fetch = entry.fetch_offset, self._fetch
        try:
            state = tier.followed()
        except StrandlineError as error:
            return fetch.refuse(entry, error_code(error))
        if offset < state.log_start_offset:
            return fetch.refuse(entry, ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset > state.high_watermark:
            # The leader may have more. Its client comes again, and must not take these offsets for none.
            return fetch.refuse(entry, ErrorCode.OFFSET_NOT_AVAILABLE)
        is_committed_only = fetch.isolation_level == READ_COMMITTED
        if offset >= (state.last_stable_offset if is_committed_only else state.high_watermark):
            start_offset, high_watermark, stable_offset = state
            return PartitionData(*entry.key, 0, high_watermark, stable_offset, start_offset, None, NO_TAGS, ())
        return self._read(tier, state, entry, remaining, at_least_one=at_least_one)

    def _read(
        self, tier: Tier, state: FollowedState, entry: FetchEntry, remaining: int, *, at_least_one: bool
    ) -> PartitionData[LogSlice]:
        offset, fetch = entry.fetch_offset, self._fetch
        place = entry.key, offset
        if place not in self._found and (remaining > 0 or at_least_one):
            self._found[place] = None
            size, committed_only = min(entry.size_bytes_max, max(1, remaining)), fetch.isolation_level == READ_COMMITTED
            then = partial(self._on_records, place)
            tier.read(offset, size_bytes_max=size, committed_only=committed_only, then=then)
            if self._found[place] is None:
                # Whatever its client asked for: an answer without these records would only be asked for again.
                fetch.wait_ms = max(fetch.wait_ms, fetch.node.config.remote_fetch_max_wait_ms)
                fetch.size_bytes_min = 1
        found = self._found.get(place)
        if isinstance(found, BaseException):
            return fetch.refuse(entry, error_code(found))
        if found is not None and not found.size_bytes:
            found = None
        aborted = () if found is None else found.aborted
        return PartitionData(
            *entry.key,
            0,
            state.high_watermark,
            state.last_stable_offset,
            state.log_start_offset,
            cast("LogSlice | None", found),
            NO_TAGS,
            aborted,
        )

    def without_records(self, pieces: list[Any]) -> list[Any]:
        """Return pieces of a response with bytes in the place of records of the store."""
        return [part for piece in pieces for part in (piece.parts if isinstance(piece, RemoteRecords) else (piece,))]

    def _on_records(
        self, place: tuple[EntryKey, int], records: RemoteRecords | None, error: BaseException | None
    ) -> None:
        was_waiting = place in self._found and self._found[place] is None
        self._found[place] = records if error is None else error
        if was_waiting:
            self._fetch.on_tiered()
