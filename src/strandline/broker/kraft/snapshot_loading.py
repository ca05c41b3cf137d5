"""From the bytes of a snapshot to an image: at once at a start, a share per turn while a node runs.

A snapshot that comes from the leader is written beside the log, checked whole, and only then given its name: what is
damaged never stands in the place of what was there before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Final

from strandline.broker.kraft.metadata_snapshots import MetadataSnapshots, PartialSnapshot
from strandline.codec.messages.voters_record import VotersRecord
from strandline.errors import CorruptLog, StrandlineError
from strandline.quorum.image.cluster_image import ClusterImage
from strandline.quorum.image.snapshot_format import SnapshotReader
from strandline.quorum.raft.raft_log import SnapshotId
from strandline.runtime.runtime import Runtime

SHARE_S_MAX: Final = 0.005
"""What loading may take of one turn of the loop."""


@dataclasses.dataclass(slots=True)
class LoadedSnapshot:
    image: ClusterImage
    voters: VotersRecord | None = None
    last_timestamp_ms: int = 0


def load_snapshot(snapshots: MetadataSnapshots, snapshot_id: SnapshotId) -> LoadedSnapshot:
    """The whole snapshot, in one go: for the start of a node."""
    loaded = LoadedSnapshot(ClusterImage())
    try:
        for _ in _folding(SnapshotReader(snapshots.read_whole(snapshot_id)), loaded, snapshot_id):
            pass
    except CorruptLog as error:
        raise CorruptLog(f"{snapshots.path(snapshot_id)}: {error}") from error
    return loaded


def _folding(reader: SnapshotReader, loaded: LoadedSnapshot, snapshot_id: SnapshotId) -> Iterator[None]:
    """Fold batch after batch; `loaded` is complete when this ends."""
    for records in reader.batches():
        for record in records:
            loaded.image.apply(record)
        yield
    loaded.image.applied_offset = snapshot_id.end_offset - 1
    loaded.voters = reader.voters
    loaded.last_timestamp_ms = reader.last_timestamp_ms


class SnapshotInstall:
    """One snapshot on its way from the leader to a file and an image."""

    def __init__(self, runtime: Runtime, snapshots: MetadataSnapshots, snapshot_id: SnapshotId) -> None:
        self._runtime = runtime
        self._snapshots = snapshots
        self.snapshot_id = snapshot_id
        self.loaded = LoadedSnapshot(ClusterImage())
        self._partial: PartialSnapshot | None = None
        self._is_abandoned = False
        self._on_done: Callable[[SnapshotInstall, BaseException | None], object]
        self._folding: Iterator[Any]

    def take(self, position: int, records: bytes) -> None:
        """Take bytes of the leader; position 0 begins again."""
        if position == 0:
            if self._partial is not None:
                self._partial.abandon()
            self._partial = self._snapshots.begin(self.snapshot_id)
        assert self._partial is not None
        assert self._partial.size_bytes == position, "chunks come in order"
        self._partial.append(records)

    def finish(self, on_done: Callable[[SnapshotInstall, BaseException | None], object]) -> None:
        """All bytes are there: check them, load the image, sync the file and name it; `on_done(self, error)`."""
        assert self._partial is not None
        self._on_done = on_done
        self._runtime.in_thread(self._partial.read, self._on_read)

    def _on_read(self, data: bytes | None, error: BaseException | None) -> None:
        if self._is_abandoned:
            return
        if data is None:
            self._end(error)
            return
        self._folding = _folding(SnapshotReader(data), self.loaded, self.snapshot_id)
        self._load_share()

    def _load_share(self) -> None:
        if self._is_abandoned:
            return
        until = self._runtime.monotonic() + SHARE_S_MAX
        try:
            for _ in self._folding:
                if self._runtime.monotonic() > until:
                    self._runtime.call_soon(self._load_share)
                    return
        except StrandlineError as error:
            self._end(error)
            return
        assert self._partial is not None
        self._runtime.in_thread(self._partial.finish, self._on_named)

    def _on_named(self, _: None, error: BaseException | None) -> None:
        if self._is_abandoned:
            return
        if error is None:
            self._partial = None
            self._snapshots.add(self.snapshot_id)
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if error is not None:
            self.abandon()
        self._on_done(self, error)

    def abandon(self) -> None:
        self._is_abandoned = True
        if self._partial is not None:
            self._partial.abandon()
            self._partial = None
