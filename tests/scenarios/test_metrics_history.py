"""What a node measured itself, asked for through the protocol: a day of it on a clock that the test moves."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import strandline
from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.failures import ClusterFailed
from strandline.client.metrics_history import ChartSeries, read_history
from strandline.codec.messages.metrics_history_request import MetricsHistoryRequest
from strandline.codec.messages.metrics_history_response import MetricsHistoryResponse
from strandline.errors import ErrorCode
from strandline.local.virtual_clock import VirtualClockBroker

DAY_MS = 86_400_000
ALONE = {"http.listener": "off", "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


@pytest.fixture(scope="module")
def broker() -> Iterator[VirtualClockBroker]:
    with strandline.embedded(clock="virtual", properties=ALONE) as log:
        yield log


@pytest.fixture
def client(broker: VirtualClockBroker) -> Iterator[ClusterClient]:
    client = ClusterClient(ClientSettings.within(broker.bootstrap, "test", 20.0))
    client.topics(None)
    yield client
    client.close()


def charts(client: ClusterClient, *prefixes: str, ago_ms: int = DAY_MS) -> tuple[ChartSeries, ChartSeries]:
    found = read_history(client, [1], ago_ms, list(prefixes) or None)
    assert found is not None
    assert not found.silent
    node, items = found.charts
    assert (node.step_ms, items.step_ms) == (10_000, 60_000)
    return node, items


def write(broker: VirtualClockBroker, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(count):
        producer.produce(topic, value=b"x" * 1000)
    assert producer.flush(30) == 0


def test_throughput_lag_and_errors_come_in_their_steps(broker: VirtualClockBroker, client: ClusterClient) -> None:
    from confluent_kafka import Consumer, TopicPartition

    broker.create_topic("orders")
    broker.create_topic("idle")
    broker.clock.advance(seconds=61)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
    write(broker, "orders", 600)
    for _ in range(7):
        broker.clock.advance(seconds=10)
    consumer.close()
    node, items = charts(client)
    # As many bytes as were written, whatever the step in which they were counted.
    assert sum(each or 0 for each in node.series["records_in"]) * 10 >= 600
    assert sum(each or 0 for each in node.series["bytes_in"]) * 10 >= 600_000
    assert sum(each or 0 for each in node.series["requests"]) > 0
    assert "errors" in node.series
    assert max(each or 0 for each in items.series["topic/orders/records_in"]) * 60 == pytest.approx(600, rel=0.2)
    assert not any(name.startswith("topic/idle/") for name in items.series), "a topic at rest has no series"
    assert [each for each in items.series["group/readers/lag"] if each is not None][-1] == 600
    only, _ = charts(client, "bytes_")
    assert set(only.series) == {"bytes_in", "bytes_out"}
    short, _ = charts(client, ago_ms=30_000)
    assert len(short.series["requests"]) <= 4


def test_a_deleted_topic_is_no_negative_rate(broker: VirtualClockBroker, client: ClusterClient) -> None:
    from confluent_kafka.admin import AdminClient

    broker.create_topic("passing")
    write(broker, "passing", 300)
    broker.clock.advance(seconds=10)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["passing"])["passing"].result()
    for _ in range(8):
        broker.clock.advance(seconds=10)
    node, items = charts(client)
    told = [each for chart in (node, items) for values in chart.series.values() for each in values if each is not None]
    assert told
    assert min(told) >= 0


def test_a_day_is_kept_and_no_more(broker: VirtualClockBroker, client: ClusterClient) -> None:
    # The client's connection would be closed for being idle on such a clock, which it finds when it asks.
    for _ in range(30):
        broker.clock.advance(hours=1)
    client.topics(None)
    node, items = charts(client, ago_ms=10 * DAY_MS)
    assert DAY_MS <= len(node.series["requests"]) * node.step_ms <= DAY_MS + 3_600_000 + 10_000
    assert all(len(each) * items.step_ms <= DAY_MS + 6 * 3_600_000 + 60_000 for each in items.series.values())
    assert abs(node.first_ms + len(node.series["requests"]) * node.step_ms - time.time() * 1000) > DAY_MS, (
        "times are those of the node's wall clock, which was moved"
    )


@pytest.mark.parametrize("request_", [MetricsHistoryRequest(-1), MetricsHistoryRequest(1, ["x"] * 101)])
def test_odd_requests_are_refused(client: ClusterClient, request_: MetricsHistoryRequest) -> None:
    client.topics(None)
    assert client.ask_broker(1, request_, MetricsHistoryResponse).error_code == ErrorCode.INVALID_REQUEST
    with pytest.raises(ClusterFailed, match="does not tell what it measured: INVALID_REQUEST"):
        read_history(client, [1], request_.ago_ms, request_.prefixes)


def test_a_node_that_measures_nothing_tells_nothing() -> None:
    with strandline.embedded(properties=ALONE | {"metrics.enable": "false"}) as log:
        client = ClusterClient(ClientSettings.within(log.bootstrap, "test", 20.0))
        client.topics(None)
        assert read_history(client, [1], DAY_MS, None) is None
        client.close()
