"""Three nodes that log in to each other with SCRAM, from the users that `format --add-scram` wrote."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import strandline
from strandline.broker.formatting import format_directory, parse_add_scram
from strandline.config.node_config import BrokerConfig
from strandline.local.embedded_cluster import EmbeddedCluster
from strandline.local.local_cluster import lay_out
from strandline.log.disk import RealDisk

NODE, CLIENT = ("node", "between nodes"), ("alice", "of a client")
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="{}";'
SECURED = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
    "sasl.jaas.config": JAAS.format(*NODE),
    # Short, so that nodes authenticate again while the test runs.
    "connections.max.reauth.ms": "3000",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    root = tmp_path_factory.mktemp("sasl") / "cluster"
    format_with_users(root)
    with strandline.embedded(nodes=3, data=root, properties=SECURED) as running:
        yield running


def format_with_users(root: Path) -> None:
    layout = lay_out(root, 3, properties=SECURED)
    users = [
        parse_add_scram(f"SCRAM-SHA-512=[name={name},password={password}]", lambda: uuid.uuid4().bytes)
        for name, password in (NODE, CLIENT)
    ]
    for place in layout.places:
        shutil.rmtree(place.directory)
        format_directory(
            BrokerConfig.load("", SECURED | layout.properties(place)),
            layout.cluster_id,
            (),
            disk=RealDisk(),
            now_ms=int(time.time() * 1000),
            new_uuid=uuid.uuid4,
            credentials=users,
        )


def client(cluster: EmbeddedCluster, password: str = CLIENT[1]) -> dict[str, str]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": CLIENT[0],
        "sasl.password": password,
        "log_level": "0",
    }


def test_records_are_replicated_between_nodes_that_log_in(cluster: EmbeddedCluster) -> None:
    admin = AdminClient(client(cluster))
    admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result()
    producer = Producer(client(cluster) | {"acks": "all"})
    for number in range(30):
        producer.produce("orders", str(number).encode())
    assert producer.flush(60) == 0
    cluster.kill(1)
    cluster.start(1)
    for number in range(30, 60):
        producer.produce("orders", str(number).encode())
    assert producer.flush(60) == 0
    consumer = Consumer(client(cluster) | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    seen: set[bytes] = set()
    deadline = time.monotonic() + 120
    while len(seen) < 60 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.add(message.value() or b"")
    consumer.close()
    assert seen == {str(number).encode() for number in range(60)}


@pytest.mark.slow
def test_the_whole_cluster_starts_again(cluster: EmbeddedCluster) -> None:
    """No image is there before a leader is elected, and no leader before nodes have logged in to each other."""
    cluster.stop_all()
    cluster.start_all()
    assert set(AdminClient(client(cluster)).list_topics(timeout=60).brokers) == {1, 2, 3}


def test_a_wrong_password_and_no_password_are_refused(cluster: EmbeddedCluster) -> None:
    with pytest.raises(KafkaException):
        AdminClient(client(cluster, "wrong")).list_topics(timeout=2)
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": "0"}).list_topics(timeout=2)
