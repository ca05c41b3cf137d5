"""What must hold after every event, whatever faults there were: looked at from outside, with eyes on all nodes at once.

| invariant | how it is seen |
|---|---|
| one leader per epoch | who acts as leader of the quorum or of a partition in an epoch is written down for ever |
| committed never changed | what was first shown below a high watermark is the truth that all others must equal |
| committed never lost | who begins to lead must hold the whole truth |
| nothing visible taken back | the same: the truth only grows, but for topics that allow unclean elections |
| replicas agree | no log has a hole, and each equals the truth below its own high watermark, after a restart again |
| decisions make sense | leaders are in sync, members are replicas, joining ones are not fenced, epochs only grow |
| no live broker is dead | a broker that a controller holds for dead is no process that runs, in that very life |
| votes survive | what a voter writes into `quorum-state` names one candidate per epoch, over all its lives |
| transactions | `stability` and `transaction_truth` |
| what is cleaned and forgotten | `partition_truth` and `record_truth` |
| images agree | two nodes that folded the metadata up to one offset hold equal images |

A violation raises `Violation` at the event that caused it. Each look costs a few comparisons per partition unless
something moved, so that looking after every event is affordable.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.simulator.truth.partition_truth import Truth, batches_between, check_compacted, data_offsets
from tests.simulator.truth.record_truth import RecordTruth
from tests.simulator.truth.stability import Stabilities

from strandline.codec.columns import decode_batch
from strandline.codec.internal_records import decode_metadata_record
from strandline.codec.messages.partition_change_record import PartitionChangeRecord
from strandline.codec.messages.partition_record import PartitionRecord
from strandline.codec.record_batch import parse_header
from strandline.errors import DamagedRecords
from strandline.quorum.controller.topic_names import SHARE_GROUP_STATE
from strandline.quorum.image.cluster_image import ClusterImage, PartitionImage
from strandline.quorum.raft.state_files import QuorumState
from strandline.tiers.records import METADATA_TOPIC
from strandline.tiers.wal.events import COMMIT_TOPIC

if TYPE_CHECKING:
    from tests.simulator.world.cluster import SimCluster, SimNode
    from tests.simulator.world.loop import Actor

    from strandline.broker.node import Node
    from strandline.log.partition_log import PartitionLog
    from strandline.partition.partition import Partition

IMAGES_EVERY_S: Final = 5.0
STALLS_EVERY_S: Final = 1.0
METADATA: Final = "metadata"
DECIDING: Final = (METADATA_TOPIC, COMMIT_TOPIC)
QUORUM_STATE: Final = "quorum-state"


class Violation(AssertionError):
    """Something that must always hold does not."""


@dataclass
class Seen:
    """What one life of one replica has been checked for."""

    checked_to: int = -1
    leading_epoch: int = -1
    unstable: int = -1
    """Where the first undecided transaction began."""
    was_leading: bool = False
    start: tuple[int, int] = (-1, -1)
    """Where the log begins, and where its local part does."""
    swaps: int = 0
    epoch: int = -1
    """Both at the last look. One event may appoint a leader, move its high watermark, and depose it."""


class Invariants:
    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self.metadata = Truth(METADATA)
        self.partitions: dict[tuple[bytes, int], Truth] = {}
        self.leader_changes = 0
        """New leaders of partitions and of the quorum."""
        self.swaps = 0
        """Cleaned segments that took the place of others."""
        self.deaths = 0
        """Brokers that were found dead before their session was over."""
        self.image = ClusterImage()
        """The cluster as the committed metadata says, folded here."""
        self.trimmed: set[str] = {SHARE_GROUP_STATE}
        """Topics with DeleteRecords requests: their records may go before their time. The share coordinator prunes."""
        self.on_committed: dict[str, Callable[[bytes], object]] = {}
        """By topic: told each batch that becomes part of the truth, once and in the order of the log."""
        self.on_start: Callable[[int, Truth, Partition], object] = lambda *_: None
        """Called with a replica whose log begins elsewhere than before, in its tier or here."""
        self.stabilities = Stabilities(lambda: cluster.loop.now)
        self._seen: dict[int, dict[Any, Seen]] = {}
        self._nodes: dict[int, SimNode] = {}
        self._metadata_seen: dict[int, tuple[int, int, bool]] = {}
        self._votes: dict[tuple[int, int], tuple[int, uuid.UUID]] = {}
        self._epochs: dict[int, int] = {}
        for sim_node in cluster.nodes.values():
            sim_node.disk.on_replaced = partial(self._on_replaced, sim_node.node_id)
        cluster.on_started = self._on_started
        cluster.on_ended = self._on_ended
        self._loop.after_event = self._look
        self._loop.call_in(IMAGES_EVERY_S, self._compare_images)
        self._loop.call_in(STALLS_EVERY_S, self._look_for_stalls)

    @property
    def now(self) -> float:
        return self._loop.now

    def _on_started(self, sim_node: SimNode) -> None:
        assert sim_node.runtime is not None
        assert sim_node.node is not None
        sim_node.node.membership.on_death = partial(self._on_death, sim_node.node_id)
        self._nodes[sim_node.runtime.actor.number] = sim_node
        self._seen[sim_node.runtime.actor.number] = {}

    def _on_ended(self, sim_node: SimNode) -> None:
        if sim_node.runtime is not None:
            number = sim_node.runtime.actor.number
            self._nodes.pop(number, None)
            self._seen.pop(number, None)
            self._metadata_seen.pop(number, None)

    def on_disk_replaced(self, sim_node: SimNode) -> None:
        """Expect nothing any more of what a node had written, and of what it had agreed to."""
        node_id = sim_node.node_id
        self._epochs.pop(node_id, None)
        self._votes = {key: vote for key, vote in self._votes.items() if key[0] != node_id}
        for truth in self.partitions.values():
            truth.starts.pop(node_id, None)

    def _on_death(self, node_id: int, broker_id: int, broker_epoch: int) -> None:
        """A controller holds a broker for dead. One that is stopping has closed its door for good."""
        self.deaths += 1
        dead = self._cluster.nodes[broker_id]
        if dead.node is not None and not dead.is_stopping and dead.node.lifecycle.broker_epoch == broker_epoch:
            raise Violation(
                f"node {node_id} holds broker {broker_id} of epoch {broker_epoch} for dead, and it lives, "
                f"at {self._loop.now:.6f}"
            )

    def _look(self, actor: Actor) -> None:
        sim_node = self._nodes.get(actor.number)
        if sim_node is None or sim_node.node is None:
            return
        node, seen = sim_node.node, self._seen[actor.number]
        self._look_at_metadata(sim_node.node_id, actor.number, node)
        for key, partitions in (*self._deciding(node), *node.topics.items()):
            if type(key) is bytes:
                for partition in partitions:
                    if partition is not None:
                        try:
                            self._look_at_partition(sim_node.node_id, seen, key, partition)
                        except DamagedRecords:
                            # Damaged bytes are never served. They are checked when a repair has replaced them.
                            continue

    def _deciding(self, node: Node) -> list[tuple[bytes, Sequence[Partition | None]]]:
        """Return the topics that are looked at first: what they say may count elsewhere within one event."""
        topics = [topic for name in DECIDING if (topic := self.image.topics.get(name)) is not None]
        return [(each.id.bytes, node.topics[each.id.bytes]) for each in topics if each.id.bytes in node.topics]

    # The metadata quorum

    def _on_replaced(self, node_id: int, path: Path, content: bytes) -> None:
        if path.name != QUORUM_STATE:
            return
        state = QuorumState.parse(content.decode())
        if state.leader_epoch < self._epochs.get(node_id, 0):
            self._fail(node_id, self.metadata, f"forgot epoch {self._epochs[node_id]}: {state}")
        self._epochs[node_id] = state.leader_epoch
        if state.voted_id >= 0:
            vote = state.voted_id, state.voted_directory_id
            earlier = self._votes.setdefault((node_id, state.leader_epoch), vote)
            if earlier != vote:
                self._fail(node_id, self.metadata, f"voted twice in epoch {state.leader_epoch}: {earlier}, then {vote}")

    def _look_at_metadata(self, node_id: int, number: int, node: Node) -> None:
        metadata = node.metadata
        # A node that cannot save that it lost the lead, because its disk is full, does not say so either. It can write
        # nothing, which is what counts.
        state = (metadata.high_watermark, metadata.epoch, metadata.is_leader and metadata.raft.is_leader)
        before = self._metadata_seen.get(number)
        if state == before:
            return
        self._metadata_seen[number] = state
        committed, epoch, is_leader = state
        if before is not None and (committed < before[0] or epoch < before[1]):
            self._fail(node_id, self.metadata, f"went back from (high watermark, epoch) {before[:2]} to {state[:2]}")
        begins = is_leader and (before is None or not before[2] or before[1] != epoch)
        if begins and self._lead(self.metadata, epoch, node_id):
            self._check(node_id, self.metadata, metadata.log, 0, self.metadata.end, may_grow=False)
        first = 0 if before is None else before[0]
        news = self._check(node_id, self.metadata, metadata.log, first, committed, may_grow=True)
        for batch in news:
            self._fold(batch)

    def _fold(self, batch: bytes) -> None:
        """News of the committed metadata: judge each decision by what was decided before."""
        columns = decode_batch(batch)
        if columns.is_control:
            return
        for record in columns:
            assert record.value is not None
            decoded = decode_metadata_record(record.value)
            before = self._partition_before(decoded)
            self.image.apply(decoded, record.offset)
            if isinstance(decoded, PartitionRecord | PartitionChangeRecord):
                topic = self.image.topic_by_id(decoded.topic_id)
                if topic is not None:
                    key = topic.id.bytes, decoded.partition_id
                    truth = self.partitions.setdefault(key, Truth(f"{topic.name}-{decoded.partition_id}"))
                    after = topic.partitions[decoded.partition_id]
                    truth.appointed.setdefault(after.leader_epoch, after.leader)
                    self._judge(f"{topic.name}-{decoded.partition_id}", before, topic.partitions[decoded.partition_id])

    def _partition_before(self, decoded: Any) -> PartitionImage | None:
        if not isinstance(decoded, PartitionChangeRecord):
            return None
        topic = self.image.topic_by_id(decoded.topic_id)
        return None if topic is None else topic.partitions[decoded.partition_id]

    def _judge(self, name: str, before: PartitionImage | None, after: PartitionImage) -> None:
        wrong = ""
        if not set(after.isr) <= set(after.replicas):
            wrong = "the in-sync set has members that are no replicas"
        elif after.leader >= 0 and after.leader not in after.isr:
            wrong = "the leader is not in sync"
        elif before is not None and after.leader_epoch < before.leader_epoch:
            wrong = "the leader epoch goes back"
        elif before is not None and after.partition_epoch <= before.partition_epoch:
            wrong = "the partition epoch does not grow"
        elif before is not None and -1 < after.leader != before.leader and after.leader_epoch <= before.leader_epoch:
            wrong = "a new leader without a new epoch"
        if not wrong and before is not None:
            for member in after.isr:
                if member not in before.isr and not self._may_join(member):
                    wrong = f"{member} comes in, and is fenced or not registered"
        if wrong:
            raise Violation(f"metadata of {name}: {wrong}: {before} -> {after} at {self._loop.now:.6f}")

    def _may_join(self, member: int) -> bool:
        broker = self.image.brokers.get(member)
        return broker is not None and broker.is_active

    def _compare_images(self) -> None:
        self._loop.call_in(IMAGES_EVERY_S, self._compare_images)
        images: dict[int, tuple[int, ClusterImage]] = {}
        for sim_node in self._cluster.up():
            assert sim_node.node is not None
            self._look_at_aborted(sim_node)
            image = sim_node.node.image
            known = images.setdefault(image.applied_offset, (sim_node.node_id, image))
            if known[1] is not image and known[1] != image:
                raise Violation(
                    f"nodes {known[0]} and {sim_node.node_id} have different images at offset {image.applied_offset}"
                )

    # Partitions

    def _look_at_partition(self, node_id: int, seen: dict[Any, Seen], topic_id: bytes, partition: Partition) -> None:
        checked = seen.get(partition)
        if checked is None:
            checked = seen[partition] = Seen()
        high_watermark = partition.high_watermark
        is_leader = partition.is_leader and partition.leader_id == node_id
        was_leading, checked.was_leading = checked.was_leading, is_leader
        is_in_store = partition.config.commits_in_store
        if is_in_store and not is_leader:
            # It holds nothing that counts, and serves nothing.
            return
        epoch, checked.epoch = checked.epoch, partition.leader_epoch
        unstable, checked.unstable = checked.unstable, partition.producers.first_unstable_offset
        log = partition.log
        start = partition.log_start_offset, log.log_start_offset
        if (
            high_watermark == checked.checked_to
            and unstable == checked.unstable
            and start == checked.start
            and log.swaps == checked.swaps
            and (not is_leader or checked.leading_epoch == partition.leader_epoch)
        ):
            return
        truth = self._truth_of(topic_id, partition)
        if log.failure is not None:
            return
        if start != checked.start:
            checked.start = start
            self._look_at_start(node_id, truth, partition, is_leader=is_leader)
        if log.swaps != checked.swaps:
            self.swaps += log.swaps - checked.swaps
            checked.swaps = log.swaps
            self._check(node_id, truth, log, 0, min(truth.end, high_watermark), may_grow=False)
        if is_leader and checked.leading_epoch != partition.leader_epoch:
            checked.leading_epoch = partition.leader_epoch
            is_newest = self._lead(truth, partition.leader_epoch, node_id)
            if is_newest and truth.may_lose and log.log_end_offset < truth.end:
                self._forget(truth, log.log_end_offset)
            if is_newest:
                self._check(node_id, truth, log, 0, truth.end, may_grow=False)
        first = max(0, min(checked.checked_to, high_watermark))
        checked.checked_to = high_watermark
        # The only copy of a partition needs no leader to tell it what is committed: all that it has flushed is.
        may_grow = not is_in_store and (
            is_leader
            or was_leading
            or self._is_only_copy(partition)
            or any(truth.appointed.get(each) == node_id for each in range(epoch + 1, partition.leader_epoch + 1))
        )
        end, known_end = high_watermark, truth.end
        if truth.may_lose and not (is_leader and partition.leader_epoch == max(truth.leaders)):
            # An unclean election took records away. Only the leader that it chose commits again: any other may still
            # remember its old high watermark.
            end, may_grow = min(end, truth.end), False
        news = self._check(node_id, truth, log, min(first, truth.end), end, may_grow=may_grow)
        on_committed = self.on_committed.get(partition.topic)
        for batch in news:
            self.stabilities.learn((topic_id, partition.index), truth.name, batch)
            if on_committed is not None:
                on_committed(batch)
        self._look_at_stability(node_id, truth, (topic_id, partition.index), partition)
        if truth.end > known_end and not is_leader and not truth.may_lose and truth.leaders:
            self._check_newest_leader(truth, partition, known_end)

    def _look_at_start(self, node_id: int, truth: Truth, partition: Partition, *, is_leader: bool) -> None:
        runtime = self._cluster.nodes[node_id].runtime
        assert runtime is not None
        is_asked_for = partition.topic in self.trimmed
        wrong = truth.wrong_with_start(node_id, partition, runtime.now_ms(), is_asked_for=is_asked_for)
        if not wrong and is_leader and partition.log_start_offset > partition.high_watermark:
            wrong = f"begins at {partition.log_start_offset}, above its high watermark {partition.high_watermark}"
        if wrong:
            self._fail(node_id, truth, wrong)
        self.on_start(node_id, truth, partition)

    def _look_at_stability(self, node_id: int, truth: Truth, key: tuple[bytes, int], partition: Partition) -> None:
        stability, records = self.stabilities.partitions.get(key), truth.records
        if stability is None or truth.may_lose:
            return

        def due_where_cleaned() -> int:
            assert records is not None
            end = partition.high_watermark
            held = batches_between(partition.log, min(partition.log.log_start_offset, end), end)
            return records.last_stable_offset(held, end)

        wrong = stability.wrong_with(partition, None if records is None else due_where_cleaned)
        if wrong:
            self._fail(node_id, truth, wrong)

    def _look_at_aborted(self, sim_node: SimNode) -> None:
        assert sim_node.node is not None
        for (topic_id, index), stability in self.stabilities.partitions.items():
            found = sim_node.node.topics.get(topic_id)
            partition = found[index] if found is not None and index < len(found) else None
            if partition is not None and partition.config.commits_in_store and not partition.is_leader:
                continue
            if partition is not None and partition.log.failure is None:
                truth = self._truth_of(topic_id, partition)
                held: set[int] | None = None
                if truth.records is not None:
                    # Readers need not know that records were aborted which a cleaner has removed.
                    end = partition.last_stable_offset
                    held = data_offsets(batches_between(partition.log, partition.log.log_start_offset, end))
                wrong = stability.wrong_with_aborted(partition, held)
                if wrong:
                    self._fail(sim_node.node_id, truth, wrong)

    def _look_for_stalls(self) -> None:
        self._loop.call_in(STALLS_EVERY_S, self._look_for_stalls)
        stalled = self.stabilities.stalled()
        if stalled:
            raise Violation(f"{stalled} at {self._loop.now:.6f}")

    def _truth_of(self, topic_id: bytes, partition: Partition) -> Truth:
        truth = self.partitions.setdefault((topic_id, partition.index), Truth(f"{partition.topic}-{partition.index}"))
        truth.may_lose = truth.may_lose or partition.config.unclean_leader_election_enable
        if truth.records is None and partition.config.compact and not truth.may_lose:
            truth.records = RecordTruth(truth.name, delete_retention_s=partition.config.delete_retention_ms / 1000)
        return truth

    def _check_newest_leader(self, truth: Truth, partition: Partition, first: int) -> None:
        """Check that the present leader holds something new that an old leader showed."""
        leader_id = truth.leaders[max(truth.leaders)]
        node = self._cluster.nodes[leader_id].node
        newest = None if node is None else node.partition(partition.topic, partition.index)
        if newest is not None and newest.topic_id == partition.topic_id and newest.log.failure is None:
            self._check(leader_id, truth, newest.log, first, truth.end, may_grow=False)

    def _is_only_copy(self, partition: Partition) -> bool:
        topic = self.image.topic_by_id(partition.topic_id)
        return topic is not None and len(topic.partitions[partition.index].replicas) == 1

    def _lead(self, truth: Truth, epoch: int, node_id: int) -> bool:
        """Note who leads an epoch; whether it is the newest: one that begins late, after a pause or with a slow disk,
        lacks what its successors committed, and cannot commit against them."""
        known = truth.leaders.setdefault(epoch, node_id)
        if known != node_id:
            self._fail(node_id, truth, f"leads epoch {epoch}, as node {known} did")
        self.leader_changes += 1
        return epoch == max(truth.leaders)

    def _forget(self, truth: Truth, end: int) -> None:
        """Forget what an unclean election took away, because the topic allows that."""
        truth.batches = {base: batch for base, batch in truth.batches.items() if batch[0] < end}
        truth.end = min(truth.end, end)

    def _check(
        self, node_id: int, truth: Truth, log: PartitionLog, first: int, end: int, *, may_grow: bool
    ) -> list[bytes]:
        """Compare a log with the truth from `first` to `end`; the batches that are news, which become part of it."""
        if end > log.log_end_offset:
            self._fail(
                node_id, truth, f"everything below {end} was committed, and its log ends at {log.log_end_offset}"
            )
        if end > truth.end and not may_grow:
            self._fail(node_id, truth, f"shows offsets up to {end} while no leader has shown more than {truth.end}")
        if truth.records is not None:
            return self._check_compacted(node_id, truth, truth.records, log, first, end, may_grow=may_grow)
        news: list[bytes] = []
        due = max(first, log.log_start_offset)
        for batch in batches_between(log, due, end):
            header = parse_header(batch)
            base, identity = header.base_offset, (header.last_offset, header.leader_epoch, header.crc)
            if base > due:
                self._fail(node_id, truth, f"has a hole from offset {due} to {base}")
            due = identity[0] + 1
            known = truth.batches.get(base)
            if known is None:
                if base < min(truth.start, truth.end):
                    # It was committed and deleted in one event, as the share coordinator does it.
                    continue
                if base < truth.end and not truth.may_lose:
                    self._fail(node_id, truth, f"has a batch at {base} {identity} where others have none")
                truth.learn(batch, identity, self._loop.now)
                news.append(batch)
            elif known != identity:
                if not truth.may_lose:
                    self._fail(node_id, truth, f"has {identity} at offset {base} where {known} was committed")
                truth.batches[base] = identity
        if may_grow:
            truth.end = max(truth.end, end)
        if due < end and not truth.may_lose:
            self._fail(node_id, truth, f"has nothing from offset {due} to {end}")
        return news

    def _check_compacted(
        self,
        node_id: int,
        truth: Truth,
        records: RecordTruth,
        log: PartitionLog,
        first: int,
        end: int,
        *,
        may_grow: bool,
    ) -> list[bytes]:
        first = max(first, log.log_start_offset)
        wrong, news = check_compacted(truth, records, log, first, end, self._loop.now)
        if wrong:
            self._fail(node_id, truth, wrong)
        if may_grow:
            truth.end = max(truth.end, end)
        return news

    def _fail(self, node_id: int, truth: Truth, what: str) -> None:
        raise Violation(f"node {node_id}, {truth.name}: {what} (at {self._loop.now:.6f} s)")
