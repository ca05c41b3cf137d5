"""The parts of an image of the cluster: a partition, a topic, a broker, and the numbers that stand for something."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any, Final

from strandline.codec.messages.partition_record import PartitionRecord
from strandline.codec.messages.register_broker_record import RegisterBrokerRecord
from strandline.ids import ZERO_UUID

# ConfigResource of the protocol: what a setting belongs to.
RESOURCE_TOPIC: Final = 2
RESOURCE_BROKER: Final = 4
RESOURCE_BROKER_LOGGER: Final = 8
RESOURCE_CLIENT_METRICS: Final = 16
RESOURCE_GROUP: Final = 32

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2

METADATA_VERSION: Final = "metadata.version"
ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
SHARE_VERSION: Final = "share.version"
COORDINATOR_HASH: Final = "strandline.coordinator.hash"
"""Level 1: groups and transactional ids are in the partitions that Kafka computes (decision 0055)."""

# Directory ids that name no directory: in use but unknown, to be chosen by the broker, lost.
MIGRATING_DIRECTORY: Final = ZERO_UUID
UNASSIGNED_DIRECTORY: Final = uuid.UUID(int=1)
LOST_DIRECTORY: Final = uuid.UUID(int=2)
RESERVED_DIRECTORY_IDS: Final = 100


@dataclasses.dataclass(slots=True)
class PartitionImage:
    """One partition as the controller last decided it. `replicas` is empty only while its record is still to come.

    Never changed in place: a change makes a new one. So images share them, and who holds one holds one state.
    """

    replicas: list[int] = dataclasses.field(default_factory=list)
    isr: list[int] = dataclasses.field(default_factory=list)
    leader: int = NO_LEADER
    leader_epoch: int = -1
    partition_epoch: int = -1
    leader_recovery_state: int = 0
    removing_replicas: list[int] = dataclasses.field(default_factory=list)
    adding_replicas: list[int] = dataclasses.field(default_factory=list)
    directories: list[uuid.UUID] = dataclasses.field(default_factory=list)
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None


def partition_image(record: PartitionRecord) -> PartitionImage:
    """Return a new partition as its record has it, with lists of its own: no later change reaches into the record."""
    return PartitionImage(
        list(record.replicas),
        list(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        record.leader_recovery_state,
        list(record.removing_replicas),
        list(record.adding_replicas),
        list(record.directories),
        own_list(record.eligible_leader_replicas),
        own_list(record.last_known_elr),
    )


def own_list(value: Any) -> Any:
    """Return a copy if `value` is a list, so that no later change of the image reaches back into a record."""
    return list(value) if isinstance(value, list) else value


@dataclasses.dataclass(slots=True)
class PartitionRun:
    """New partitions of one topic from `first` on, in place of as many records: an image links them all at once."""

    topic_id: uuid.UUID
    first: int
    partitions: list[PartitionImage]

    @property
    def end(self) -> int:
        return self.first + len(self.partitions)


@dataclasses.dataclass(slots=True)
class Topic:
    """A topic; `partitions[i]` is partition i. `version` grows with every change of the topic, its partitions or
    its configs, so whatever was computed from it may be kept for as long as the version stands."""

    name: str
    id: uuid.UUID
    partitions: list[PartitionImage] = dataclasses.field(default_factory=list)
    config_overrides: dict[str, str] = dataclasses.field(default_factory=dict)
    version: int = dataclasses.field(default=0, compare=False)
    answers: dict[Any, Any] = dataclasses.field(default_factory=dict, repr=False, compare=False)
    """Encoded responses about this topic, cached by handlers while the version is the same."""

    def changed(self, version: int) -> None:
        self.version = version
        self.answers.clear()


@dataclasses.dataclass(slots=True)
class BrokerImage:
    """A registered broker: its registration record with every later change folded in."""

    registration: RegisterBrokerRecord

    @property
    def id(self) -> int:
        return self.registration.broker_id

    @property
    def epoch(self) -> int:
        return self.registration.broker_epoch

    @property
    def rack(self) -> str | None:
        return self.registration.rack

    @property
    def host(self) -> str:
        """Where clients find it: brokers of one host fail together."""
        endpoints = self.registration.end_points
        return endpoints[0].host if endpoints else ""

    def endpoint(self, listener_name: str) -> tuple[str, int] | None:
        """Return the address that this listener is reached at; None if the broker has no such listener."""
        for each in self.registration.end_points:
            if each.name == listener_name:
                return each.host, each.port
        return None

    @property
    def first_address(self) -> tuple[str, int] | None:
        endpoints = self.registration.end_points
        return (endpoints[0].host, endpoints[0].port) if endpoints else None

    def address(self, listener_name: str | None, security_protocol: int) -> tuple[str, int] | None:
        """Return the address for other brokers: that of the named listener, or the first one of this protocol."""
        endpoints = self.registration.end_points
        chosen = [each for each in endpoints if each.name == listener_name] or [
            each for each in endpoints if each.security_protocol == security_protocol
        ]
        return (chosen[0].host, chosen[0].port) if chosen else None

    @property
    def is_active(self) -> bool:
        """Whether partitions may be led here: neither fenced nor about to leave."""
        return not self.registration.fenced and not self.registration.in_controlled_shutdown
