"""The cluster as of one offset of the metadata log: a fold over its records.

`apply` takes the records in log order; the same records always give the same image, on every node. `records` writes
the image down as the shortest such list (a snapshot). Look-ups on the data path are plain dictionary reads.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from strandline.codec.messages.abort_transaction_record import AbortTransactionRecord
from strandline.codec.messages.begin_transaction_record import BeginTransactionRecord
from strandline.codec.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from strandline.codec.messages.clear_elr_record import ClearElrRecord
from strandline.codec.messages.config_record import ConfigRecord
from strandline.codec.messages.end_transaction_record import EndTransactionRecord
from strandline.codec.messages.feature_level_record import FeatureLevelRecord
from strandline.codec.messages.fence_broker_record import FenceBrokerRecord
from strandline.codec.messages.no_op_record import NoOpRecord
from strandline.codec.messages.partition_change_record import PartitionChangeRecord
from strandline.codec.messages.partition_record import PartitionRecord
from strandline.codec.messages.producer_ids_record import ProducerIdsRecord
from strandline.codec.messages.register_broker_record import RegisterBrokerRecord
from strandline.codec.messages.remove_topic_record import RemoveTopicRecord
from strandline.codec.messages.topic_record import TopicRecord
from strandline.codec.messages.unfence_broker_record import UnfenceBrokerRecord
from strandline.codec.messages.unregister_broker_record import UnregisterBrokerRecord
from strandline.errors import CorruptLog
from strandline.quorum.image.kept_records import KeptRecords
from strandline.quorum.image.parts import (
    COORDINATOR_HASH,
    ELIGIBLE_LEADER_REPLICAS,
    GROUP_VERSION,
    LOST_DIRECTORY,
    METADATA_VERSION,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    NO_LEADER_CHANGE,
    RESERVED_DIRECTORY_IDS,
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    SHARE_VERSION,
    TRANSACTION_VERSION,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    PartitionImage,
    PartitionRun,
    Topic,
    own_list,
    partition_image,
)

__all__ = [
    "BrokerImage",
    "COORDINATOR_HASH",
    "ClusterImage",
    "ELIGIBLE_LEADER_REPLICAS",
    "GROUP_VERSION",
    "LOST_DIRECTORY",
    "METADATA_VERSION",
    "MIGRATING_DIRECTORY",
    "NO_LEADER",
    "NO_LEADER_CHANGE",
    "PARTITIONS_PER_TOPIC_MAX",
    "PartitionImage",
    "RESERVED_DIRECTORY_IDS",
    "RESOURCE_BROKER",
    "RESOURCE_BROKER_LOGGER",
    "RESOURCE_CLIENT_METRICS",
    "RESOURCE_GROUP",
    "RESOURCE_TOPIC",
    "SHARE_VERSION",
    "TRANSACTION_VERSION",
    "Topic",
    "UNASSIGNED_DIRECTORY",
    "fold",
]

PARTITIONS_PER_TOPIC_MAX: Final = 100_000
"""A record that names a partition beyond this is damage, not a topic."""


@dataclasses.dataclass(slots=True)
class ClusterImage:
    """Brokers, topics, configs, features and the next producer id, with fast look-ups."""

    brokers: dict[int, BrokerImage] = dataclasses.field(default_factory=dict)
    topics: dict[str, Topic] = dataclasses.field(default_factory=dict)
    features: dict[str, int] = dataclasses.field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = dataclasses.field(default_factory=dict)
    """Overrides of every resource, (type, name) -> settings; a topic's dictionary is also its `config_overrides`."""
    next_producer_id: int = 0
    producer_ids_broker: tuple[int, int] = (-1, -1)
    """Id and epoch of the broker that took the last block."""
    kept: KeptRecords = dataclasses.field(default_factory=KeptRecords)
    """Access rules, quotas, credentials, and records that mean nothing here, which no snapshot drops."""

    version: int = dataclasses.field(default=0, compare=False)
    """Grows with every change, and so orders what was computed from the image."""
    brokers_version: int = dataclasses.field(default=0, compare=False)
    applied_offset: int = dataclasses.field(default=-1, compare=False)
    """Offset in the metadata log of the last record that was applied."""

    _topics_by_id: dict[uuid.UUID, Topic] = dataclasses.field(default_factory=dict, repr=False, compare=False)
    _transaction: list[Any] | None = dataclasses.field(default=None, repr=False, compare=False)

    def topic_by_name(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._topics_by_id.get(topic_id)

    def partition(self, name: str, index: int) -> PartitionImage | None:
        topic = self.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def copy(self) -> ClusterImage:
        """Return a copy, with an unfinished transaction as well. Partitions are shared."""
        copied = dataclasses.replace(
            self,
            brokers={
                broker_id: BrokerImage(dataclasses.replace(broker.registration))
                for broker_id, broker in self.brokers.items()
            },
            topics={},
            features=dict(self.features),
            configs={resource: dict(overrides) for resource, overrides in self.configs.items()},
            kept=self.kept.copy(),
            _topics_by_id={},
            _transaction=None if self._transaction is None else list(self._transaction),
        )
        for name, topic in self.topics.items():
            overrides = copied.configs.get((RESOURCE_TOPIC, name), {})
            own = Topic(name, topic.id, list(topic.partitions), overrides, topic.version)
            copied.topics[name] = copied._topics_by_id[topic.id] = own
        return copied

    @property
    def is_in_transaction(self) -> bool:
        """Whether records are held back because their transaction has not ended."""
        return self._transaction is not None

    @property
    def coordinator_hash(self) -> int:
        """The level of the hash that finds the partition of a group or a transactional id; it never changes."""
        return self.features.get(COORDINATOR_HASH, 0)

    def active_brokers(self) -> list[BrokerImage]:
        return [broker for broker in self.brokers.values() if broker.is_active]

    def apply(self, record: Any, offset: int | None = None) -> None:
        """Fold one record of the metadata log in. CorruptLog if it contradicts what came before."""
        if offset is not None:
            self.applied_offset = offset
        if type(record) in _TRANSACTION_MARKERS:
            self._mark_transaction(record)
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            self._fold(record)

    def _fold(self, record: Any) -> None:
        self.version += 1
        fold = _FOLDS.get(type(record))
        if fold is not None:
            fold(self, record)
        else:
            self.kept.apply(record)

    def _mark_transaction(self, record: Any) -> None:
        # Records between begin and end count all or not at all: a controller may fail over in between.
        if isinstance(record, BeginTransactionRecord):
            self._transaction = []
            return
        held, self._transaction = self._transaction, None
        if isinstance(record, EndTransactionRecord):
            for each in held or ():
                self._fold(each)

    # Brokers.

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerImage(dataclasses.replace(record))
        self.brokers_version = self.version

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._registration(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]

    def _fence_broker(self, record: FenceBrokerRecord) -> None:
        self._registration(record.id, record.epoch).fenced = True

    def _unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self._registration(record.id, record.epoch).fenced = False

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        registration = self._registration(record.broker_id, record.broker_epoch)
        if record.fenced:
            registration.fenced = record.fenced > 0
        if record.in_controlled_shutdown:
            registration.in_controlled_shutdown = record.in_controlled_shutdown > 0
        if record.log_dirs:
            registration.log_dirs = record.log_dirs
        if record.cordoned_log_dirs is not None:
            registration.cordoned_log_dirs = record.cordoned_log_dirs

    def _registration(self, broker_id: int, broker_epoch: int) -> RegisterBrokerRecord:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            raise CorruptLog(f"metadata log: a record names broker {broker_id} epoch {broker_epoch}, never registered")
        self.brokers_version = self.version
        return broker.registration

    # Topics.

    def _add_topic(self, record: TopicRecord) -> None:
        if record.name in self.topics:
            raise CorruptLog(f"metadata log: topic {record.name} is created twice")
        overrides = self.configs.get((RESOURCE_TOPIC, record.name), {})
        topic = Topic(record.name, record.topic_id, config_overrides=overrides, version=self.version)
        self.topics[record.name] = self._topics_by_id[record.topic_id] = topic

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._topic(record.topic_id)
        del self.topics[topic.name], self._topics_by_id[record.topic_id]
        self.configs.pop((RESOURCE_TOPIC, topic.name), None)

    def _set_partition(self, record: PartitionRecord) -> None:
        self._set_partitions(PartitionRun(record.topic_id, record.partition_id, [partition_image(record)]))

    def _set_partitions(self, run: PartitionRun) -> None:
        topic = self._topic(run.topic_id)
        if not 0 <= run.first <= run.end <= PARTITIONS_PER_TOPIC_MAX:
            raise CorruptLog(f"metadata log: partition {run.first} of topic {topic.name} is out of range")
        # Kafka's snapshots list the partitions of a topic in no particular order.
        while len(topic.partitions) < run.first:
            topic.partitions.append(PartitionImage())
        topic.partitions[run.first : run.end] = run.partitions

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        if not 0 <= record.partition_id < len(topic.partitions):
            raise CorruptLog(f"metadata log: partition {record.partition_id} of topic {topic.name} changes, yet is not")
        old = topic.partitions[record.partition_id]
        is_led_anew = record.leader != NO_LEADER_CHANGE
        topic.partitions[record.partition_id] = PartitionImage(
            old.replicas if record.replicas is None else list(record.replicas),
            old.isr if record.isr is None else list(record.isr),
            record.leader if is_led_anew else old.leader,
            old.leader_epoch + is_led_anew,
            old.partition_epoch + 1,
            old.leader_recovery_state if record.leader_recovery_state < 0 else record.leader_recovery_state,
            old.removing_replicas if record.removing_replicas is None else list(record.removing_replicas),
            old.adding_replicas if record.adding_replicas is None else list(record.adding_replicas),
            old.directories if record.directories is None else list(record.directories),
            old.eligible_leader_replicas
            if record.eligible_leader_replicas is None
            else list(record.eligible_leader_replicas),
            old.last_known_elr if record.last_known_elr is None else list(record.last_known_elr),
        )

    def _clear_elr(self, record: ClearElrRecord) -> None:
        # An empty name means every topic.
        named = self.topics.get(record.topic_name)
        if record.topic_name and named is None:
            raise CorruptLog(f"metadata log: a record names topic {record.topic_name}, which is not there")
        for topic in self.topics.values() if named is None else [named]:
            topic.changed(self.version)
            topic.partitions[:] = [
                dataclasses.replace(each, eligible_leader_replicas=None, last_known_elr=None)
                if each.eligible_leader_replicas or each.last_known_elr
                else each
                for each in topic.partitions
            ]

    def _topic(self, topic_id: uuid.UUID) -> Topic:
        topic = self._topics_by_id.get(topic_id)
        if topic is None:
            raise CorruptLog(f"metadata log: a record names topic id {topic_id}, which is not there")
        topic.changed(self.version)
        return topic

    # Configs, features, producer ids.

    def _set_config(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        overrides = self.configs.setdefault(resource, {})
        if record.value is None:
            overrides.pop(record.name, None)
        else:
            overrides[record.name] = record.value
        topic = self.topics.get(record.resource_name) if record.resource_type == RESOURCE_TOPIC else None
        if topic is not None:
            topic.config_overrides = overrides
            topic.changed(self.version)
        if not overrides:
            del self.configs[resource]

    def _set_feature(self, record: FeatureLevelRecord) -> None:
        # Level 0 means that the feature is off; metadata.version has no level 0.
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _set_producer_ids(self, record: ProducerIdsRecord) -> None:
        if record.next_producer_id < self.next_producer_id:
            # An id below was already given away; to give it twice would merge two producers' sequences.
            raise CorruptLog(f"metadata log: next producer id {record.next_producer_id} after {self.next_producer_id}")
        self.next_producer_id = record.next_producer_id
        self.producer_ids_broker = (record.broker_id, record.broker_epoch)

    def records(self) -> list[Any]:
        """Return this image as records, in Kafka's order of a snapshot; folding them gives an equal image."""
        return list(self.iter_records())

    def iter_records(self) -> Iterator[Any]:
        """Yield the same, one by one; the image must not change meanwhile."""
        yield from self._feature_records()
        for broker_id in sorted(self.brokers):
            yield dataclasses.replace(self.brokers[broker_id].registration)
        for name in sorted(self.topics):
            yield from _topic_records(self.topics[name])
        for (kind, resource), overrides in sorted(self.configs.items()):
            for name, value in sorted(overrides.items()):
                yield ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
        yield from self._producer_id_records()
        yield from self.kept.records()

    def _feature_records(self) -> Iterator[Any]:
        # metadata.version first: it says how to read everything after it.
        for name in sorted(self.features, key=lambda name: (name != METADATA_VERSION, name)):
            yield FeatureLevelRecord(name=name, feature_level=self.features[name])

    def _producer_id_records(self) -> Iterator[Any]:
        if self.next_producer_id > 0:
            broker_id, broker_epoch = self.producer_ids_broker
            yield ProducerIdsRecord(
                broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=self.next_producer_id
            )


def fold(records: Iterable[Any]) -> ClusterImage:
    """Return the image of a list of records."""
    image = ClusterImage()
    for record in records:
        image.apply(record)
    return image


def _topic_records(topic: Topic) -> Iterator[Any]:
    yield TopicRecord(name=topic.name, topic_id=topic.id)
    for index, partition in enumerate(topic.partitions):
        values = {name: own_list(getattr(partition, name)) for name in PartitionImage.__dataclass_fields__}
        yield PartitionRecord(partition_id=index, topic_id=topic.id, **values)


_TRANSACTION_MARKERS = {BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord}
_FOLDS: dict[type, Callable[[ClusterImage, Any], None]] = {
    RegisterBrokerRecord: ClusterImage._register_broker,
    UnregisterBrokerRecord: ClusterImage._unregister_broker,
    FenceBrokerRecord: ClusterImage._fence_broker,
    UnfenceBrokerRecord: ClusterImage._unfence_broker,
    BrokerRegistrationChangeRecord: ClusterImage._change_broker,
    TopicRecord: ClusterImage._add_topic,
    RemoveTopicRecord: ClusterImage._remove_topic,
    PartitionRecord: ClusterImage._set_partition,
    PartitionRun: ClusterImage._set_partitions,
    PartitionChangeRecord: ClusterImage._change_partition,
    ClearElrRecord: ClusterImage._clear_elr,
    ConfigRecord: ClusterImage._set_config,
    FeatureLevelRecord: ClusterImage._set_feature,
    ProducerIdsRecord: ClusterImage._set_producer_ids,
    NoOpRecord: lambda image, record: None,
}
