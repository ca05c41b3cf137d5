"""The log of one simulated replica: what is in memory, what is on its disk, and what a power cut makes of both.

An entry is (epoch, value). Memory and disk differ by what has not been flushed: appended entries, and truncations too,
so a cut tail may come back after a crash, as it may on a real disk.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.errors import CorruptBatch
from strandline.quorum.raft.raft_log import EpochEnd, SnapshotId
from strandline.quorum.raft.state_files import QuorumState

if TYPE_CHECKING:
    from random import Random

    from strandline.codec.messages.leader_change_message import LeaderChangeMessage


class Entry(NamedTuple):
    epoch: int
    value: int


_epoch_of = itemgetter(0)


class Kept:
    """What survives the process: entries, snapshots and the quorum state on one disk."""

    __slots__ = ("entries", "quorum_state", "snapshots", "start_offset")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.start_offset = 0
        self.snapshots: dict[SnapshotId, bytes] = {}
        self.quorum_state = QuorumState()

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    def holds(self, offset: int, epoch: int) -> bool:
        """Whether the entry at `offset`, of `epoch`, is on this disk, in the log or in a snapshot."""
        if offset < self.start_offset:
            return True
        at = offset - self.start_offset
        return at < len(self.entries) and self.entries[at].epoch == epoch


class SimulatedLog:
    """The `RaftLog` of one life of a process, over what is `kept`."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self._replaced = 0
        latest = self.latest_snapshot
        last_epoch = kept.entries[-1].epoch if kept.entries else -1
        if latest is not None and (
            latest.end_offset > kept.end_offset or (latest.epoch > last_epoch and latest.end_offset > kept.start_offset)
        ):
            # A snapshot may reach further than what was flushed of the log, or be of a later epoch than a tail that a
            # crash brought back; then it is what counts, as in `MetadataQuorum`.
            kept.entries = []
            kept.start_offset = latest.end_offset
        self.entries = list(kept.entries)
        self.start_offset = kept.start_offset
        self.end_offset = kept.end_offset
        self.flushed_end = self.end_offset
        self._changed_from = self.end_offset
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._note_all(self.entries, self.start_offset)

    def _note_all(self, entries: list[Entry], base_offset: int) -> None:
        """Epochs only rise, so the next one is found by bisection."""
        at = 0
        while at < len(entries):
            epoch = entries[at][0]
            self._note(epoch, base_offset + at)
            if entries[-1][0] == epoch:
                return
            at = bisect_right(entries, epoch, at, key=_epoch_of)

    def _note(self, epoch: int, offset: int) -> None:
        if not self._epochs or epoch != self._epochs[-1]:
            self._epochs.append(epoch)
            self._starts.append(offset)

    # RaftLog

    @property
    def last_epoch(self) -> int:
        if self._epochs:
            return self._epochs[-1]
        latest = self.latest_snapshot
        return latest.epoch if latest is not None else 0

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return min(self.kept.snapshots) if self.kept.snapshots else None

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return max(self.kept.snapshots) if self.kept.snapshots else None

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        epochs = self._epochs
        if not epochs or epoch > epochs[-1]:
            return EpochEnd(self.last_epoch, self.end_offset)
        at = bisect_right(epochs, epoch)
        if at == 0:
            return EpochEnd(epoch, self.start_offset)
        return EpochEnd(epochs[at - 1], self._starts[at] if at < len(epochs) else self.end_offset)

    def append(self, batch: Any, epoch: int) -> int:
        offset = self.end_offset
        self._note(epoch, offset)
        self.entries.extend([Entry(epoch, value) for value in batch])
        self.end_offset += len(batch)
        return offset

    def append_leader_change(self, message: LeaderChangeMessage, epoch: int) -> int:
        return self.append((-1 - message.leader_id,), epoch)

    def append_fetched(self, records: Any) -> None:
        base_offset, entries = records
        if base_offset != self.end_offset:
            raise CorruptBatch(f"entries at {base_offset} do not follow {self.end_offset}")
        self._note_all(entries, base_offset)
        self.entries.extend(entries)
        self.end_offset += len(entries)

    def truncate_to(self, end_offset: int) -> None:
        del self.entries[end_offset - self.start_offset :]
        self.end_offset = end_offset
        self.flushed_end = min(self.flushed_end, end_offset)
        self._changed_from = min(self._changed_from, end_offset)
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()

    # What the simulated driver does

    def read(self, offset: int, count: int) -> tuple[int, list[Entry]]:
        at = offset - self.start_offset
        return offset, self.entries[at : at + count]

    def entry(self, offset: int) -> Entry:
        return self.entries[offset - self.start_offset]

    def begin_flush(self) -> tuple[int, int, list[Entry]]:
        """Return what goes to disk when this flush is done: everything that differs from it now."""
        changed_from = self._changed_from
        self._changed_from = self.end_offset
        return self._replaced, changed_from, self.entries[changed_from - self.start_offset :]

    def end_flush(self, replaced: int, changed_from: int, entries: list[Entry]) -> None:
        kept = self.kept
        if replaced != self._replaced:
            return  # A snapshot has taken the place of this log meanwhile.
        if changed_from < kept.start_offset:
            # Cleaned meanwhile; what is left of the flush is above the new start.
            entries = entries[kept.start_offset - changed_from :]
            changed_from = kept.start_offset
        kept.entries[changed_from - kept.start_offset :] = entries
        self.flushed_end = max(self.flushed_end, min(kept.end_offset, self._changed_from, self.end_offset))

    def take_snapshot(self, snapshot_id: SnapshotId, content: bytes) -> None:
        self.kept.snapshots[snapshot_id] = content

    def clean(self) -> None:
        """Begin the log where the latest snapshot ends, and drop the older snapshots."""
        latest = self.latest_snapshot
        if latest is None or latest.end_offset <= self.start_offset or latest.end_offset > self.flushed_end:
            return
        start = latest.end_offset
        del self.entries[: start - self.start_offset]
        del self.kept.entries[: start - self.kept.start_offset]
        self.start_offset = self.kept.start_offset = start
        self.kept.snapshots = {latest: self.kept.snapshots[latest]}
        self._begin_epochs_at(start)

    def _begin_epochs_at(self, start: int) -> None:
        at = bisect_right(self._starts, start)
        if at and start < self.end_offset:
            del self._epochs[: at - 1], self._starts[: at - 1]
            self._starts[0] = start
        elif start >= self.end_offset:
            self._epochs, self._starts = [], []

    def install(self, snapshot_id: SnapshotId, content: bytes) -> None:
        """Begin and end where the snapshot ends; on disk at once."""
        self._replaced += 1
        kept = self.kept
        kept.snapshots = {snapshot_id: content}
        kept.entries = []
        kept.start_offset = snapshot_id.end_offset
        self.entries = []
        self.start_offset = self.end_offset = self.flushed_end = self._changed_from = snapshot_id.end_offset
        self._epochs, self._starts = [], []

    def crash(self, random: Random) -> None:
        """Lose what is not flushed: all of it, or all from some entry on."""
        if random.random() < 0.5:
            return
        end = random.randint(self.flushed_end, self.end_offset)
        self.kept.entries = self.entries[: end - self.start_offset]
