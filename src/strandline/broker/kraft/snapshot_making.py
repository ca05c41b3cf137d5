"""When a node writes a snapshot of its image, and what the snapshot makes superfluous.

Every node writes its own, once so many bytes of records were folded or so much time has passed. The image is copied,
its records are encoded a share per turn of the loop, and syncing is left to a thread. Then, as in Kafka, the oldest
snapshot goes, and with it the log up to the next one, while both together are too large or the oldest is too old. The
newest snapshot always stays, and the log from its end on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from strandline.broker.kraft.metadata_loader import MetadataLoader
from strandline.broker.kraft.metadata_snapshots import PartialSnapshot
from strandline.broker.kraft.quorum_log import QuorumLog
from strandline.codec.messages.voters_record import VotersRecord
from strandline.errors import CorruptLog
from strandline.quorum.image.snapshot_format import RECORDS_PER_BATCH, SnapshotWriter
from strandline.quorum.raft.raft_log import SnapshotId
from strandline.runtime.runtime import Runtime, TimerHandle

if TYPE_CHECKING:
    from strandline.broker.kraft.quorum_settings import QuorumSettings

SHARE_S_MAX: Final = 0.005
"""What encoding may take of one turn of the loop."""
LOOK_INTERVAL_S: Final = 60.0
"""How often age is looked at, of the last snapshot and of the oldest; and the pause after one that failed."""

log = logging.getLogger("strandline.metadata")


class SnapshotMaker:
    def __init__(
        self,
        fold: MetadataLoader,
        quorum_log: QuorumLog,
        runtime: Runtime,
        settings: QuorumSettings,
        voters: Callable[[], VotersRecord | None],
    ) -> None:
        self._fold = fold
        self._quorum_log = quorum_log
        self._runtime = runtime
        self._settings = settings
        self._voters = voters
        self._partial: PartialSnapshot | None = None
        self._writer: SnapshotWriter
        self._records: Iterator[Any] = iter(())
        self._is_finishing = False
        self._made_at = runtime.monotonic()
        self._not_before = 0.0
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._runtime.call_later(LOOK_INTERVAL_S, self._look)

    def _look(self) -> None:
        self.start()
        self.maybe_begin()
        self.clean()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.abandon()

    # Writing

    def maybe_begin(self) -> None:
        """Begin one if it is due."""
        fold, settings = self._fold, self._settings
        now = self._runtime.monotonic()
        if self._partial is not None or not fold.unsnapshotted_bytes or now < self._not_before:
            return
        is_due = 0 < settings.snapshot_interval_ms <= (now - self._made_at) * 1000
        if (is_due or fold.unsnapshotted_bytes >= settings.snapshot_after_bytes) and not fold.image.is_in_transaction:
            self.begin()

    def begin(self) -> None:
        """Begin to write the image down as it is now; nothing happens if one is being written."""
        fold = self._fold
        snapshot_id = SnapshotId(fold.folded_offset, self._quorum_log.epoch_before(fold.folded_offset))
        if self._partial is not None or snapshot_id in self._quorum_log.snapshots.ids or snapshot_id.end_offset == 0:
            return
        self._writer = SnapshotWriter(
            snapshot_id, now_ms=self._runtime.now_ms(), last_timestamp_ms=fold.last_timestamp_ms
        )
        self._records = fold.image.copy().iter_records()
        try:
            self._partial = self._quorum_log.snapshots.begin(snapshot_id)
            kraft_version = self._quorum_log.kraft_version
            self._partial.append(
                self._writer.begin(kraft_version=kraft_version, voters=self._voters() if kraft_version else None)
            )
        except OSError as error:
            self._give_up(error)
            return
        fold.unsnapshotted_bytes = 0
        self._runtime.call_soon(self._write_share, self._partial)

    def _write_share(self, partial: PartialSnapshot) -> None:
        if partial is not self._partial:
            return
        until = self._runtime.monotonic() + SHARE_S_MAX
        try:
            while records := list(islice(self._records, RECORDS_PER_BATCH)):
                partial.append(self._writer.batch(records))
                if self._runtime.monotonic() > until:
                    self._runtime.call_soon(self._write_share, partial)
                    return
            partial.append(self._writer.end())
        except OSError as error:
            self._give_up(error)
            return
        self._is_finishing = True
        self._runtime.in_thread(partial.finish, lambda _, error: self._on_finished(partial, error))

    def _on_finished(self, partial: PartialSnapshot, error: BaseException | None) -> None:
        self._is_finishing = False
        if partial is not self._partial:
            return
        if error is not None:
            self._give_up(error)
            return
        self._partial = None
        self._made_at = self._runtime.monotonic()
        self._quorum_log.snapshots.add(partial.id)
        log.info("wrote the snapshot of offset %d, %d bytes", partial.id.end_offset, partial.size_bytes)
        self.clean()

    def _give_up(self, error: BaseException) -> None:
        log.warning("no snapshot was written: %s", error)
        self._not_before = self._runtime.monotonic() + LOOK_INTERVAL_S
        self.abandon()

    def abandon(self) -> None:
        """What is being written is not wanted any more."""
        partial, self._partial = self._partial, None
        if partial is None:
            return
        self._records = iter(())
        # A thread that is about to name the file is left to it: the snapshot is sound, only not known.
        if not self._is_finishing:
            try:
                partial.abandon()
            except OSError as error:
                log.warning("an unfinished snapshot stays until the next start: %s", error)

    # Cleaning

    def clean(self) -> None:
        """Remove old snapshots, and the log that newer ones stand for."""
        snapshots = self._quorum_log.snapshots
        try:
            while len(snapshots.ids) > 1 and self._is_superfluous(snapshots.ids[0]):
                self._cut_to(snapshots.ids[1])
        except (OSError, CorruptLog) as error:
            log.warning("old metadata is kept: %s", error)

    def _is_superfluous(self, oldest: SnapshotId) -> bool:
        settings, snapshots = self._settings, self._quorum_log.snapshots
        if settings.retention_bytes >= 0:
            size = self._quorum_log.log.size_bytes() + sum(map(snapshots.size_bytes, snapshots.ids))
            if size > settings.retention_bytes:
                return True
        return 0 <= settings.retention_ms < self._runtime.now_ms() - snapshots.timestamp_ms(oldest)

    def _cut_to(self, snapshot_id: SnapshotId) -> None:
        # The log first: there must always be a snapshot at or behind its start.
        quorum_log = self._quorum_log
        if snapshot_id.end_offset > quorum_log.start_offset:
            for segment in quorum_log.log.cut_front(snapshot_id.end_offset):
                segment.delete(self._remove_in_thread)
        quorum_log.snapshots.remove_before(snapshot_id.end_offset)

    def _remove_in_thread(self, remove: Callable[[], None]) -> None:
        self._runtime.in_thread(remove, _on_removed)


def _on_removed(_: None, error: BaseException | None) -> None:
    if error is not None:
        log.warning("a segment of the metadata log stays until the next start: %s", error)
