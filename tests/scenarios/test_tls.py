"""A cluster whose every connection is of TLS: clients, brokers and controllers, each with a certificate."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.authority import Authority
from tests.scenarios.nodes_by_hand import NodeByHand, nodes_by_hand

from strandline.local.free_ports import free_port
from strandline.local.node_process import BrokerFailed
from strandline.quorum.raft.state_files import uuid_text

WAIT_S_MAX = 90.0
TOPIC = "orders"


@contextmanager
def cluster(root: Path, authority: Authority, count: int) -> Iterator[list[NodeByHand]]:
    with nodes_by_hand(root, count) as nodes:
        configure(nodes, authority)
        for node in nodes:
            node.spawn()
        for node in nodes:
            node.wait_ready(timeout_s=WAIT_S_MAX)
        yield nodes


def configure(nodes: list[NodeByHand], authority: Authority, **more: str) -> None:
    cluster_id = uuid_text(uuid.uuid4())
    voters = ",".join(f"{node.node_id}@{node.controller_address}" for node in nodes)
    for node in nodes:
        settings = {
            "listeners": f"SSL://127.0.0.1:{node.port},CONTROLLER://{node.controller_address}",
            "listener.security.protocol.map": "CONTROLLER:SSL",
            "security.inter.broker.protocol": "SSL",
            "controller.quorum.voters": voters,
            **authority.settings(authority.issue(f"node-{node.node_id}"), ssl_client_auth="required", **more),
        }
        node.configure("broker,controller", settings)
        formatted = node.format(cluster_id)
        assert formatted.returncode == 0, formatted.stderr


def librdkafka(authority: Authority, store: Path, nodes: list[NodeByHand]) -> dict[str, Any]:
    return {
        "bootstrap.servers": ",".join(node.bootstrap for node in nodes),
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.trusted),
        "ssl.certificate.location": str(store),
        "ssl.key.location": str(store),
        "ssl.endpoint.identification.algorithm": "https",
        "log_level": 0,
    }


def produce(settings: dict[str, Any], count: int) -> None:
    failures: list[Any] = []
    producer = Producer(settings | {"acks": "all", "enable.idempotence": True})
    for number in range(count):
        producer.produce(TOPIC, b"%d" % number + bytes(50_000), on_delivery=lambda error, _: failures.append(error))
        producer.poll(0)
    assert producer.flush(WAIT_S_MAX) == 0
    assert failures == [None] * count


def consume(settings: dict[str, Any], partitions: int, count: int) -> int:
    consumer = Consumer(settings | {"group.id": "readers", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(partitions)])
    found, deadline = 0, time.monotonic() + WAIT_S_MAX
    while found < count and time.monotonic() < deadline:
        found += sum(each.error() is None for each in consumer.consume(1000, 1.0))
    consumer.close()
    return found


def test_three_nodes_with_tls_everywhere(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with cluster(tmp_path, authority, 3) as nodes:
        settings = librdkafka(authority, authority.issue("client"), nodes)
        admin = AdminClient(settings)
        admin.create_topics([NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "3"})])[TOPIC].result(WAIT_S_MAX)
        produce(settings, 200)
        assert consume(settings, 3, 200) == 200
        # A broker that dies and comes back follows again, by new connections.
        nodes[2].kill()
        nodes[2].start()
        produce(settings, 50)
        assert consume(settings, 3, 250) == 250


@pytest.mark.slow
def test_a_broker_reaches_a_controller_of_its_own_process_by_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with nodes_by_hand(tmp_path, 2) as [controller, broker]:
        common = {
            "listener.security.protocol.map": "CONTROLLER:SSL",
            "controller.quorum.voters": f"1@{controller.controller_address}",
            "inter.broker.listener.name": "SSL",
        }
        own = {
            controller: ("controller", f"CONTROLLER://{controller.controller_address}"),
            broker: ("broker", f"SSL://127.0.0.1:{broker.port}"),
        }
        cluster_id = uuid_text(uuid.uuid4())
        for node, (roles, listeners) in own.items():
            stores = authority.settings(authority.issue(f"node-{node.node_id}"), ssl_client_auth="required")
            node.configure(roles, {**common, **stores, "listeners": listeners})
            formatted = node.format(cluster_id)
            assert formatted.returncode == 0, formatted.stderr
            node.spawn()
        for node in own:
            node.wait_ready(timeout_s=WAIT_S_MAX)
        settings = librdkafka(authority, authority.issue("client"), [broker])
        AdminClient(settings).list_topics(timeout=WAIT_S_MAX)
        produce(settings, 10)
        assert consume(settings, 1, 10) == 10


def test_stock_clients_of_python(tmp_path: Path) -> None:
    kafka, aiokafka = pytest.importorskip("kafka"), pytest.importorskip("aiokafka")
    authority = Authority(tmp_path)
    with cluster(tmp_path, authority, 1) as [node]:
        store = authority.issue("client")
        context = ssl.create_default_context(cafile=str(authority.trusted))
        context.load_cert_chain(store)
        common = {"bootstrap_servers": node.bootstrap, "security_protocol": "SSL", "ssl_context": context}
        producer = kafka.KafkaProducer(**common)
        for number in range(20):
            producer.send(TOPIC, b"%d" % number)
        producer.flush(WAIT_S_MAX)
        producer.close()
        consumer = kafka.KafkaConsumer(
            TOPIC, auto_offset_reset="earliest", consumer_timeout_ms=int(WAIT_S_MAX * 1000), **common
        )
        assert [next(consumer).value for _ in range(20)] == [b"%d" % number for number in range(20)]
        consumer.close()

        async def by_aiokafka() -> list[bytes | None]:
            writer = aiokafka.AIOKafkaProducer(**common)
            await writer.start()
            await writer.send_and_wait(TOPIC, b"the last")
            await writer.stop()
            reader = aiokafka.AIOKafkaConsumer(TOPIC, auto_offset_reset="earliest", **common)
            await reader.start()
            try:
                return [(await asyncio.wait_for(reader.getone(), WAIT_S_MAX)).value for _ in range(21)]
            finally:
                await reader.stop()

        assert asyncio.run(by_aiokafka())[-1] == b"the last"


@pytest.mark.slow
def test_a_node_with_the_certificate_of_another_host_is_not_talked_to(tmp_path: Path) -> None:
    """A certificate of the cluster's authority is not enough: it must be for the host that is connected to."""
    authority = Authority(tmp_path)
    with nodes_by_hand(tmp_path, 3) as nodes:
        configure(nodes, authority)
        odd = authority.issue("node-3", names=("DNS:elsewhere.example.com",))
        assert str(odd) in nodes[2].config.read_text()
        for node in nodes:
            node.spawn()
        for node in nodes[:2]:
            node.wait_ready(timeout_s=WAIT_S_MAX)
        deadline = time.monotonic() + WAIT_S_MAX
        refused = f"cannot reach {nodes[2].controller_address}: the certificate of the peer is rejected"
        while refused not in nodes[0].stderr_text() + nodes[1].stderr_text():
            assert time.monotonic() < deadline, nodes[0].stderr_text()
            time.sleep(0.1)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"ssl_truststore_location": ""}, "ssl.client.auth=required checks clients, and there is nothing to check"),
        ({"ssl_keystore_location": "/no/such"}, "ssl.keystore.location=/no/such cannot be read: no such file"),
    ],
)
def test_a_start_is_refused_in_a_sentence(tmp_path: Path, settings: dict[str, str], why: str) -> None:
    authority = Authority(tmp_path)
    with nodes_by_hand(tmp_path, 1) as [node]:
        configure([node], authority, **settings)
        with pytest.raises(BrokerFailed):
            node.start()
        assert why in node.stderr_text()
        assert "Traceback" not in node.stderr_text()


def test_metrics_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    port = free_port()
    with nodes_by_hand(tmp_path, 1) as [node]:
        configure([node], authority)
        http = f"http.listener=localhost:{port}\nhttp.security.protocol=SSL\nlistener.name.http.ssl.client.auth=none\n"
        node.config.write_text(node.config.read_text().replace("http.listener=off\n", http))
        node.start(timeout_s=WAIT_S_MAX)
        context = ssl.create_default_context(cafile=str(authority.trusted))
        with urllib.request.urlopen(f"https://localhost:{port}/metrics", context=context, timeout=WAIT_S_MAX) as page:
            assert b'certificate_expiry_timestamp_seconds{listener="HTTP"}' in page.read()
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=WAIT_S_MAX)


class SteadyProducer:
    """A producer that writes all the time, in a thread, and counts what was refused."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.written = 0
        self.failures: list[Any] = []
        self._producer = Producer(settings | {"acks": "all", "enable.idempotence": True, "linger.ms": 5})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(0.005):
            self._producer.produce(TOPIC, b"%d" % self.written, on_delivery=self._on_delivery)
            self._producer.poll(0)

    def _on_delivery(self, error: Any, _: Any) -> None:
        if error is None:
            self.written += 1
        else:
            self.failures.append(error)

    def wait_for_more(self, count: int = 50) -> None:
        wanted, deadline = self.written + count, time.monotonic() + WAIT_S_MAX
        while self.written < wanted:
            assert time.monotonic() < deadline, (self.written, wanted, self.failures)
            time.sleep(0.01)

    def change_password(self, user: str, password: str) -> None:
        self._producer.set_sasl_credentials(user, password)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(WAIT_S_MAX)
        assert self._producer.flush(WAIT_S_MAX) == 0
        assert not self.failures


@pytest.mark.slow
def test_nodes_change_to_tls_and_to_other_certificates_while_records_are_written(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with nodes_by_hand(tmp_path, 3) as nodes:
        stores = {node.node_id: authority.issue(f"node-{node.node_id}") for node in nodes}
        secure = {node.node_id: free_port() for node in nodes}
        cluster_id = uuid_text(uuid.uuid4())
        voters = ",".join(f"{node.node_id}@{node.controller_address}" for node in nodes)

        def configure_one(node: NodeByHand, between: str) -> None:
            listeners = f"PLAIN://127.0.0.1:{node.port},SECURE://127.0.0.1:{secure[node.node_id]}"
            settings = {
                "listeners": f"{listeners},CONTROLLER://{node.controller_address}",
                "listener.security.protocol.map": "SECURE:SSL,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": between,
                "controller.quorum.voters": voters,
                **authority.settings(stores[node.node_id], ssl_client_auth="required"),
            }
            node.configure("broker,controller", settings)

        for node in nodes:
            configure_one(node, "PLAIN")
            assert node.format(cluster_id).returncode == 0
            node.spawn()
        for node in nodes:
            node.wait_ready(timeout_s=WAIT_S_MAX)
        settings = librdkafka(authority, authority.issue("client"), [])
        settings["bootstrap.servers"] = ",".join(f"127.0.0.1:{port}" for port in secure.values())
        admin = AdminClient(settings)
        topic = NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(WAIT_S_MAX)
        producer = SteadyProducer(settings)
        for node in nodes:
            producer.wait_for_more()
            node.stop(timeout_s=WAIT_S_MAX)
            configure_one(node, "SECURE")
            node.start(timeout_s=WAIT_S_MAX)
        for node in nodes:
            producer.wait_for_more()
            authority.issue(f"fresh-{node.node_id}", subject=f"/CN=node-{node.node_id}", to=stores[node.node_id])
            deadline = time.monotonic() + WAIT_S_MAX
            while "listener SECURE has a new certificate" not in node.stderr_text():
                assert time.monotonic() < deadline, node.stderr_text()
                time.sleep(0.1)
        producer.wait_for_more()
        producer.stop()
        assert consume(settings, 3, producer.written) == producer.written
