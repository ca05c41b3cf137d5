"""What a node tells about itself is true, can be read by a stock Prometheus, and costs those who do not ask nothing."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.hostile.peer import Peer

from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.node_process import BrokerFailed
from strandline.testing import embedded

ANY_PORT = {"http.listener": "127.0.0.1:0", "group.initial.rebalance.delay.ms": "0"}
CLIENT_METRICS = 16
PROMTOOL = shutil.which("promtool")


class Answer(NamedTuple):
    status: int
    content_type: str
    body: str


def base_url(broker: EmbeddedBroker) -> str:
    found = re.findall(r"metrics at (http://\S+)/metrics", broker.stderr_text())
    assert found, broker.stderr_text()
    return str(found[-1])


def get(broker: EmbeddedBroker, path: str) -> Answer:
    try:
        with urllib.request.urlopen(base_url(broker) + path, timeout=30) as answer:
            return Answer(answer.status, answer.headers["Content-Type"], answer.read().decode())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.headers["Content-Type"], error.read().decode())


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"{key} stands twice"
            found[key] = sample.value
    return found


class Figures:
    def __init__(self, text: str) -> None:
        self.all = samples(text)

    def of(self, name: str, **labels: str) -> float:
        return self.all[name, frozenset(labels.items())]

    def names(self) -> set[str]:
        return {name for name, _ in self.all}


def figures(broker: EmbeddedBroker, path: str = "/metrics") -> Figures:
    answer = get(broker, path)
    assert answer.status == 200
    assert answer.content_type.startswith("text/plain; version=0.0.4")
    return Figures(answer.body)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker with a topic of 100 records, and a group that has read 40 of them."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    with embedded(properties=ANY_PORT) as log:
        log.create_topic("orders", partitions=2)
        producer = Producer({"bootstrap.servers": log.bootstrap, "linger.ms": 50})
        for number in range(100):
            producer.produce("orders", value=b"x" * 100, partition=number % 2)
        producer.flush()
        consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": 'a "group"', "enable.auto.commit": False})
        consumer.assign([TopicPartition("orders", 0, 0)])
        assert len(consumer.consume(40, timeout=60)) == 40
        consumer.commit(offsets=[TopicPartition("orders", 0, 40)], asynchronous=False)
        yield log
        consumer.close()


def test_figures_of_a_topic_are_what_was_done_to_it(broker: EmbeddedBroker) -> None:
    seen = figures(broker)
    assert seen.of("kafka_server_brokertopicmetrics_messagesin_total", topic="orders") == 100
    bytes_in = seen.of("kafka_server_brokertopicmetrics_bytesin_total", topic="orders")
    assert bytes_in == seen.of("kafka_log_log_size_bytes", topic="orders")
    assert bytes_in > 100 * 100
    assert seen.of("kafka_server_brokertopicmetrics_bytesout_total", topic="orders") > 40 * 100
    assert 1 <= seen.of("strandline_topic_batches_in_total", topic="orders") <= 100
    assert seen.of("kafka_topic_partitions", topic="orders") == 2
    for partition in ("0", "1"):
        where = {"topic": "orders", "partition": partition}
        assert seen.of("kafka_topic_partition_current_offset", **where) == 50
        assert seen.of("kafka_topic_partition_oldest_offset", **where) == 0
        assert seen.of("kafka_topic_partition_leader", **where) == 1
        assert seen.of("kafka_topic_partition_leader_is_preferred", **where) == 1
        assert seen.of("kafka_topic_partition_under_replicated_partition", **where) == 0


def test_figures_of_a_group_are_its_lag(broker: EmbeddedBroker) -> None:
    seen = figures(broker)
    where = {"consumergroup": 'a "group"', "topic": "orders", "partition": "0"}
    assert seen.of("kafka_consumergroup_current_offset", **where) == 40
    assert seen.of("kafka_consumergroup_lag", **where) == 10
    assert seen.of("kafka_consumergroup_group_sum_lag", group='a "group"') == 10
    assert seen.of("kafka_consumergroup_members", consumergroup='a "group"') == 0


def test_figures_of_requests(broker: EmbeddedBroker) -> None:
    seen = figures(broker)
    produced = seen.of("kafka_network_requestmetrics_requests_total", request="Produce")
    assert 1 <= produced <= 100
    # A flush comes before the answer, so every one of them waited.
    times = "kafka_network_requestmetrics_totaltime_seconds"
    assert seen.of(f"{times}_count", request="Produce", waited="yes") == produced
    assert seen.of(f"{times}_bucket", request="Produce", waited="yes", le="+Inf") == produced
    assert seen.of(f"{times}_sum", request="Produce", waited="yes") > 0
    assert seen.of("kafka_network_requestmetrics_requestbytes_total", request="Fetch") > 0
    assert seen.of("kafka_network_requestmetrics_responsebytes_total", request="Fetch") > 40 * 100
    assert seen.of(f"{times}_count", request="Metadata", waited="no") >= 1
    assert seen.of("strandline_connections") >= 1
    assert seen.of("strandline_connections_accepted_total") >= seen.of("strandline_connections")
    software = [dict(labels) for name, labels in seen.all if name == "strandline_connections_by_software"]
    assert any("confluent" in each["client_software_name"] for each in software), software
    assert seen.of("kafka_log_logflushstats_flushes_total") >= seen.of("strandline_flush_trips_total") >= 1


def test_errors_are_counted_by_their_code(broker: EmbeddedBroker) -> None:
    from strandline.codec.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

    before = figures(broker).all
    asked = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=9)])],
    )
    with Peer(broker.port) as peer:
        assert peer.ask(asked, 7).responses[0].partition_responses[0].error_code == 3
    key = (
        "kafka_network_requestmetrics_errors_total",
        frozenset({("request", "Produce"), ("error", "UNKNOWN_TOPIC_OR_PARTITION")}),
    )
    failed = "kafka_server_brokertopicmetrics_failedproducerequests_total", frozenset[tuple[str, str]]()
    after = figures(broker).all
    assert after[key] == before.get(key, 0) + 1
    assert after[failed] == before[failed] + 1


def test_a_peer_that_speaks_no_kafka_is_counted(broker: EmbeddedBroker) -> None:
    refused = "strandline_connections_refused_total"
    before = figures(broker).of(refused, reason="protocol")
    with socket.create_connection((broker.host, broker.port)) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert peer.recv(1) == b""
    assert figures(broker).of(refused, reason="protocol") == before + 1


def test_the_public_page_grows_with_no_topic(broker: EmbeddedBroker) -> None:
    public = figures(broker, "/public_metrics")
    labels = {name for _, pairs in public.all for name, _ in pairs}
    assert not labels & {"topic", "partition", "consumergroup", "group", "client_id"}
    everything = figures(broker)
    assert public.names() < everything.names()
    total = public.of("kafka_server_brokertopicmetrics_messagesin_total")
    assert total >= 100


def test_a_deleted_topic_leaves_its_share_of_the_total(broker: EmbeddedBroker) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient

    broker.create_topic("passing")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("passing", b"x")
    producer.flush()
    names = [f"kafka_server_brokertopicmetrics_{what}_total" for what in ("messagesin", "bytesin", "bytesout")]
    before = figures(broker, "/public_metrics")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["passing"])["passing"].result()
    after = figures(broker, "/public_metrics")
    for name in names:
        assert after.of(name) >= before.of(name), "a total that goes down is taken for a restart"


def test_probes_and_hints(broker: EmbeddedBroker) -> None:
    assert get(broker, "/livez") == (200, "text/plain; charset=utf-8", "ok\n")
    ready = get(broker, "/readyz")
    assert (ready.status, json.loads(ready.body)) == (200, {"ready": True, "reasons": []})
    missing = get(broker, "/")
    assert missing.status == 404
    assert "/public_metrics" in missing.body


@pytest.mark.slow
@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian package prometheus) is not installed")
@pytest.mark.parametrize("path", ["/metrics", "/public_metrics"])
def test_promtool_finds_nothing_wrong(broker: EmbeddedBroker, path: str) -> None:
    checked = subprocess.run(
        [str(PROMTOOL), "check", "metrics"], input=get(broker, path).body, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_without_metrics_requests_are_not_timed() -> None:
    with embedded(properties={**ANY_PORT, "metrics.enable": "false"}) as log:
        log.create_topic("orders")
        seen = figures(log)
        counted = {name for name in seen.names() if name.startswith("kafka_network_requestmetrics")}
        assert counted == {"kafka_network_requestmetrics_requests_total"}
        assert seen.of("kafka_topic_partitions", topic="orders") == 1
        assert seen.of("strandline_connections") >= 0


def test_a_port_that_was_asked_for_and_is_taken_stops_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BrokerFailed, match=f"http.listener={where}"), embedded(properties={"http.listener": where}):
            pass


def test_lines_of_json() -> None:
    with embedded(properties={**ANY_PORT, "log.format": "json", "log.level": "DEBUG"}) as log:
        with socket.create_connection((log.host, log.port)) as peer:
            peer.sendall(b"\xff" * 14)
            assert peer.recv(1) == b""
        log.stop()
        lines = [json.loads(line) for line in log.stderr_text().splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    (refused,) = [line for line in lines if line.get("kind") == "protocol"]
    assert refused["host"] == "127.0.0.1"
    assert refused["reason"] == "a frame of -1 bytes"
    assert refused["message"] == "closing the connection from 127.0.0.1: a frame of -1 bytes"


@pytest.mark.slow
def test_the_lag_of_a_group_that_nobody_asks_for_is_seen_after_a_restart() -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    with embedded(properties={**ANY_PORT, "offsets.topic.num.partitions": "5"}) as log:
        log.create_topic("orders")
        producer = Producer({"bootstrap.servers": log.bootstrap})
        producer.produce("orders", b"x")
        producer.flush()
        for group in ("first", "second", "third"):
            consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": group})
            consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
            consumer.close()
        del producer
        log.restart()
        # Each look loads one more part; at most as many as there are.
        for _ in range(5 + 1):
            seen = figures(log)
        for group in ("first", "second", "third"):
            assert seen.of("kafka_consumergroup_lag", consumergroup=group, topic="orders", partition="0") == 1


# What clients tell about themselves (KIP-714)


def subscribe(broker: EmbeddedBroker, name: str, **settings: str) -> None:
    configs = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    asked = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    with Peer(broker.port) as peer:
        answer = peer.ask(IncrementalAlterConfigsRequest(resources=[asked]), 1)
    assert answer.responses[0].error_code == 0, answer


def test_clients_are_told_of_telemetry_where_somebody_can_see_it(broker: EmbeddedBroker) -> None:
    with Peer(broker.port) as peer:
        assert {71, 72} <= {api.api_key for api in peer.ask(ApiVersionsRequest(), 0).api_keys}


@pytest.mark.slow
def test_librdkafka_pushes_what_it_is_asked_for() -> None:
    from confluent_kafka import Producer

    with embedded(properties=ANY_PORT) as log:
        log.create_topic("orders")
        subscribe(log, "all", interval_ms="100", metrics="org.apache.kafka.producer.", match="client_id=me-[0-9]")
        producer = Producer({"bootstrap.servers": log.bootstrap, "client.id": "me-1"})
        producer.produce("orders", b"x")
        producer.flush()
        for _ in range(200):
            producer.poll(0.1)
            seen = figures(log)
            # A request is counted when it is answered, which is a moment after what it brought is shown.
            counted = ("kafka_network_requestmetrics_requests_total", frozenset({("request", "PushTelemetry")}))
            if counted in seen.all and any(name.startswith("kafka_client_producer_") for name in seen.names()):
                break
        pushed = [dict(labels) for name, labels in seen.all if name.startswith("kafka_client_producer_")]
        assert pushed, "nothing was pushed"
        assert {each["client_id"] for each in pushed} == {"me-1"}
        assert seen.of("kafka_network_requestmetrics_requests_total", request="PushTelemetry") >= 1
        errors = {
            dict(labels)["error"]
            for name, labels in seen.all
            if name.endswith("errors_total") and ("request", "PushTelemetry") in labels
        }
        assert not errors
