"""A cluster keeps groups and transactional ids in the partitions where it began to store them (decision 0055).

New clusters begin where Kafka would, clusters that Kafka made go on there, and those of older versions of Strandline
stay as they are.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.unit.log.manual_runtime import ManualRuntime

import strandline
from strandline.broker.kraft.metadata_quorum import MetadataQuorum, QuorumSettings
from strandline.codec.messages.feature_level_record import FeatureLevelRecord
from strandline.codec.messages.register_broker_record import BrokerFeature, RegisterBrokerRecord
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.log.disk import RealDisk
from strandline.log.flusher import Flusher
from strandline.log.log_directory import LogDirectory
from strandline.quorum.raft.state_files import MetaProperties, uuid_text

ID = "orders"
"""Java's hash of it is -1008770331."""
PARTITIONS = {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5"}
KAFKAS_PARTITION = 1
PARTITION_BEFORE = 2
LEVELS = {"metadata.version": 30, "eligible.leader.replicas.version": 1, "group.version": 1, "transaction.version": 2}
KAFKA_4 = {"metadata.version": (7, 30), "kraft.version": (0, 1), "transaction.version": (0, 2), "group.version": (0, 1)}
KAFKA_3 = {"metadata.version": (1, 21)}
OLDER_STRANDLINE = {"metadata.version": (7, 30), "group.version": (0, 1), "transaction.version": (0, 2)}


def write_directory(data: Path, features: dict[str, tuple[int, int]]) -> None:
    """Make the directory of a node whose broker registered with these features, and whose log has no hash level."""
    runtime, directory = ManualRuntime(), LogDirectory(data, disk=RealDisk(), open_files_max=10)
    meta = MetaProperties(uuid_text(uuid.uuid4()), 1, uuid.uuid4())
    directory.write_meta_properties(meta.text())
    settings = QuorumSettings(node_id=1, directory_id=meta.directory_id, cluster_id=meta.cluster_id)
    metadata = MetadataQuorum(directory, runtime, Flusher(runtime), settings=settings)
    metadata.start()
    metadata.write_now([FeatureLevelRecord(name=name, feature_level=level) for name, level in LEVELS.items()])
    registration = RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=uuid.uuid4(),
        broker_epoch=metadata.next_offset,
        features=[BrokerFeature(name, *levels) for name, levels in features.items()],
        log_dirs=[meta.directory_id],
        fenced=True,
    )
    metadata.write_now([registration])
    metadata.close()
    directory.close(clean=True)


def use(bootstrap: str) -> None:
    """Commit a position of the group, and begin with the transactional id."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": ID})
    consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
    consumer.close()
    Producer({"bootstrap.servers": bootstrap, "transactional.id": ID}).init_transactions(30)


def committed(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": ID})
    (place,) = consumer.committed([TopicPartition("t", 0)], timeout=30)
    consumer.close()
    return int(place.offset)


def written_partitions(data: Path, topic: str) -> list[int]:
    return sorted(int(log.parent.name[len(topic) + 1 :]) for log in data.glob(f"{topic}-*/*.log") if log.stat().st_size)


def seen(broker: EmbeddedBroker) -> tuple[list[int], list[int]]:
    return written_partitions(broker.data, "__consumer_offsets"), written_partitions(broker.data, "__transaction_state")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("features", "expected"),
    [
        pytest.param(None, KAFKAS_PARTITION, id="new"),
        pytest.param(KAFKA_4, KAFKAS_PARTITION, id="of Kafka 4"),
        pytest.param(KAFKA_3, KAFKAS_PARTITION, id="of Kafka 3"),
        pytest.param(OLDER_STRANDLINE, PARTITION_BEFORE, id="of an older Strandline"),
    ],
)
def test_ids_stay_where_the_cluster_began_to_store_them(
    tmp_path: Path, features: dict[str, tuple[int, int]] | None, expected: int
) -> None:
    data = tmp_path / "data"
    if features is not None:
        write_directory(data, features)
    with strandline.embedded(data=data, properties=PARTITIONS) as broker:
        broker.create_topic("t")
        use(broker.bootstrap)
        assert seen(broker) == ([expected], [expected])
        # The next process has nothing but the log, in which the broker is ours by now.
        broker.restart()
        assert committed(broker.bootstrap) == 7
        use(broker.bootstrap)
        assert seen(broker) == ([expected], [expected])
