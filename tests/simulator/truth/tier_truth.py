"""What must hold between the logs, the metadata of tiered topics, and the objects in the bucket of a run.

| invariant | how it is seen |
|---|---|
| only what is committed is copied | each batch of a readable segment is the one that was committed at its offset |
| compaction takes nothing that counts | of compacted topics, as `record_truth` judges a log |
| no readable segment without objects | at the record that makes it readable, at each deletion, and in the end |
| no record is nowhere | what lies between log start and local start of a replica is in readable segments |
| no orphans after quiet | in the end each object belongs to a readable segment |
| copying goes on | in the end each leader has copied what is sealed |

The metadata is what was committed on `__remote_log_metadata`, folded here: no node is asked for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from tests.simulator.truth.invariants import Violation

from strandline.codec.columns import decode_batch
from strandline.codec.record_batch import PREFIX_SIZE, parse_header
from strandline.tiers.metadata_fold import MetadataFold
from strandline.tiers.objects import key_of
from strandline.tiers.records import (
    METADATA_TOPIC,
    MetadataEvent,
    RemoteSegment,
    SegmentChanged,
    TieredPartition,
    decode_event,
)
from strandline.tiers.segment_states import SegmentState
from strandline.tiers.store.promises import MARKER_KEY, PROBE_FOLDER
from strandline.tiers.tier_checkpoint import checkpoint_prefix
from strandline.tiers.wal.events import COMMIT_TOPIC
from strandline.tiers.wal.wal_objects import wal_prefix

if TYPE_CHECKING:
    from tests.simulator.truth.invariants import Invariants
    from tests.simulator.truth.object_truth import ObjectTruth
    from tests.simulator.truth.partition_truth import Truth
    from tests.simulator.truth.record_truth import RecordTruth
    from tests.simulator.world.cluster import SimCluster

    from strandline.partition.partition import Partition

ENDINGS: Final = (".log", ".idx")
LOOK_EVERY_S: Final = 1.0


class TierTruth:
    def __init__(self, cluster: SimCluster, invariants: Invariants) -> None:
        self._cluster = cluster
        self._bucket = cluster.bucket
        self._partitions = invariants.partitions
        self.fold = MetadataFold(cluster.cluster_id)
        self.copied = 0
        """Segments that became readable."""
        self.compacted = 0
        """Those of them that replace others."""
        self.readable: dict[str, str] = {}
        """The objects that readers may ask for, with what they are."""
        self._left: tuple[float, list[str]] = (-LOOK_EVERY_S, [])
        self.given_up = 0
        """Copies that were begun and deleted."""
        invariants.on_committed[METADATA_TOPIC] = self._learn
        invariants.on_start = self.look_at_local_start
        self._bucket.on_deleted.append(self._on_deleted)
        self.objects: ObjectTruth | None = None
        """The truth of object topics, which have segments, too."""

    def watch(self) -> None:
        """Check all replicas from time to time, because segments also go from the store."""
        self._cluster.loop.call_in(LOOK_EVERY_S, self.watch)
        self._look_at_all()
        if self.objects is not None:
            self.objects.check_all()

    def _fail(self, words: str) -> NoReturn:
        raise Violation(f"{words} (at {self._cluster.loop.now:.6f} s)")

    # The metadata

    def _learn(self, batch: bytes) -> None:
        for record in decode_batch(batch):
            event = None if record.value is None else decode_event(record.value)
            if event is None:
                continue
            before = self._segment_of(event)
            self.fold.apply(event)
            if isinstance(event, SegmentChanged) and before is not None:
                if event.state == SegmentState.COPY_FINISHED and before.state == SegmentState.COPY_STARTED:
                    self.copied += 1
                    self._check_copy(event.partition, before)
                elif event.state == SegmentState.DELETE_STARTED:
                    self.given_up += before.state == SegmentState.COPY_STARTED
                    for key in self._keys(event.partition, before):
                        self.readable.pop(key, None)

    def _segment_of(self, event: MetadataEvent) -> RemoteSegment | None:
        state = self.fold.states.get(event.partition.key)
        return state.by_id.get(event.segment_id) if state is not None and isinstance(event, SegmentChanged) else None

    def _keys(self, place: TieredPartition, segment: RemoteSegment) -> list[str]:
        base = key_of(self._cluster.cluster_id, place, segment)
        return [base + end for end in ENDINGS]

    def _check_copy(self, place: TieredPartition, segment: RemoteSegment) -> None:
        what = f"segment {segment.start_offset} to {segment.end_offset} of {place}"
        self.readable.update(dict.fromkeys(self._keys(place, segment), what))
        missing = [key for key in self._keys(place, segment) if key not in self._bucket.objects]
        if missing:
            self._fail(f"{what} is readable, and the bucket lacks {missing}")
        data = self._bucket.objects[self._keys(place, segment)[0]]
        if len(data) != segment.size_bytes:
            self._fail(f"{what} has {len(data)} bytes in the bucket, and {segment.size_bytes} by its record")
        truth = self._partitions.get((place.topic_id.bytes, place.partition))
        if truth is None or truth.may_lose:
            return
        if truth.records is not None:
            self._check_compacted(what, truth.records, truth, segment, data)
            return
        at, due = 0, segment.start_offset
        while at < len(data):
            size = int.from_bytes(data[at + 8 : at + 12], "big") + PREFIX_SIZE
            header = parse_header(data[at : at + size])
            identity = header.last_offset, header.leader_epoch, header.crc
            known = truth.batches.get(header.base_offset)
            if header.base_offset != due or known != identity:
                self._fail(f"{what} has {identity} at offset {header.base_offset} where {known} was committed")
            at, due = at + size, header.last_offset + 1
        if due != segment.end_offset + 1:
            self._fail(f"{what} ends at {due - 1} in the bucket")

    def _check_compacted(
        self, what: str, records: RecordTruth, truth: Truth, segment: RemoteSegment, data: bytes
    ) -> None:
        """Check a segment of a compacted topic: it may lack what newer records have made useless."""
        found, at, due = [], 0, segment.start_offset
        while at < len(data):
            size = int.from_bytes(data[at + 8 : at + 12], "big") + PREFIX_SIZE
            batch = data[at : at + size]
            header = parse_header(batch)
            known = truth.batches.get(header.base_offset)
            if known is None or header.base_offset < due:
                self._fail(f"{what} has a batch at {header.base_offset}, where none was committed")
            wrong = (
                ""
                if known == (header.last_offset, header.leader_epoch, header.crc)
                else records.wrong_with_batch(batch)
            )
            if wrong:
                self._fail(f"{what} {wrong}")
            found.append(batch)
            at, due = at + size, header.last_offset + 1
        wrong = records.wrong_with_rest(found, segment.start_offset, segment.end_offset + 1, self._cluster.loop.now)
        if wrong:
            self._fail(f"{what} {wrong}")
        self.compacted += segment.compaction is not None and segment.compaction.is_passed

    def _on_deleted(self, keys: Sequence[str]) -> None:
        for key in keys:
            if key in self.readable:
                self._fail(f"{key} is deleted, and {self.readable[key]} is readable")

    # The logs

    def look_at_local_start(self, node_id: int, truth: Truth, partition: Partition) -> None:
        """Check that the store has what this replica does not hold any more."""
        if self.objects is not None and partition.topic == COMMIT_TOPIC:
            self.objects.look_at_start(node_id, partition)
        if partition.tier is None or partition.config.commits_in_store:
            # What a leader of an object topic holds does not count: `ObjectTruth.check_coverage` looks elsewhere.
            return
        start, local = max(partition.log_start_offset, truth.start), partition.log.log_start_offset
        if local <= start:
            return
        known = self.fold.states.get((partition.topic_id, partition.index))
        covered = start if known is None else known.covered_up_to(start, partition.log.leader_epochs)
        if covered < local:
            epochs = partition.log.leader_epochs
            self._fail(
                f"node {node_id}, {truth.name}: the records from {covered} to {local} are neither in its log nor in "
                f"the store; epochs {list(zip(epochs.epochs, epochs.start_offsets, strict=True))}"
            )

    def _look_at_all(self) -> None:
        for sim_node in self._cluster.up():
            assert sim_node.node is not None
            tiering = sim_node.node.late.tiering.loaded
            for partition in () if tiering is None else tiering.tiers:
                truth = self._partitions.get((partition.topic_id.bytes, partition.index))
                if truth is not None and partition.log.failure is None:
                    self.look_at_local_start(sim_node.node_id, truth, partition)

    # In the end

    def left(self) -> list[str]:
        """Return what is in the bucket without need, what lacks there, and what is not copied yet; in words."""
        now = self._cluster.loop.now
        if now < self._left[0] + LOOK_EVERY_S:
            return self._left[1]
        readable, objects = self.readable, self._bucket.objects
        found = [f"{readable[key]} lacks {key}" for key in readable if key not in objects]
        found += [f"orphan {key}" for key in objects if key not in readable and not self._may_stay(key)]
        found += [] if self.objects is None else self.objects.left()
        for sim_node in self._cluster.up():
            assert sim_node.node is not None
            tiering = sim_node.node.late.tiering.loaded
            if tiering is not None:
                leading = [each for each in tiering.tiers.values() if each.partition.is_leader]
                found += [f"{each.place} has not read its metadata" for each in leading if not each.is_caught_up]
                found += [f"{each.place}: its tasks fail" for each in leading if each.failures]
                lag = tiering.copy_lag()[0]
                found += [f"{sim_node.name} has {lag} segments to copy"] if lag else []
        self._left = now, found
        return found

    def _may_stay(self, key: str) -> bool:
        # What a writer that was gone has left is found by `storage check` alone. Probes and checkpoints are few.
        cluster_id = self._cluster.cluster_id
        is_few = key.startswith((f"{PROBE_FOLDER}/", f"{checkpoint_prefix(cluster_id)}/", f"{cluster_id}/commits/"))
        if key.startswith(f"{wal_prefix(cluster_id)}/"):
            # The sweeper finds what any writer has left.
            return self.objects is not None and self.objects.is_needed(key)
        return key == MARKER_KEY or is_few or key in self._bucket.late
