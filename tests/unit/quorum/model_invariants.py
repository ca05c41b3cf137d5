"""What must hold of the controller's decisions, whatever happens around it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from tests.unit.quorum.model_broker import Process, Where, in_sync_min, partitions_of

from strandline.codec.messages.alter_partition_request import AlterPartitionRequest
from strandline.codec.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from strandline.codec.messages.partition_change_record import PartitionChangeRecord
from strandline.codec.messages.partition_record import PartitionRecord
from strandline.codec.messages.register_broker_record import RegisterBrokerRecord
from strandline.codec.messages.remove_topic_record import RemoveTopicRecord
from strandline.codec.messages.topic_record import TopicRecord
from strandline.quorum.controller.controller import ProducerIdBlock
from strandline.quorum.controller.partition_changes import RECOVERING
from strandline.quorum.image.cluster_image import NO_LEADER, ClusterImage, PartitionImage, Topic, fold

if TYPE_CHECKING:
    from tests.unit.quorum.controller_model import ControllerModel


class Violation(AssertionError):
    pass


def hold(condition: object, name: str, **facts: object) -> None:
    if not condition:
        raise Violation(f"{name}: " + ", ".join(f"{key}={value}" for key, value in facts.items()))


def _moved(record: PartitionChangeRecord, before: PartitionImage) -> set[int]:
    """Return the brokers that say with this record that their replica is in another directory."""
    held = dict(zip(before.replicas, before.directories, strict=True))
    now = dict(zip(record.replicas or before.replicas, record.directories or (), strict=False))
    return {broker_id for broker_id, directory in now.items() if held.get(broker_id, directory) != directory}


class Invariants:
    def __init__(self, model: ControllerModel) -> None:
        self._model = model
        self.decided = ClusterImage()
        """Our own fold of everything decided, committed or not."""
        self.is_unclean_asked_for = False
        self.joining: set[int] = set()
        """Members of the in-sync set that a leader has just been granted: one of them may lead at once."""
        self.unclean_epochs: dict[Where, int] = {}
        """The leader epoch that the last unclean election began."""
        self._unclean: dict[int, PartitionChangeRecord] = {}
        self._asked: dict[int, PartitionChangeRecord] = {}
        """Changes that a leader asked for, and so knows of."""
        self._agreed: dict[Where, set[int]] = {}
        """Who holds all that was acknowledged: the members of the last set with which anything could be, but for those
        that have begun a new life. Of a set of one its leader must know: two that die do not do so at once."""
        self._held: dict[Where, set[int]] = {}
        """Who held all that was acknowledged when a partition lost its leader, but for those with another disk since
        then. If no replica is left, the next leader is for an administrator to elect."""
        self.elections = 0
        self.acknowledged = 0
        self._lives: dict[int, uuid.UUID] = {}
        self._topic_ids: set[Any] = set()
        self._epochs_told: dict[int, Process] = {}
        self._next_producer_id = 0
        self._epochs: dict[Where, tuple[int, int]] = {}

    # Decisions

    def on_activated(self) -> None:
        self.decided = fold(self._model.log)
        self._agreed, self._lives, self._held = {}, {}, {}
        image = ClusterImage()
        for record in self._model.log:
            self._note_held(record, image)
            image.apply(record)
            self._note_agreed(record, image)
        self._topic_ids = {topic.id for topic in self.decided.topics.values()}

    def on_decided(self, records: list[Any]) -> None:
        for record in records:
            if isinstance(record, TopicRecord):
                hold(record.topic_id not in self._topic_ids, "topic-ids-are-unique", topic=record.topic_id)
                self._topic_ids.add(record.topic_id)
            elif isinstance(record, RemoveTopicRecord):
                hold(record.topic_id in self._topic_ids, "only-topics-that-are-there", topic=record.topic_id)
                self._topic_ids.discard(record.topic_id)
            elif isinstance(record, PartitionChangeRecord | PartitionRecord):
                hold(record.topic_id in self._topic_ids, "only-topics-that-are-there", topic=record.topic_id)
                if isinstance(record, PartitionChangeRecord):
                    self._check_change(record)
            elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced < 0:
                self._check_unfencing(record)
            elif isinstance(record, RegisterBrokerRecord):
                self._check_registration(record)
            self._note_held(record, self.decided)
            self.decided.apply(record)
            self._note_agreed(record, self.decided)
            if isinstance(record, PartitionChangeRecord):
                self._check_eligible(record)

    def _check_eligible(self, record: PartitionChangeRecord) -> None:
        """Each decision about a partition works out its eligible leader replicas by the minimum of now.

        A change of the minimum alone leaves them, because the leader commits nothing until it has asked.
        """
        topic = self.decided.topic_by_id(record.topic_id)
        assert topic is not None
        partition = topic.partitions[record.partition_id]
        # A set of one that the controller made is not counted on before its leader has asked for it.
        minimum = max(in_sync_min(self.decided, topic, partition), min(2, len(partition.replicas)))
        is_below = len(partition.isr) < minimum
        hold(not partition.eligible_leader_replicas or is_below, "eligible-only-below-the-minimum", partition=partition)

    def _note_agreed(self, record: Any, image: ClusterImage) -> None:
        if isinstance(record, RegisterBrokerRecord):
            if record.broker_id not in self._lives or self._lives[record.broker_id] != record.incarnation_id:
                for holders in self._agreed.values():
                    holders.discard(record.broker_id)
            self._lives[record.broker_id] = record.incarnation_id
        if not isinstance(record, PartitionChangeRecord | PartitionRecord):
            return
        topic = image.topic_by_id(record.topic_id)
        assert topic is not None
        where, partition = (topic.id, record.partition_id), topic.partitions[record.partition_id]
        minimum = in_sync_min(image, topic, partition)
        isr = set(partition.isr)
        begins = isinstance(record, PartitionRecord) or id(record) in self._unclean
        is_known = len(isr) >= 2 or id(record) in self._asked
        if begins or (is_known and len(isr) >= minimum):
            self._agreed[where] = isr
        elif id(record) in self._asked:
            self._agreed[where] |= isr
        self._agreed[where] &= set(partition.replicas)

    def _note_held(self, record: Any, image: ClusterImage) -> None:
        """Follow who held everything when its partition lost its leader; `image` is from before the record."""
        if not isinstance(record, PartitionChangeRecord):
            return
        topic = image.topic_by_id(record.topic_id)
        assert topic is not None
        where, before = (topic.id, record.partition_id), topic.partitions[record.partition_id]
        if record.leader >= 0:
            self._held.pop(where, None)
        elif record.leader == NO_LEADER and before.leader >= 0:
            self._held[where] = {*before.isr, *(before.eligible_leader_replicas or ())}
        if where in self._held:
            self._held[where] -= _moved(record, before)
            self._held[where] &= set(record.replicas or before.replicas)

    def _check_change(self, record: PartitionChangeRecord) -> None:
        topic = self.decided.topic_by_id(record.topic_id)
        assert topic is not None
        before = topic.partitions[record.partition_id]
        self._check_directories(record, before)
        if self.joining:
            self._asked[id(record)] = record
        if record.leader < 0 or record.leader == before.leader:
            return
        self.elections += 1
        is_marked = record.leader_recovery_state == RECOVERING or before.leader_recovery_state == RECOVERING
        if record.leader in {*before.isr, *self.joining}:
            return
        if record.leader in (before.eligible_leader_replicas or []) and record.isr == [record.leader]:
            return
        self._unclean[id(record)] = record
        hold(is_marked, "unclean-elections-are-marked", before=before, leader=record.leader)
        is_allowed = (
            self.is_unclean_asked_for or topic.config_overrides.get("unclean.leader.election.enable", "false") == "true"
        )
        # No other replica is left, except those that are being registered again and may have lost something. A last
        # known leader has nothing either if the same record says that it has another disk.
        last_known = [each for each in before.last_known_elr or () if each not in _moved(record, before)]
        is_alone = last_known[:1] == [record.leader] and not before.isr
        for broker_id in before.eligible_leader_replicas or ():
            is_alone = is_alone and self._is_new_life(broker_id)
        hold(is_allowed or is_alone, "unclean-elections-are-allowed", before=before, leader=record.leader)
        held = self._held.get((topic.id, record.partition_id), set())
        hold(is_allowed or record.leader in held, "the-last-known-held-everything", before=before, held=held)
        holders = self._agreed[topic.id, record.partition_id]
        # A late registration of a former life may have put the elected one out; it lost nothing by that.
        others = sorted(holders - {record.leader})
        alive = [broker_id for broker_id in others if not self._is_new_life(broker_id)]
        hold(is_allowed or not alive, "unclean-only-when-nobody-has-it-all", before=before, alive=alive)

    def _check_directories(self, record: PartitionChangeRecord, before: PartitionImage) -> None:
        """A broker says only of directories that it has that its replicas are there."""
        held = dict(zip(before.replicas, before.directories, strict=True))
        for broker_id, directory in zip(record.replicas or before.replicas, record.directories or (), strict=False):
            if broker_id in held and held[broker_id] != directory:
                broker = self.decided.brokers.get(broker_id)
                is_there = broker is not None and directory in broker.registration.log_dirs
                hold(is_there, "directories-are-those-of-the-broker", broker=broker, directory=directory)

    def _is_new_life(self, broker_id: int) -> bool:
        process, broker = self._model.processes.get(broker_id), self.decided.brokers.get(broker_id)
        return process is None or broker is None or process.incarnation != broker.registration.incarnation_id

    def _check_unfencing(self, record: BrokerRegistrationChangeRecord) -> None:
        """Only the registered process itself, once it has read its registration, asks to be unfenced."""
        process = self._epochs_told.get(record.broker_epoch)
        hold(process is not None, "unfenced-by-its-own-heartbeat", epoch=record.broker_epoch)
        assert process is not None
        hold(process.offset >= record.broker_epoch, "unfenced-when-caught-up", epoch=record.broker_epoch)

    def _check_registration(self, record: RegisterBrokerRecord) -> None:
        before = self.decided.brokers.get(record.broker_id)
        if before is not None:
            hold(
                record.broker_epoch >= before.epoch,
                "broker-epochs-grow",
                before=before.epoch,
                after=record.broker_epoch,
            )
            if before.registration.incarnation_id != record.incarnation_id:
                hold(record.broker_epoch > before.epoch, "broker-epochs-are-unique", epoch=record.broker_epoch)

    def on_in_sync_taken(self, request: AlterPartitionRequest) -> None:
        topic, asked = request.topics[0], request.topics[0].partitions[0]
        partition = partitions_of(self.decided).get((topic.topic_id, asked.partition_index))
        hold(
            partition is not None
            and (partition.leader, partition.leader_epoch, partition.partition_epoch)
            == (request.broker_id, asked.leader_epoch, asked.partition_epoch),
            "proposals-are-about-the-present",
            asked=asked,
            partition=partition,
        )
        members = asked.new_isr_with_epochs
        self.joining = {member.broker_id for member in members}
        for member in members:
            broker = self.decided.brokers.get(member.broker_id)
            hold(
                broker is not None and broker.epoch == member.broker_epoch,
                "members-are-who-the-leader-knows",
                member=member,
            )

    # Commits

    def on_committed(self, record: Any, image: ClusterImage) -> None:
        if not isinstance(record, PartitionChangeRecord):
            return
        topic = image.topic_by_id(record.topic_id)
        assert topic is not None
        where = (topic.id, record.partition_id)
        if id(record) in self._unclean:
            self.unclean_epochs[where] = topic.partitions[record.partition_id].leader_epoch + 1
            # From here on the cluster's truth is what this leader has.
            kept = self._model.disks[record.leader].get(where, [])
            acknowledged = self._model.acknowledged.get(where, [])
            common = 0
            while common < min(len(kept), len(acknowledged)) and kept[common] == acknowledged[common]:
                common += 1
            self._model.acknowledged[where] = acknowledged[:common]

    def on_registered(self, process: Process, epoch: int) -> None:
        self._epochs_told[epoch] = process

    def on_block(self, block: ProducerIdBlock) -> None:
        hold(block.first >= self._next_producer_id, "producer-ids-are-given-once", first=block.first)
        self._next_producer_id = block.end

    # Records

    def on_roles(self, process: Process) -> None:
        """A leader that is really in force holds everything that was acknowledged."""
        current = partitions_of(self._model.image)
        for where, leading in process.leading.items():
            partition = current.get(where)
            if partition is not None and partition.leader_epoch == leading.leader_epoch:
                acknowledged = self._model.acknowledged.get(where, [])
                held = process.disk.get(where, [])
                hold(
                    held[: len(acknowledged)] == acknowledged,
                    "leaders-hold-what-was-acknowledged",
                    broker=process.id,
                    partition=partition,
                    held=len(held),
                    acknowledged=len(acknowledged),
                )

    def on_acknowledged(self, process: Process, where: Where, end: int) -> None:
        before = self._model.acknowledged.get(where, [])
        self.acknowledged += end - len(before)
        partition = partitions_of(self._model.image).get(where)
        if partition is not None:
            hold(
                process.disk[where][: len(before)] == before,
                "nothing-acknowledged-changes",
                broker=process.id,
                partition=partition,
            )

    # States

    def check(self) -> None:
        for image in (self.decided, self._model.image):
            for topic in image.topics.values():
                for index, partition in enumerate(topic.partitions):
                    self._check_partition(image, topic, index, partition)
        hold(self._model.controller._state.image == self.decided, "replay-gives-the-same-image")
        for where, partition in partitions_of(self._model.image).items():
            epochs = (partition.leader_epoch, partition.partition_epoch)
            before = self._epochs.get(where, (-1, -1))
            hold(before[0] <= epochs[0] and before[1] <= epochs[1], "epochs-grow", before=before, after=epochs)
            self._epochs[where] = epochs

    def _check_partition(self, image: ClusterImage, topic: Topic, index: int, partition: PartitionImage) -> None:
        facts: dict[str, object] = {"topic": topic.name, "index": index, "partition": partition}
        isr, elr = set(partition.isr), set(partition.eligible_leader_replicas or ())
        replicas = set(partition.replicas)
        hold(len(isr) == len(partition.isr) and len(replicas) == len(partition.replicas), "no-member-twice", **facts)
        hold(isr <= replicas, "in-sync-are-replicas", **facts)
        hold(elr <= replicas and not elr & isr, "eligible-are-replicas-and-not-in-sync", **facts)
        for broker_id in isr:
            broker = image.brokers.get(broker_id)
            hold(broker is not None and not broker.registration.fenced, "no-fenced-broker-is-in-sync", **facts)
        if partition.leader >= 0:
            hold(partition.leader in isr, "the-leader-is-in-sync", **facts)
        hold(
            set(partition.adding_replicas) | set(partition.removing_replicas) <= replicas,
            "reassignments-are-about-replicas",
            **facts,
        )

    def check_led(self) -> list[Where]:
        """Every partition is led, but for those that wait for an administrator; return these."""
        leaderless = [where for where, each in partitions_of(self._model.image).items() if each.leader < 0]
        for where in leaderless:
            partition = partitions_of(self._model.image)[where]
            held = self._held.get(where)
            hold(held == set() and not partition.isr, "every-partition-is-led", partition=partition, held=held)
        return leaderless

    def check_healed(self) -> None:
        state = self._model.controller._state
        for topic in self._model.image.topics.values():
            for index, partition in enumerate(topic.partitions):
                facts = {"topic": topic.name, "index": index, "partition": partition}
                hold(partition.leader >= 0, "every-partition-is-led", **facts)
                for broker_id in partition.isr:
                    hold(state.may_lead(partition, broker_id), "members-in-sync-may-lead", broker=broker_id, **facts)
                hold(set(partition.isr) == set(partition.replicas), "all-replicas-are-in-sync", **facts)
                hold(not partition.adding_replicas + partition.removing_replicas, "reassignments-end", **facts)
