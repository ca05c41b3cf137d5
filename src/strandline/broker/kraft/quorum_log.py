"""The log that the Raft core sees: `__cluster_metadata-0` as a `PartitionLog`, with its snapshots.

The first leader of an empty log writes who votes beside the record that begins its epoch, because the snapshot that
`strandline format` wrote is never sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from strandline.broker.kraft.metadata_snapshots import MetadataSnapshots
from strandline.codec.columns import encode_batch
from strandline.codec.messages.kraft_version_record import KRaftVersionRecord
from strandline.codec.messages.leader_change_message import LeaderChangeMessage, Voter
from strandline.codec.record_batch import (
    HEADER_SIZE,
    PREFIX,
    PREFIX_SIZE,
    BatchHeader,
    Buffer,
    check_batch,
    parse_header,
)
from strandline.errors import CorruptBatch, DiskFailed, PeerError
from strandline.log import truncation
from strandline.log.log_directory import LogDirectory
from strandline.log.partition_log import PartitionLog
from strandline.quorum.image.snapshot_format import KRAFT_VERSION, KRAFT_VOTERS, LEADER_CHANGE, control_record
from strandline.quorum.raft.raft_log import EpochEnd, SnapshotId
from strandline.quorum.raft.voters import VoterSet
from strandline.runtime.runtime import Runtime

if TYPE_CHECKING:
    from strandline.ids import TopicPartition


class QuorumLog:
    """Implements `quorum.raft_log.RaftLog`."""

    def __init__(
        self,
        name: TopicPartition,
        log: PartitionLog,
        snapshots: MetadataSnapshots,
        directory: LogDirectory,
        runtime: Runtime,
    ) -> None:
        self._name = name
        self._directory = directory
        self._runtime = runtime
        self.log = log
        self.snapshots = snapshots
        self.kraft_version = 0
        """1 where the voters, with their directories, stand in the log or are to be written there."""
        self.voters_to_write: VoterSet | None = None
        """Known from the bootstrap snapshot only, so far."""
        self.on_appended: Callable[[], object] = lambda: None
        """Called when the log has grown, for readers that wait."""
        self.disk_error: str | None = None
        """Why fetched batches could not be written, while the log itself is sound: the disk is full."""

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def flushed_end(self) -> int:
        return self.log.flushed_offset

    @property
    def last_epoch(self) -> int:
        latest = self.log.leader_epochs.latest
        if latest >= 0:
            return latest
        snapshot = self.snapshots.latest
        return 0 if snapshot is None else snapshot.epoch

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return self.snapshots.earliest

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshots.latest

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        log = self.log
        found, end_offset = log.leader_epochs.end_offset(epoch, log.log_end_offset)
        if end_offset < 0:
            return EpochEnd(self.last_epoch, log.log_end_offset)
        return EpochEnd(found, end_offset)

    def epoch_before(self, offset: int) -> int:
        """The epoch of the last entry before `offset`."""
        epoch = self.log.leader_epochs.epoch_of(offset - 1)
        if epoch < 0:
            at_start = [each for each in self.snapshots.ids if each.end_offset == offset]
            epoch = at_start[-1].epoch if at_start else 0
        return epoch

    # Appending

    def append(self, batch: bytearray, epoch: int) -> int:
        base_offset = self.log.append(batch, parse_header(batch), leader_epoch=epoch, now_ms=self._runtime.now_ms())
        self.on_appended()
        return base_offset

    def append_leader_change(self, message: LeaderChangeMessage, epoch: int) -> int:
        now_ms = self._runtime.now_ms()
        # In version 0, without directories: Kafka's tools read no other, whatever the version of the quorum.
        told = LeaderChangeMessage(
            leader_id=message.leader_id,
            voters=[Voter(voter_id=each.voter_id) for each in message.voters],
            granting_voters=[Voter(voter_id=each.voter_id) for each in message.granting_voters],
        )
        records = [control_record(LEADER_CHANGE, told, now_ms)]
        if self.voters_to_write is not None and self.kraft_version > 0:
            records.append(control_record(KRAFT_VERSION, KRaftVersionRecord(kraft_version=self.kraft_version), now_ms))
            records.append(control_record(KRAFT_VOTERS, self.voters_to_write.record(), now_ms))
        # Written again by the next leader if it is cut off: whether it stayed is known when it is committed.
        return self.append(bytearray(encode_batch(records, control=True)), epoch)

    def append_fetched(self, records: Buffer) -> None:
        view = memoryview(records or b"")
        now_ms = self._runtime.now_ms()
        # All are checked before the first is written: a damaged answer leaves nothing behind.
        batches = _batches_from(view, self.log.log_end_offset, self.last_epoch)
        try:
            for header, batch in batches:
                self.log.append_as_is(batch, header, now_ms=now_ms)
        except DiskFailed as error:
            if self.log.failure is not None:
                raise
            # The core asks again, after a while; those that were written are there.
            self.disk_error = str(error)
            raise PeerError(str(error)) from error
        if batches:
            self.on_appended()

    # Cutting

    def truncate_to(self, end_offset: int) -> None:
        self._directory.lower_recovery_point(self._name, end_offset)
        try:
            truncation.truncate_to(self.log, end_offset)
        except DiskFailed as error:
            # The core has begun a step that it cannot take back.
            self.log.fail(error)
            raise

    def restart_at(self, snapshot_id: SnapshotId) -> None:
        """The snapshot, which is on disk, stands for everything: the log begins and ends at its end."""
        self._directory.lower_recovery_point(self._name, 0)
        try:
            truncation.restart_at(self.log, snapshot_id.end_offset, self._runtime.now_ms())
        except DiskFailed as error:
            # The snapshot is in its place, and the Raft core does not ask for this again.
            self.log.fail(error)
            raise
        self.snapshots.remove_before(snapshot_id.end_offset)


def _batches_from(view: memoryview, end_offset: int, last_epoch: int) -> list[tuple[BatchHeader, memoryview]]:
    """The whole batches in `view` that follow `end_offset` without a gap; CorruptBatch if they do not."""
    batches = []
    at = 0
    while len(view) - at >= HEADER_SIZE:
        size = PREFIX.unpack_from(view, at)[1] + PREFIX_SIZE
        if size < HEADER_SIZE:
            raise CorruptBatch(f"a batch of {size} bytes")
        if len(view) - at < size:
            break
        batch = view[at : at + size]
        at += size
        header = BatchHeader._make(check_batch(batch))
        if header.last_offset < end_offset:
            continue
        if header.base_offset != end_offset:
            raise CorruptBatch(f"a batch at offset {header.base_offset} where {end_offset} comes next")
        if header.leader_epoch < last_epoch:
            raise CorruptBatch(f"epoch {header.leader_epoch} at offset {header.base_offset} after {last_epoch}")
        end_offset, last_epoch = header.last_offset + 1, header.leader_epoch
        batches.append((header, batch))
    return batches
