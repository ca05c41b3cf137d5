"""The image: each record's effect, snapshots that fold back to the same image, and records that cannot be true."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.codec.internal_records import decode_metadata_record, encode_metadata_record
from strandline.codec.messages.abort_transaction_record import AbortTransactionRecord
from strandline.codec.messages.access_control_entry_record import AccessControlEntryRecord
from strandline.codec.messages.begin_transaction_record import BeginTransactionRecord
from strandline.codec.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from strandline.codec.messages.clear_elr_record import ClearElrRecord
from strandline.codec.messages.client_quota_record import ClientQuotaRecord, EntityData
from strandline.codec.messages.config_record import ConfigRecord
from strandline.codec.messages.end_transaction_record import EndTransactionRecord
from strandline.codec.messages.feature_level_record import FeatureLevelRecord
from strandline.codec.messages.fence_broker_record import FenceBrokerRecord
from strandline.codec.messages.no_op_record import NoOpRecord
from strandline.codec.messages.partition_change_record import PartitionChangeRecord
from strandline.codec.messages.partition_record import PartitionRecord
from strandline.codec.messages.producer_ids_record import ProducerIdsRecord
from strandline.codec.messages.register_broker_record import BrokerEndpoint, RegisterBrokerRecord
from strandline.codec.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from strandline.codec.messages.remove_topic_record import RemoveTopicRecord
from strandline.codec.messages.topic_record import TopicRecord
from strandline.codec.messages.unfence_broker_record import UnfenceBrokerRecord
from strandline.codec.messages.unregister_broker_record import UnregisterBrokerRecord
from strandline.errors import CorruptLog
from strandline.quorum.image.cluster_image import RESOURCE_BROKER, RESOURCE_TOPIC, ClusterImage, fold

A, B = uuid.UUID(int=0xA), uuid.UUID(int=0xB)


def partition(topic_id: uuid.UUID = A, index: int = 0, **more: Any) -> PartitionRecord:
    fields = {"replicas": [1, 2], "isr": [1, 2], "leader": 1, "leader_epoch": 0, "partition_epoch": 0, **more}
    return PartitionRecord(topic_id=topic_id, partition_id=index, **fields)


def broker(broker_id: int = 1, epoch: int = 10, **more: Any) -> RegisterBrokerRecord:
    endpoint = BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)
    return RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, end_points=[endpoint], **more)


def test_a_topic_is_found_by_name_and_by_id_until_it_is_removed() -> None:
    image = fold([TopicRecord(name="t", topic_id=A), partition(index=0), partition(index=1)])
    topic = image.topic_by_name("t")
    assert topic is image.topic_by_id(A)
    assert topic is not None
    assert len(topic.partitions) == 2
    assert image.partition("t", 1) is topic.partitions[1]
    assert image.partition("t", 2) is None
    assert image.partition("t", -1) is None
    image.apply(RemoveTopicRecord(topic_id=A))
    assert image == ClusterImage()
    assert image.topic_by_id(A) is None


def test_partitions_may_come_in_any_order() -> None:
    records = [TopicRecord(name="t", topic_id=A), partition(index=0), partition(index=1, leader=2), partition(index=2)]
    shuffled = [records[0], records[3], records[1], records[2]]
    assert fold(shuffled) == fold(records)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"leader": 2}, {"leader": 2, "leader_epoch": 1}),
        ({"leader": 1}, {"leader_epoch": 1}),
        ({"leader": -1}, {"leader": -1, "leader_epoch": 1}),
        ({"isr": [1]}, {"isr": [1]}),
        ({"replicas": [1, 2, 3], "adding_replicas": [3]}, {"replicas": [1, 2, 3], "adding_replicas": [3]}),
        ({"leader_recovery_state": 1}, {"leader_recovery_state": 1}),
        ({"eligible_leader_replicas": [2]}, {"eligible_leader_replicas": [2]}),
        ({"directories": [A, B]}, {"directories": [A, B]}),
        ({}, {}),
    ],
)
def test_a_change_touches_what_it_names_and_always_the_partition_epoch(
    change: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = partition()
    image = fold(
        [TopicRecord(name="t", topic_id=A), before, PartitionChangeRecord(topic_id=A, partition_id=0, **change)]
    )
    after = fold([TopicRecord(name="t", topic_id=A), partition(**{"partition_epoch": 1, **expected})])
    assert image == after
    assert before == partition(), "the record itself is not touched"


def test_brokers_come_are_fenced_and_go() -> None:
    image = fold([broker(fenced=True)])
    assert not image.brokers[1].is_active
    image.apply(UnfenceBrokerRecord(id=1, epoch=10))
    assert image.brokers[1].is_active
    image.apply(FenceBrokerRecord(id=1, epoch=10))
    assert not image.active_brokers()
    image.apply(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=10, fenced=-1))
    assert [each.id for each in image.active_brokers()] == [1]
    image.apply(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=10, in_controlled_shutdown=1))
    assert not image.brokers[1].registration.fenced
    assert not image.brokers[1].is_active
    image.apply(broker(epoch=20, fenced=False))
    assert image.brokers[1].is_active
    image.apply(UnregisterBrokerRecord(broker_id=1, broker_epoch=20))
    assert not image.brokers


def test_configs_reach_the_topic_and_go_with_null() -> None:
    def config(name: str, value: str | None, kind: int = RESOURCE_TOPIC, resource: str = "t") -> ConfigRecord:
        return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)

    image = fold([TopicRecord(name="t", topic_id=A), config("a", "1"), config("b", "2")])
    topic = image.topics["t"]
    assert topic.config_overrides == {"a": "1", "b": "2"}
    image.apply(config("a", None))
    assert topic.config_overrides == {"b": "2"}
    image.apply(config("b", None))
    assert topic.config_overrides == {}
    assert image == fold([TopicRecord(name="t", topic_id=A)])
    image.apply(config("c", "3"))
    assert topic.config_overrides == {"c": "3"}
    image.apply(config("x", "1", RESOURCE_BROKER, ""))
    assert image.configs[RESOURCE_BROKER, ""] == {"x": "1"}


def test_versions_tell_what_may_be_kept() -> None:
    image = fold([TopicRecord(name="a", topic_id=A), partition(A), TopicRecord(name="b", topic_id=B), partition(B)])
    a, b = image.topics["a"], image.topics["b"]
    versions = image.version, a.version, b.version, image.brokers_version
    a.answers["kept"] = b.answers["kept"] = b"answer"
    image.apply(PartitionChangeRecord(topic_id=A, partition_id=0, leader=2))
    assert image.version > versions[0]
    assert a.version > versions[1]
    assert (b.version, image.brokers_version) == versions[2:]
    assert (a.answers, b.answers) == ({}, {"kept": b"answer"})
    image.apply(broker())
    assert image.brokers_version > versions[3]


def test_records_between_begin_and_end_count_all_or_not_at_all() -> None:
    topic = TopicRecord(name="t", topic_id=A)
    image = ClusterImage()
    for record in (BeginTransactionRecord(name="x"), topic):
        image.apply(record)
    assert not image.topics
    image.apply(EndTransactionRecord())
    assert image == fold([topic])
    for record in (BeginTransactionRecord(), TopicRecord(name="u", topic_id=B), AbortTransactionRecord()):
        image.apply(record)
    assert image == fold([topic])


def test_what_is_not_ours_is_kept() -> None:
    rule = AccessControlEntryRecord(id=A, resource_name="t", principal="User:a")
    entity = [EntityData(entity_type="user", entity_name="a")]
    quota = ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1.0)
    default = ClientQuotaRecord(entity=[EntityData(entity_type="user", entity_name=None)], key=quota.key, value=2.0)
    image = fold([rule, quota, default, NoOpRecord()])
    assert len(image.records()) == 3
    assert fold(image.records()) == image
    image.apply(ClientQuotaRecord(entity=entity, key=quota.key, remove=True))
    image.apply(RemoveAccessControlEntryRecord(id=A))
    assert image.records() == [default]


def test_features_and_level_zero() -> None:
    image = fold(
        [FeatureLevelRecord(name="x", feature_level=1), FeatureLevelRecord(name="metadata.version", feature_level=30)]
    )
    assert image.features == {"x": 1, "metadata.version": 30}
    assert image.records()[0] == FeatureLevelRecord(name="metadata.version", feature_level=30)
    image.apply(FeatureLevelRecord(name="x", feature_level=0))
    assert image.features == {"metadata.version": 30}


def test_clear_elr() -> None:
    topic = [TopicRecord(name="t", topic_id=A), partition(eligible_leader_replicas=[2], last_known_elr=[2])]
    expected = fold([topic[0], partition()])
    assert fold([*topic, ClearElrRecord(topic_name="t")]) == expected
    assert fold([*topic, ClearElrRecord(topic_name="")]) == expected


@pytest.mark.parametrize(
    "records",
    [
        [partition()],
        [RemoveTopicRecord(topic_id=A)],
        [TopicRecord(name="t", topic_id=A), TopicRecord(name="t", topic_id=B)],
        [TopicRecord(name="t", topic_id=A), PartitionChangeRecord(topic_id=A, partition_id=0, leader=1)],
        [TopicRecord(name="t", topic_id=A), partition(index=-1)],
        [TopicRecord(name="t", topic_id=A), partition(index=2**31 - 1)],
        [FenceBrokerRecord(id=1, epoch=1)],
        [broker(epoch=10), UnfenceBrokerRecord(id=1, epoch=9)],
        [ProducerIdsRecord(next_producer_id=2000), ProducerIdsRecord(next_producer_id=1000)],
    ],
)
def test_records_that_contradict_the_log_stop_the_fold(records: list[Any]) -> None:
    with pytest.raises(CorruptLog, match="metadata log"):
        fold(records)


@st.composite
def histories(draw: st.DrawFn) -> list[Any]:
    """A history that a controller could have written: topics, partitions, brokers, configs, features, ids."""
    records: list[Any] = []
    topics: dict[uuid.UUID, tuple[str, int]] = {}
    brokers: dict[int, int] = {}
    next_id = 0
    replicas = st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True)
    for step in range(draw(st.integers(0, 25))):
        kind = draw(st.sampled_from(["topic", "change", "remove", "broker", "fence", "config", "feature", "ids"]))
        if kind == "topic":
            name, topic_id, count = f"t{step}", uuid.UUID(int=step + 1), draw(st.integers(1, 3))
            topics[topic_id] = (name, count)
            records.append(TopicRecord(name=name, topic_id=topic_id))
            records += [partition(topic_id, index, replicas=draw(replicas)) for index in range(count)]
        elif kind in ("change", "remove", "config") and topics:
            topic_id = draw(st.sampled_from(sorted(topics)))
            name, count = topics[topic_id]
            if kind == "remove":
                records.append(RemoveTopicRecord(topic_id=topic_id))
                del topics[topic_id]
            elif kind == "config":
                value = draw(st.none() | st.text(max_size=5))
                records.append(
                    ConfigRecord(resource_type=2, resource_name=name, name=draw(st.sampled_from("ab")), value=value)
                )
            else:
                change = PartitionChangeRecord(
                    topic_id=topic_id,
                    partition_id=draw(st.integers(0, count - 1)),
                    leader=draw(st.integers(-2, 4)),
                    isr=draw(st.none() | replicas),
                    eligible_leader_replicas=draw(st.none() | replicas),
                )
                records.append(change)
        elif kind == "broker":
            broker_id = draw(st.integers(1, 4))
            brokers[broker_id] = step
            records.append(broker(broker_id, step, rack=draw(st.none() | st.text(max_size=3)), log_dirs=[A]))
        elif kind == "fence" and brokers:
            broker_id = draw(st.sampled_from(sorted(brokers)))
            record_class = draw(st.sampled_from([FenceBrokerRecord, UnfenceBrokerRecord]))
            records.append(record_class(id=broker_id, epoch=brokers[broker_id]))
        elif kind == "feature":
            records.append(FeatureLevelRecord(name=draw(st.sampled_from("xy")), feature_level=draw(st.integers(0, 3))))
        elif kind == "ids":
            next_id += draw(st.integers(1, 5000))
            records.append(ProducerIdsRecord(broker_id=1, broker_epoch=step, next_producer_id=next_id))
    return records


@pytest.mark.lengthy("many examples, each of them costly")
@given(history=histories())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_snapshot_folds_back_to_the_same_image_over_the_wire(history: list[Any]) -> None:
    image = fold(history)
    snapshot = [decode_metadata_record(encode_metadata_record(record)) for record in image.records()]
    assert fold(snapshot) == image
    assert fold(snapshot).records() == image.records()
