"""What `/metrics` says of groups that are behind is true, on one node and where the partitions are led elsewhere."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.clients.client import until
from tests.clients.positions import commit, write

from strandline.cli.common.conversation import Conversation
from strandline.codec.messages.group_lag_request import GroupLagRequest
from strandline.codec.messages.group_lag_response import GroupLagResponse, PositionLook
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.node_process import NodeProcess
from strandline.testing import embedded

LOOK_OFTEN = {
    "http.listener": "127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "group.lag.interval.ms": "100",
}
HOUR_MS = 3_600_000


class At(NamedTuple):
    group: str
    topic: str
    partition: int = 0


class Lags:
    """The families about lag of one page, or of those of all nodes."""

    def __init__(self, *nodes: NodeProcess) -> None:
        self._lines: dict[tuple[str, At], tuple[float, dict[str, str]]] = {}
        for node in nodes:
            url = re.findall(r"metrics at (http://\S+)/metrics", node.stderr_text())[-1]
            with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
                self._read(answer.read().decode())

    def _read(self, page: str) -> None:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                labels = sample.labels
                if {"consumergroup", "topic", "partition"} <= labels.keys():
                    at = At(labels["consumergroup"], labels["topic"], int(labels["partition"]))
                    assert (sample.name, at) not in self._lines, f"two nodes tell of {at}"
                    self._lines[sample.name, at] = sample.value, labels

    def get(self, name: str, at: At) -> float | None:
        line = self._lines.get((f"strandline_group_{name}", at))
        return None if line is None else line[0]

    def verdict(self, at: At) -> str | None:
        line = self._lines.get(("strandline_group_lag_verdict", at))
        return None if line is None else line[1]["verdict"]

    def kafka_lag(self, at: At) -> float | None:
        line = self._lines.get(("kafka_consumergroup_lag", at))
        return None if line is None else line[0]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with embedded(properties=LOOK_OFTEN) as broker:
        yield broker


def seen(broker: EmbeddedBroker, holds: Callable[[Lags], bool]) -> Lags:
    """The first page of which `holds` is true."""
    pages: list[Lags] = []

    def look() -> bool:
        pages.append(Lags(broker))
        return holds(pages[-1])

    until("a page that says so", look)
    return pages[-1]


def test_a_group_that_nobody_reads_for_has_stopped(broker: EmbeddedBroker) -> None:
    at = At("gone", "stopped")
    broker.create_topic(at.topic)
    write(broker.bootstrap, at.topic, 10, age_ms=2 * HOUR_MS)
    commit(broker.bootstrap, at.group, at.topic, 4, partition=at.partition)
    # The age is looked up in the background, and may come with a later look than the verdict.
    page = seen(broker, lambda page: page.verdict(at) == "stopped" and page.get("lag_seconds", at) is not None)
    assert page.get("lag_records", at) == 6 == page.kafka_lag(at)
    age_s = page.get("lag_seconds", at)
    assert age_s is not None
    assert age_s >= 7200
    loss_s = page.get("time_to_loss_seconds", at)
    assert loss_s is not None
    assert loss_s + age_s == pytest.approx(7 * 86_400, abs=5)
    assert page.get("lost_records", at) is None


def test_a_group_that_is_caught_up_is_ok(broker: EmbeddedBroker) -> None:
    at = At("swift", "caught-up")
    broker.create_topic(at.topic)
    write(broker.bootstrap, at.topic, 10, age_ms=2 * HOUR_MS)
    commit(broker.bootstrap, at.group, at.topic, 10, partition=at.partition)
    page = seen(broker, lambda page: page.verdict(at) is not None)
    assert page.verdict(at) == "ok"
    assert page.get("lag_records", at) == 0 == page.get("lag_seconds", at)
    assert page.get("time_to_loss_seconds", at) is None


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topic_that_its_members_gave_up_has_stopped(broker: EmbeddedBroker, protocol: str) -> None:
    """The group lives, and reads something else."""
    from confluent_kafka import Consumer

    given_up, read = At(f"fickle-{protocol}", f"given-up-{protocol}"), At(f"fickle-{protocol}", f"read-{protocol}")
    for at in (given_up, read):
        broker.create_topic(at.topic)
        write(broker.bootstrap, at.topic, 10, age_ms=HOUR_MS)
        commit(broker.bootstrap, at.group, at.topic, 4)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": read.group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([read.topic])
    until("assigned", lambda: bool(consumer.poll(0.1)) or bool(consumer.assignment()))
    page = seen(broker, lambda page: page.verdict(read) in ("behind", "stalled"))
    assert page.verdict(given_up) == "stopped"
    consumer.close()


def test_a_loss_that_is_near_is_said(broker: EmbeddedBroker) -> None:
    at = At("late", "short-lived")
    broker.create_topic(at.topic, **{"retention.ms": 3 * HOUR_MS})
    write(broker.bootstrap, at.topic, 10, age_ms=2 * HOUR_MS)
    commit(broker.bootstrap, at.group, at.topic, 0, partition=at.partition)
    page = seen(broker, lambda page: page.verdict(at) == "will lose data")
    loss_s = page.get("time_to_loss_seconds", at)
    assert loss_s is not None
    assert 0 < loss_s <= 3600


def test_by_size_too(broker: EmbeddedBroker) -> None:
    """Nothing is known of the rate at first, and then the log grows while somebody looks."""
    at = At("large", "small-room")
    broker.create_topic(at.topic, **{"retention.ms": -1, "retention.bytes": 1_000_000})
    write(broker.bootstrap, at.topic, 10)
    commit(broker.bootstrap, at.group, at.topic, 0, partition=at.partition)

    def holds(page: Lags) -> bool:
        write(broker.bootstrap, at.topic, 10)
        return page.get("time_to_loss_seconds", at) is not None

    page = seen(broker, holds)
    assert page.verdict(at) == "will lose data"


def test_what_was_trimmed_before_it_was_read_is_lost(broker: EmbeddedBroker) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    at = At("robbed", "trimmed")
    broker.create_topic(at.topic)
    write(broker.bootstrap, at.topic, 10)
    commit(broker.bootstrap, at.group, at.topic, 2, partition=at.partition)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([TopicPartition(at.topic, 0, 7)]).values():
        future.result(30)
    page = seen(broker, lambda page: page.verdict(at) == "lost data")
    assert page.get("lost_records", at) == 5
    assert page.get("lag_records", at) == 3


def test_a_group_that_is_deleted_is_no_longer_told_of(broker: EmbeddedBroker) -> None:
    from confluent_kafka.admin import AdminClient

    at = At("short", "brief")
    broker.create_topic(at.topic)
    write(broker.bootstrap, at.topic, 1)
    commit(broker.bootstrap, at.group, at.topic, 0, partition=at.partition)
    seen(broker, lambda page: page.verdict(at) is not None)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_consumer_groups([at.group])[at.group].result(30)
    seen(broker, lambda page: page.verdict(at) is None)


@pytest.mark.slow
def test_partitions_that_are_led_elsewhere() -> None:
    """Each node coordinates some groups. Of a topic with one replica each it has a third, of the other it has all."""
    with embedded(nodes=3, properties=LOOK_OFTEN) as cluster:
        places = []
        for topic, replicas in (("spread", 1), ("copied", 3)):
            cluster.create_topic(topic, partitions=3, replication_factor=replicas)
            for partition in range(3):
                write(cluster.bootstrap_servers, topic, 10, age_ms=HOUR_MS, partition=partition)
            places += [At(f"group-{number}", topic, number % 3) for number in range(6)]
        for at in places:
            commit(cluster.bootstrap_servers, at.group, at.topic, 4, partition=at.partition)
        looks: dict[At, PositionLook] = {}

        def look() -> bool:
            looks.clear()
            for node in cluster.nodes.values():
                looks.update(last_looks(node.place.host, node.port, [at.group for at in places]))
            return all(at in looks and looks[at].age_ms >= 0 for at in places)

        until("every group and its age at some node", look)
        for at in places:
            seen = looks[at]
            assert (seen.committed_offset, seen.log_start_offset, seen.high_watermark) == (4, 0, 10)
            assert HOUR_MS <= seen.age_ms < HOUR_MS + 100_000


def last_looks(host: str, port: int, groups: list[str]) -> dict[At, PositionLook]:
    """What a node saw last of the groups that it coordinates."""
    with Conversation(host, port, 30) as conversation:
        answer = conversation.ask(GroupLagRequest(group_ids=groups), GroupLagResponse)
    assert answer is not None
    return {
        At(group.group_id, position.topic, position.partition): position.looks[-1]
        for group in answer.groups
        for position in group.positions
    }
