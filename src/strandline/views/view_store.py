"""Makes states: the current one, and those of the past, from the nearest snapshot and the log.

The current state is right if it was folded from where the log begins, or from a snapshot with every record since still
in the log; a log that was compacted since is read from its beginning. A state of the past is given only if no record
that would count can be missing: each offset between its snapshot (or offset 0) and the moment is there to be read. For
a time the records of the snapshot count, too: a record that is gone may have been later, so each must have been seen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import duckdb

from strandline.client.cluster_client import LATEST, ClusterClient
from strandline.client.failures import ClientFailed
from strandline.client.fetcher import FetchSettings, OffsetRange, PartitionFetcher
from strandline.ids import TopicPartition
from strandline.views.as_of import AsOf, AtOffsets, AtTime, Reach, offsets_words, time_words
from strandline.views.definition import ViewDefinition
from strandline.views.failures import BeyondReach, HistoryLost, LogMoved, SnapshotFailed, ViewFailed
from strandline.views.folding import PROBE_BYTES, Fold, Offsets, first_later, fold_whole, log_starts, walked
from strandline.views.snapshots import HeldSnapshot, Snapshot, SnapshotStore
from strandline.views.state import ViewState

SNAPSHOT_RECORDS_MIN: Final = 20_000
"""So many rows of the log's tail, or a tenth of the snapshot's if that is more, are worth a new snapshot."""
SNAPSHOT_EVERY_MS: Final = 600_000
"""And so is any change after so long: snapshots are what "as of" goes back to once a log is compacted."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ends:
    """How far a topic went when it was asked."""

    topic_id: UUID
    asked_ms: int
    committed: dict[int, int]
    """The last stable offset of each partition, or where a view must stop before it."""
    is_cut: bool
    """Whether the log goes on behind, with what is not to be shown yet."""


@contextmanager
def plainly() -> Iterator[None]:
    """What the reader of topics says is a view's failure here."""
    try:
        yield
    except ClientFailed as error:
        raise ViewFailed(str(error)) from error


def ends_of(client: ClusterClient, definition: ViewDefinition) -> Ends:
    with plainly():
        asked_ms = _now_ms()
        topic = client.topic(definition.topic)
        if topic is None:
            raise ViewFailed(
                f"the topic {definition.topic} of the view {definition.name} does not exist: run its pipeline, or "
                "create the topic"
            )
        stable = _stable(client, topic.name, topic.leaders)
    until = dict(definition.until)
    committed = {each: min(stable[each], until.get(each, 0)) if until else stable[each] for each in sorted(stable)}
    return Ends(topic.topic_id, asked_ms, committed, is_cut=committed != stable)


def _stable(client: ClusterClient, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    wanted = {TopicPartition(topic, partition): LATEST for partition in partitions}
    return {place.partition: offset for place, offset in client.list_offsets(wanted).items()}


def records_since(client: ClusterClient, topic: str, offsets: Offsets, ends: Ends) -> int:
    """Return how many offsets lie between a state and the end. What was trimmed from the log is not waited for."""
    behind = {each: end for each, end in ends.committed.items() if offsets.get(each, 0) < end}
    if not behind:
        return 0
    with plainly():
        starts = log_starts(client, topic, sorted(behind))
    return sum(max(0, end - max(starts[each], offsets.get(each, 0))) for each, end in behind.items())


class ViewStore:
    """The states of one topic, and its snapshots."""

    def __init__(
        self, client: ClusterClient, connection: duckdb.DuckDBPyConnection, topic: str, topic_id: UUID, directory: Path
    ) -> None:
        self._client = client
        self._connection = connection
        self._topic = topic
        self.topic_id = topic_id
        self.snapshot_store = SnapshotStore(directory)
        self._current: ViewState | None = None
        self._past: tuple[dict[int, int], ViewState] | None = None
        self.on_read: Callable[[int], None] | None = None
        """Told how many records were read, whenever some were."""

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
        if self._past is not None:
            self._past[1].close()
        self._current = self._past = None

    @property
    def at_hand(self) -> ViewState | None:
        """The current state as it was last read."""
        return self._current

    # The state of now

    def current(self, ends: Ends) -> ViewState:
        with plainly():
            starts = log_starts(self._client, self._topic, sorted(ends.committed))
            advanced = self._advanced(ends)
            state = advanced or self._from_snapshot(ends, starts) or self._from_log(ends)
            state.floors = starts
            state.folded_ms = ends.asked_ms
            if state is not self._current and self._current is not None:
                self._current.close()
            self._current = state
            if advanced is None and not state.is_exact and _stable(self._client, self._topic, starts) != state.offsets:
                # What is gone was perhaps replaced while this was read, by records behind the end: they complete it.
                raise LogMoved(f"{self._topic} is compacted faster than it can be read: ask again in a moment")
        return state

    def _advanced(self, ends: Ends) -> ViewState | None:
        """The state that is at hand, brought up to `ends`; None if that cannot be done."""
        state = self._current
        if state is None or state.offsets.keys() != ends.committed.keys():
            return None
        if any(ends.committed[each] < offset for each, offset in state.offsets.items()):
            return None
        try:
            is_whole = state.fold.advance(self._client, ends.committed, on_read=self.on_read)
        except HistoryLost:
            return None
        if is_whole and self._is_right(state, ends):
            return state
        # Also a fold from the log's beginning has missed what was compacted since it was last here. It is closed now:
        # it is at the end, so if the next one fails, it would be taken for the current state.
        self._current = None
        state.close()
        return None

    def _from_snapshot(self, ends: Ends, starts: Mapping[int, int]) -> ViewState | None:
        for snapshot in reversed(self.snapshot_store.snapshots()):
            if not _is_below(snapshot.offsets, ends.committed):
                continue
            held = self.snapshot_store.hold(snapshot)
            if held is None:
                continue
            state = self._folded(held, ends.committed, starts)
            if state is None:
                continue
            if self._is_right(state, ends):
                return state
            # Older ones lack at least as much.
            state.close()
            return None
        return None

    def _from_log(self, ends: Ends) -> ViewState:
        fold = fold_whole(
            self._connection,
            self._client,
            self._topic,
            ends.committed,
            topic_id=self.topic_id,
            on_read=self.on_read,
        )
        state = ViewState(fold, log_starts=dict(fold.starts))
        if ends.is_cut and not state.is_exact:
            state.close()
            raise ViewFailed(
                "the view is being switched to a rebuild, and its state from before cannot be had from this log: "
                "ask again in a moment"
            )
        return state

    @staticmethod
    def _is_right(state: ViewState, ends: Ends) -> bool:
        return state.is_exact if ends.is_cut else state.is_right

    def _folded(self, held: HeldSnapshot | None, ends: Offsets, starts: Mapping[int, int]) -> ViewState | None:
        """From a snapshot, or from offset 0, up to `ends`; None if the log no longer has what is between."""
        based = held.snapshot.offsets if held is not None else {}
        begin = {partition: based.get(partition, starts[partition]) for partition in ends}
        fold = Fold(self._connection, self._topic, begin, topic_id=self.topic_id)
        state = ViewState(fold, held, log_starts=starts)
        try:
            fold.advance(self._client, ends, on_read=self.on_read)
        except HistoryLost:
            state.close()
            return None
        except BaseException:
            state.close()
            raise
        return state

    # States of the past

    def as_of(self, moment: AsOf, ends: Ends) -> ViewState:
        """The state of that moment, or BeyondReach with what can be had."""
        with plainly():
            offsets = self._offsets_of(moment, ends)
            if offsets == ends.committed and not ends.is_cut:
                state = self.current(ends)
                if _is_no_later(state, moment):
                    return state
            starts = log_starts(self._client, self._topic, sorted(ends.committed))
            for snapshot in [*reversed(self.snapshot_store.snapshots()), None]:
                if snapshot is not None and not (
                    _is_below(snapshot.offsets, offsets) and _is_no_later(snapshot, moment)
                ):
                    continue
                past = self._at(offsets, moment, snapshot, starts)
                if past is not None:
                    past.folded_ms = ends.asked_ms
                    return past
            raise BeyondReach(
                f"{_moment_words(moment)} is beyond reach: {self.reach(ends).words}{self._nearest(moment)}"
            )

    def _check(self, moment: AtOffsets, ends: Ends) -> None:
        asked = moment.by_partition
        if asked.keys() != ends.committed.keys():
            partitions = ", ".join(map(str, ends.committed))
            raise ViewFailed(
                f"offsets are said for the partitions {', '.join(map(str, sorted(asked)))} and {self._topic} has "
                f"{partitions}: say one for each, such as {offsets_words(ends.committed)}"
            )
        beyond = {each: offset for each, offset in asked.items() if offset > ends.committed[each]}
        if beyond:
            raise BeyondReach(
                f"offset {offsets_words(beyond)} is not there yet: what is committed ends at "
                f"{offsets_words(ends.committed)}"
            )

    def _offsets_of(self, moment: AsOf, ends: Ends) -> dict[int, int]:
        """Return how far each partition had come at a moment, as far as the log as it is now can tell."""
        if isinstance(moment, AtOffsets):
            self._check(moment, ends)
            return dict(moment.by_partition)
        # Times below 0 mean something else to a broker.
        wanted = {TopicPartition(self._topic, each): max(0, moment.timestamp_ms + 1) for each in ends.committed}
        told = {place.partition: offset for place, offset in self._client.list_offsets(wanted).items()}
        return {
            each: first_later(
                self._client, OffsetRange(self._topic, each, told[each], end, self.topic_id), moment.timestamp_ms
            )
            if 0 <= told[each] < end
            else end
            for each, end in ends.committed.items()
        }

    def _at(
        self, offsets: dict[int, int], moment: AsOf, snapshot: Snapshot | None, starts: Mapping[int, int]
    ) -> ViewState | None:
        if self._past is not None and self._past[0] == offsets and _is_no_later(self._past[1], moment):
            return self._past[1]
        held = self.snapshot_store.hold(snapshot) if snapshot is not None else None
        if snapshot is not None and held is None:
            return None
        state = self._folded(held, offsets, starts)
        if state is None or not (state.is_exact and _is_no_later(state, moment)):
            if state is not None:
                state.close()
            return None
        if self._past is not None:
            self._past[1].close()
        self._past = (offsets, state)
        return state

    def _nearest(self, moment: AsOf) -> str:
        """The kept states around a moment, which can be had by their offsets."""

        def distance(snapshot: Snapshot) -> int:
            if isinstance(moment, AtOffsets):
                return abs(sum(snapshot.offsets.values()) - sum(moment.by_partition.values()))
            return abs(max(snapshot.latest_ms.values(), default=0) - moment.timestamp_ms)

        nearest = min(self.snapshot_store.snapshots(), key=distance, default=None)
        kept = "" if nearest is None else f"; the nearest state that is kept is that of {_state_words(nearest)}"
        if isinstance(moment, AtOffsets):
            return kept
        return f"{kept}; the times of records that are gone from the log are not known, so say offsets"

    def reach(self, ends: Ends) -> Reach:
        """The oldest state that can be had, as far as is known without reading the whole log."""
        snapshots = self.snapshot_store.snapshots()
        is_known_whole = (self._current is not None and self._current.is_whole) or any(
            each.is_whole for each in snapshots
        )
        if is_known_whole and self._begins_whole(ends):
            return Reach(dict.fromkeys(ends.committed, 0), is_log_start=True)
        if not snapshots:
            return Reach(None)
        oldest = snapshots[0]
        return Reach(oldest.offsets, max(oldest.latest_ms.values(), default=None))

    def _begins_whole(self, ends: Ends) -> bool:
        """Whether the first records are still there: those are what compaction takes away first."""
        settings = FetchSettings(partition_bytes_max=PROBE_BYTES)
        if any(log_starts(self._client, self._topic, sorted(ends.committed)).values()):
            return False
        for partition, end in ends.committed.items():
            offsets = OffsetRange(self._topic, partition, 0, end, self.topic_id)
            fetcher = PartitionFetcher(self._client, offsets, settings, asks_ahead=False)
            first = next(fetcher.answers(), None)
            if end > 0 and (first is None or not walked(first[1].records, 0)[1]):
                return False
        return True

    # Snapshots

    def maybe_snapshot(self, definition: ViewDefinition, *, now_ms: int | None = None) -> Snapshot | None:
        """Keep the current state if that is worth it."""
        state = self._current
        if state is None or not state.fold.records:
            return None
        now_ms = _now_ms() if now_ms is None else now_ms
        base = state.snapshot
        is_due = (
            base is None
            or self._tail_rows(state) >= max(SNAPSHOT_RECORDS_MIN, base.rows // 10)
            or now_ms - base.made_ms >= SNAPSHOT_EVERY_MS
        )
        if not is_due:
            return None
        try:
            return self.snapshot(definition, now_ms=now_ms)
        except SnapshotFailed as error:
            # What is asked can be answered without.
            logger.warning("%s; views are read from the log meanwhile", error)
            return None

    def snapshot(self, definition: ViewDefinition, *, now_ms: int | None = None) -> Snapshot | None:
        """Keep the current state, and go on from there; None if another process is doing that."""
        state = self._current
        assert state is not None, "there is a state to keep"
        try:
            made = self.snapshot_store.write(
                self._connection,
                definition,
                state.records_sql(),
                offsets=state.offsets,
                latest_ms=state.latest_ms,
                is_whole=state.is_whole,
                has_all_times=state.has_all_times,
                made_ms=_now_ms() if now_ms is None else now_ms,
            )
        except (OSError, duckdb.IOException) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error).splitlines()[0]
            raise SnapshotFailed(f"no snapshot can be kept in {self.snapshot_store.directory}: {reason}") from error
        held = self.snapshot_store.hold(made) if made is not None else None
        if held is None or held.snapshot.offsets != state.offsets:
            if held is not None:
                held.release()
            return None
        fold = Fold(self._connection, self._topic, state.offsets, topic_id=self.topic_id)
        self._current = ViewState(fold, held, state.log_starts, dict(state.floors), state.folded_ms)
        state.close()
        return made

    def _tail_rows(self, state: ViewState) -> int:
        return int(self._connection.execute(f"SELECT count(*) FROM {state.fold.table}").fetchall()[0][0])


def _is_below(offsets: Offsets, ends: Offsets) -> bool:
    return all(offset <= ends.get(partition, -1) for partition, offset in offsets.items())


def _is_no_later(kept: Snapshot | ViewState, moment: AsOf) -> bool:
    """Return whether a time is known to be not before any record of a state, those counted that the log lost since."""
    if isinstance(moment, AtOffsets):
        return True
    return kept.has_all_times and all(latest_ms <= moment.timestamp_ms for latest_ms in kept.latest_ms.values())


def _moment_words(moment: AsOf) -> str:
    if isinstance(moment, AtTime):
        return f"as of {time_words(moment.timestamp_ms)}"
    return f"as of offset {offsets_words(moment.by_partition)}"


def _state_words(snapshot: Snapshot) -> str:
    return Reach(snapshot.offsets, max(snapshot.latest_ms.values(), default=None)).state_words


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
