"""A broker of the controller's model: a process with a view of the metadata, and logs that are lists of records.

It leads and follows as its view says, asks for in-sync sets, and acknowledges what every member of the largest set that
could be in force has fetched; nothing while a replica outside is eligible, until it has asked for that set. Nothing of
the real broker is in it: it says what the controller may rely on.
"""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

from strandline.codec.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from strandline.codec.messages.alter_partition_response import PartitionData as Altered
from strandline.codec.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest, DirectoryData
from strandline.codec.messages.assign_replicas_to_dirs_request import PartitionData as PartitionAssigned
from strandline.codec.messages.assign_replicas_to_dirs_request import TopicData as TopicAssigned
from strandline.codec.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from strandline.codec.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from strandline.quorum.controller.features import SUPPORTED_FEATURES
from strandline.quorum.image.cluster_image import RESOURCE_BROKER, ClusterImage, PartitionImage, Topic

CLUSTER_ID = "model"

Where = tuple[uuid.UUID, int]
"""A partition: topic id, index."""
Log = list[tuple[int, int]]
"""Records as (leader epoch, number)."""


@dataclasses.dataclass
class Leading:
    """What a leader remembers of one partition in one leader epoch."""

    leader_epoch: int
    partition_epoch: int
    isr: list[int]
    elr: list[int] = dataclasses.field(default_factory=list)
    pending_isr: list[int] | None = None
    proposal: AlterPartitionRequest | None = None
    fetched: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """Follower -> (end of its log, its broker epoch)."""

    def settle(self, partition_epoch: int, isr: list[int], elr: list[int]) -> None:
        self.partition_epoch, self.isr, self.pending_isr, self.proposal = partition_epoch, isr, None, None
        self.elr = elr

    @property
    def maximal_isr(self) -> set[int]:
        return {*self.isr, *(self.pending_isr or ())}


class Process:
    """One life of a broker. `disk` outlives it."""

    def __init__(
        self,
        broker_id: int,
        incarnation: uuid.UUID,
        disk: dict[Where, Log],
        *,
        directory: uuid.UUID,
        rack: str,
        previous_epoch: int,
    ) -> None:
        self.id = broker_id
        self.incarnation = incarnation
        self.disk = disk
        self.directory = directory
        self.rack = rack
        self.previous_epoch = previous_epoch
        self.epoch = -1
        self.offset = -1
        self.image = ClusterImage()
        self.leading: dict[Where, Leading] = {}
        self.wants_shut_down = False
        self.is_stopped = False

    # What it says of itself

    def registration(self) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=self.id,
            cluster_id=CLUSTER_ID,
            incarnation_id=self.incarnation,
            listeners=[Listener("PLAINTEXT", f"host-{self.id}", 9092)],
            features=[Feature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
            rack=self.rack,
            log_dirs=[self.directory],
            previous_broker_epoch=self.previous_epoch,
        )

    def heartbeat(self) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self.id,
            broker_epoch=self.epoch,
            current_metadata_offset=self.offset,
            want_shut_down=self.wants_shut_down,
        )

    def assignment(self) -> AssignReplicasToDirsRequest | None:
        """Say where the replicas are that the metadata has in another directory."""
        topics: dict[uuid.UUID, TopicAssigned] = {}
        for (topic_id, index), partition in partitions_of(self.image).items():
            held = dict(zip(partition.replicas, partition.directories, strict=True))
            if self.acts and held.get(self.id, self.directory) != self.directory:
                topics.setdefault(topic_id, TopicAssigned(topic_id)).partitions.append(PartitionAssigned(index))
        directory = DirectoryData(self.directory, list(topics.values()))
        return AssignReplicasToDirsRequest(self.id, self.epoch, [directory]) if topics else None

    # The metadata

    def apply(self, log: list[Any], up_to: int) -> None:
        for offset in range(self.offset + 1, min(up_to + 1, len(log))):
            self.image.apply(log[offset], offset)
            self.offset = offset
        self._follow_roles()

    @property
    def acts(self) -> bool:
        """A broker does nothing before it has seen its own registration: what came before is about a former life."""
        return 0 <= self.epoch <= self.offset

    def _follow_roles(self) -> None:
        if not self.acts:
            return
        led: dict[Where, Leading] = {}
        for where, partition in partitions_of(self.image).items():
            if partition.leader != self.id:
                continue
            leading = self.leading.get(where)
            if leading is None or leading.leader_epoch != partition.leader_epoch:
                elr = partition.eligible_leader_replicas or []
                leading = Leading(partition.leader_epoch, partition.partition_epoch, partition.isr, elr)
                # A new leader begins its epoch with what it has.
                self.disk.setdefault(where, [])
            elif partition.partition_epoch > leading.partition_epoch:
                leading.settle(partition.partition_epoch, partition.isr, partition.eligible_leader_replicas or [])
            elif partition.partition_epoch == leading.partition_epoch:
                leading.elr = partition.eligible_leader_replicas or []
            led[where] = leading
        self.leading = led

    # Leading

    def append(self, where: Where, number: int) -> None:
        self.disk[where].append((self.leading[where].leader_epoch, number))

    def end_held_by_all(self, where: Where) -> int:
        """How much of the log every member of the largest possible in-sync set has fetched."""
        leading = self.leading[where]
        others = leading.maximal_isr - {self.id}
        ends = [leading.fetched.get(other, (0, -1))[0] for other in others]
        return min([len(self.disk[where]), *ends])

    def in_sync_proposal(self, where: Where, wanted: list[int], *, is_recovered: bool = True) -> AlterPartitionRequest:
        leading = self.leading[where]
        leading.pending_isr = list(wanted)
        epochs = {self.id: self.epoch} | {other: epoch for other, (_, epoch) in leading.fetched.items()}
        leading.proposal = AlterPartitionRequest(
            broker_id=self.id,
            broker_epoch=self.epoch,
            topics=[
                TopicData(
                    where[0],
                    [
                        PartitionData(
                            partition_index=where[1],
                            leader_epoch=leading.leader_epoch,
                            new_isr_with_epochs=[BrokerState(each, epochs.get(each, -2)) for each in wanted],
                            partition_epoch=leading.partition_epoch,
                        )
                    ],
                )
            ],
        )
        return leading.proposal

    def on_altered(self, where: Where, request: AlterPartitionRequest, answer: Altered) -> None:
        leading = self.leading.get(where)
        if leading is None or leading.leader_epoch != answer.leader_epoch:
            return
        # A refused proposal stays in force for the high watermark: an earlier copy of it may have been taken.
        if answer.error_code == 0 and answer.partition_epoch > leading.partition_epoch:
            # The answer does not say who is eligible, and may be decided by a minimum that is not known here yet.
            left_out = [each for each in dict.fromkeys([*leading.elr, *leading.isr]) if each not in answer.isr]
            leading.settle(answer.partition_epoch, answer.isr, left_out)
        elif answer.error_code == 0 and leading.proposal is request:
            leading.proposal = leading.pending_isr = None

    # Following

    def fetch(self, where: Where, leader: Process, count: int) -> None:
        """Make this log a prefix of the leader's, `count` records longer, and let the leader know how far it goes."""
        leading = leader.leading[where]
        theirs, ours = leader.disk[where], self.disk.setdefault(where, [])
        common = 0
        while common < min(len(theirs), len(ours)) and theirs[common] == ours[common]:
            common += 1
        self.disk[where] = theirs[: max(common, min(len(theirs), common + count))]
        leading.fetched[self.id] = (len(self.disk[where]), self.epoch)


def in_sync_min(image: ClusterImage, topic: Topic, partition: PartitionImage) -> int:
    """Return `min.insync.replicas` as `image` has it: the topic's own, or the cluster's default."""
    default = image.configs.get((RESOURCE_BROKER, ""), {}).get("min.insync.replicas", "1")
    return min(int(topic.config_overrides.get("min.insync.replicas", default)), len(partition.replicas))


def partitions_of(image: ClusterImage) -> dict[Where, PartitionImage]:
    return {
        (topic.id, index): partition
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
    }
