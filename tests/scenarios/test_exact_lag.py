"""Lag is what a reader gets: counted by the broker, compared with what a stock client reads."""

from __future__ import annotations

import random
import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families
from tests.cli.conftest import CommandLine
from tests.clients.client import until
from tests.clients.positions import commit, until_decided
from tests.scenarios.compaction_ground import BY_HAND, compact_now

from strandline.cli.common.conversation import Conversation
from strandline.codec.messages.group_lag_request import GroupLagRequest
from strandline.codec.messages.group_lag_response import GroupLagResponse
from strandline.codec.messages.record_counts_request import PartitionPositions, RecordCountsRequest, TopicPositions
from strandline.codec.messages.record_counts_response import PartitionCounts, RecordCountsResponse
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.log.segment.record_counts import RecordCounts
from strandline.testing import embedded

SEED = 20_261_117
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "group.lag.interval.ms": "100",
    "http.listener": "127.0.0.1:0",
}
COUNTING_MS = 20_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with embedded(properties=PROPERTIES) as broker:
        yield broker


def transactor(bootstrap: str, name: str) -> Any:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    return producer


def wrote(producer: Any, topic: str, records: int, *, size: int = 40) -> None:
    """Records in batches of their own, or of a few."""
    for _ in range(records):
        producer.produce(topic, b"v" * size, partition=0)
    assert producer.flush(30) == 0


def offsets_read(bootstrap: str, topic: str, start: int) -> list[int]:
    """Of the records that a reader of committed ones gets from `start` on."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "no-group",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[int] = []
    is_at_end = False

    def read() -> bool:
        nonlocal is_at_end
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                found.append(message.offset())
            elif message.error().name() == "_PARTITION_EOF":
                is_at_end = True
        return is_at_end

    until("the end of the partition", read)
    consumer.close()
    return found


def counted(bootstrap: str, topic: str, offsets: list[int], *, timeout_ms: int = COUNTING_MS) -> PartitionCounts:
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    asked = TopicPositions(name=topic, partitions=[PartitionPositions(partition=0, offsets=offsets)])
    with Conversation(host, int(port), 30) as conversation:
        answer = conversation.ask(RecordCountsRequest(timeout_ms=timeout_ms, topics=[asked]), RecordCountsResponse)
    assert answer is not None
    partition: PartitionCounts = answer.topics[0].partitions[0]
    return partition


def check(broker: EmbeddedBroker, topic: str, *, positions: int = 3) -> PartitionCounts:
    """Every position is counted as it is read."""
    while True:
        end = counted(broker.bootstrap, topic, []).high_watermark
        told = counted(broker.bootstrap, topic, list(range(end + 1)))
        assert told.error_code == 0
        starts = [0, *random.Random(SEED).sample(range(end + 1), positions)]
        read = {start: offsets_read(broker.bootstrap, topic, start) for start in starts}
        if counted(broker.bootstrap, topic, []).high_watermark == end:
            break  # No marker came meanwhile.
    assert [each.records for each in told.counts] == [sum(at >= start for at in read[0]) for start in range(end + 1)]
    assert [len(read[start]) for start in starts] == [told.counts[start].records for start in starts]
    return told


@pytest.mark.slow
def test_any_transactions_and_restarts(broker: EmbeddedBroker) -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    topic = "any"
    broker.create_topic(topic, internal_segment_bytes=4000)
    plain = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    transactors = [transactor(broker.bootstrap, f"any-{at}") for at in range(3)]
    opened: dict[int, int] = {}
    for step in range(60):
        at = chance.randrange(4)
        if at == 3:
            wrote(plain, topic, chance.randrange(1, 4))
        elif at not in opened or chance.random() < 0.4:
            if at not in opened:
                transactors[at].begin_transaction()
            records = chance.randrange(1, 5)
            wrote(transactors[at], topic, records)
            opened[at] = opened.get(at, 0) + records
        elif chance.random() < 0.5:
            transactors[at].commit_transaction(30)
            del opened[at]
        else:
            transactors[at].abort_transaction(30)
            del opened[at]
        if step == 30:
            told = check(broker, topic, positions=1)
            assert told.last_stable_offset < told.high_watermark or not opened
    for at in sorted(opened):
        transactors[at].abort_transaction(30)
    until_decided(broker.bootstrap, topic)
    before = check(broker, topic)
    assert before.counts[0].undecided == 0
    assert 0 < before.counts[0].records < before.high_watermark - 20
    for again in (broker.restart, lambda: (broker.kill(), broker.start())):
        again()
        # A coordinator that does not know any more whether its marker is there writes it once more.
        after = check(broker, topic, positions=1)
        assert [each.records for each in after.counts[: len(before.counts)]] == [each.records for each in before.counts]


@pytest.mark.slow
def test_a_compacted_topic_counts_what_is_left(broker: EmbeddedBroker) -> None:
    """Batches of several records are thinned out, transactions of both kinds lie between, and it is cleaned again."""
    print("seed", SEED)
    chance = random.Random(SEED)
    topic = "table"
    broker.create_topic(topic, **{name.replace(".", "_"): value for name, value in BY_HAND.items()})
    plain = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    transactional = transactor(broker.bootstrap, "table")
    records = 0
    for _ in range(2):
        for _ in range(12):
            producer, in_transaction = (transactional, True) if chance.random() < 0.4 else (plain, False)
            if in_transaction:
                producer.begin_transaction()
            for _ in range(chance.randrange(1, 12)):
                value = b"v" * chance.randrange(10, 90) if chance.random() < 0.9 else None
                producer.produce(topic, value, b"%d" % chance.randrange(25), partition=0)
            assert producer.flush(30) == 0
            if in_transaction and chance.random() < 0.5:
                producer.commit_transaction(30)
            elif in_transaction:
                producer.abort_transaction(30)
        until_decided(broker.bootstrap, topic)
        before = counted(broker.bootstrap, topic, [0]).counts[0].records
        compacted = compact_now(int(broker.bootstrap.rsplit(":", 1)[1]), topic=topic)
        assert compacted.error_code == 0, compacted
        # The cleaner writes its counts beside what it writes.
        cleaned = broker.data / f"{topic}-0" / "00000000000000000000.log"
        counts = RecordCounts.parse(
            cleaned.with_suffix(".counts").read_bytes(), base_offset=0, size_bytes=cleaned.stat().st_size
        )
        assert counts.excludes_aborted
        assert not counts.is_plain
        records = check(broker, topic, positions=2).counts[0].records
        assert 0 < records < before
    commit(broker.bootstrap, "table-reader", topic, 0)
    (found,) = CommandLine(broker.bootstrap).ok("group", "lag", "table-reader", "--window", "0", "--json").objects
    assert (found["lag"], found["lag_is_exact"]) == (records, True)
    broker.kill()
    broker.start()
    assert check(broker, topic, positions=1).counts[0].records == records


@pytest.mark.slow
def test_an_open_transaction_is_undecided_and_nobodys_fault(broker: EmbeddedBroker) -> None:
    topic, cli = "undecided", CommandLine(broker.bootstrap)
    broker.create_topic(topic)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    wrote(plain, topic, 3)
    open_one = transactor(broker.bootstrap, "open-one")
    open_one.begin_transaction()
    wrote(open_one, topic, 2)
    wrote(plain, topic, 4)
    commit(broker.bootstrap, "waits", topic, 3)
    (found,) = cli.ok("group", "lag", "waits", "--window", "0", "--json").objects
    assert (found["lag"], found["undecided"], found["lag_is_exact"]) == (0, 6, True)
    assert (found["verdict"], found["high_watermark"]) == ("ok", 9)
    assert found["why"] == "caught up with what is decided, and 6 records wait for open transactions"
    assert cli.ok("group", "lag", "waits", "--max-lag", "0").status == 0
    lines = cli.ok("group", "lag", "waits", "--window", "0").lines
    assert lines[2] == "verdict   ok: caught up, 6 records undecided"
    assert " 0 (+6 undecided) " in lines[-1]
    commit(broker.bootstrap, "waits", topic, 1)
    assert " 2 (+6 undecided) " in cli.ok("group", "lag", "waits", "--window", "0").lines[-1]
    # Who reads uncommitted ones may be further.
    commit(broker.bootstrap, "waits", topic, 6)
    (found,) = cli.ok("group", "lag", "waits", "--window", "0", "--json").objects
    assert (found["lag"], found["undecided"]) == (0, 3)
    open_one.abort_transaction(30)
    until_decided(broker.bootstrap, topic)
    commit(broker.bootstrap, "waits", topic, 0)
    (found,) = cli.ok("group", "lag", "waits", "--window", "0", "--json").objects
    assert (found["lag"], found["undecided"], found["high_watermark"]) == (7, 0, 10)
    assert " 7 " in cli.ok("group", "lag").lines[-1], "in the line of the group, too, without a ~"


def test_what_the_coordinator_remembers_is_counted(broker: EmbeddedBroker) -> None:
    topic = "remembered"
    broker.create_topic(topic)
    producer = transactor(broker.bootstrap, "remembered")
    for _ in range(3):
        producer.begin_transaction()
        wrote(producer, topic, 1)
        producer.commit_transaction(30)
    commit(broker.bootstrap, "reader", topic, 1)

    def is_counted() -> bool:
        look = last_look(broker.bootstrap, "reader")
        return look is not None and (look.high_watermark, look.records, look.undecided) == (6, 2, 0)

    until("a look that counted", is_counted)


def last_look(bootstrap: str, group: str) -> Any:
    host, port = bootstrap.rsplit(":", 1)
    with Conversation(host, int(port), 30) as conversation:
        answer = conversation.ask(GroupLagRequest(group_ids=[group]), GroupLagResponse)
    assert answer is not None
    return answer.groups[0].positions[0].looks[-1] if answer.groups else None


def test_positions_outside_the_log(broker: EmbeddedBroker) -> None:
    topic = "outside"
    broker.create_topic(topic)
    producer = transactor(broker.bootstrap, "outside")
    for _ in range(4):
        producer.begin_transaction()
        wrote(producer, topic, 2)
        producer.commit_transaction(30)
    until_decided(broker.bootstrap, topic)
    CommandLine(broker.bootstrap).ok("topic", "trim", topic, "--before", "4", "--partition", "0", "--yes")
    told = counted(broker.bootstrap, topic, [0, 4, 11, 12, 500, -1, 1 << 62])
    assert (told.log_start_offset, told.last_stable_offset, told.high_watermark) == (4, 12, 12)
    assert [each.records for each in told.counts] == [5, 5, 0, 0, 0, 5, 0]
    assert [each.undecided for each in told.counts] == [0] * 7
    assert counted(broker.bootstrap, "nowhere", [0]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def metrics_of(node: EmbeddedBroker) -> dict[tuple[str, str, str], float]:
    """By metric, group and topic, what the page of a node says."""
    found: dict[tuple[str, str, str], float] = {}
    url = re.findall(r"metrics at (http://\S+)/metrics", node.stderr_text())[-1]
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    for sample in (sample for family in families for sample in family.samples):
        group = sample.labels.get("consumergroup") or sample.labels.get("group", "")
        found[sample.name, group, sample.labels.get("topic", "")] = sample.value
    return found


def test_all_that_tell_of_lag_tell_the_same(broker: EmbeddedBroker) -> None:
    """`group lag`, `group describe`, and the families of `/metrics` that dashboards know."""
    topic, group, cli = "one-number", "one-number-reader", CommandLine(broker.bootstrap)
    broker.create_topic(topic)
    producer = transactor(broker.bootstrap, "one-number")
    for records, commits in ((3, True), (20, False), (2, True)):
        producer.begin_transaction()
        wrote(producer, topic, records)
        producer.commit_transaction(30) if commits else producer.abort_transaction(30)
    until_decided(broker.bootstrap, topic)
    producer.begin_transaction()
    wrote(producer, topic, 4)
    commit(broker.bootstrap, group, topic, 1)
    (lag,) = cli.ok("group", "lag", group, "--window", "0", "--json").objects
    (described,) = cli.ok("group", "describe", group, "--json").objects
    (position,) = described["offsets"]
    assert lag["high_watermark"] - lag["committed_offset"] == 31, "offsets, of markers and aborted records as well"
    for told in (lag, position):
        assert (told["lag"], told["undecided"], told["lag_is_exact"]) == (4, 4, True)
    assert cli.ok("group", "describe", group).lines[-1].split()[:7] == [topic, "0", "1", "32", "4", "(+4", "undecided)"]
    page = metrics_of(broker)
    assert page["kafka_consumergroup_lag", group, topic] == 4
    assert page["kafka_consumergroup_group_sum_lag", group, ""] == 4
    producer.commit_transaction(30)
    until_decided(broker.bootstrap, topic)
    # At the next look, or at once: the page never shows more than what is there to be read.
    assert metrics_of(broker)["kafka_consumergroup_lag", group, topic] == 8
    commit(broker.bootstrap, group, topic, 32)
    page = metrics_of(broker)
    assert page["kafka_consumergroup_lag", group, topic] == 0, "only a marker is unread"
    assert page["kafka_consumergroup_current_offset", group, topic] == 32


@pytest.mark.slow
def test_partitions_that_other_nodes_lead() -> None:
    """The coordinator counts what it has a replica of, and asks the leaders of all others."""
    with embedded(nodes=3, properties=PROPERTIES) as cluster:
        topics = [f"spread-{at}" for at in range(6)]
        for topic in topics:
            cluster.create_topic(topic, replication_factor=1)
        # One more, of which everybody has a copy.
        cluster.create_topic("copied", replication_factor=3, internal_segment_bytes=300)
        cluster.wait_in_sync("copied")
        topics.append("copied")
        producer = transactor(cluster.bootstrap, "spread")
        for commits in (True, False, True):
            producer.begin_transaction()
            for topic in topics:
                producer.produce(topic, b"v", partition=0)
            assert producer.flush(30) == 0
            if commits:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
        for topic in topics:
            commit(cluster.bootstrap, "spread-reader", topic, 0)

        def looks() -> list[tuple[int, int]]:
            found = []
            for address in cluster.bootstrap.split(","):
                host, port = address.rsplit(":", 1)
                with Conversation(host, int(port), 30) as conversation:
                    answer = conversation.ask(GroupLagRequest(group_ids=["spread-reader"]), GroupLagResponse)
                assert answer is not None
                for group in answer.groups:
                    found += [(each.looks[-1].records, each.looks[-1].undecided) for each in group.positions]
            return found

        until("all of them counted", lambda: looks() == [(2, 0)] * len(topics))
        told = CommandLine(cluster.bootstrap).ok("group", "lag", "spread-reader", "--window", "0", "--json").objects
        assert [(each["lag"], each["lag_is_exact"]) for each in told] == [(2, True)] * len(topics)
        (described,) = CommandLine(cluster.bootstrap).ok("group", "describe", "spread-reader", "--json").objects
        assert [(each["lag"], each["lag_is_exact"]) for each in described["offsets"]] == [(2, True)] * len(topics)
        # A broker that does not lead a partition says so.
        codes = {counted(address, topics[0], [0]).error_code for address in cluster.bootstrap.split(",")}
        assert codes == {0, ErrorCode.NOT_LEADER_OR_FOLLOWER}
        # A follower that becomes the leader has counted what it fetched.
        leader = cluster.leader_of("copied")
        cluster.kill(leader)
        until("another leader", lambda: cluster.leader_of("copied") not in (leader, -1))
        address = cluster.bootstrap.split(",")[cluster.leader_of("copied") - 1]

        def has_counted() -> bool:
            told = counted(address, "copied", list(range(7)))
            return told.error_code == 0 and told.last_stable_offset == 6

        until("what was committed is known", has_counted)
        told = counted(address, "copied", list(range(7)))
        assert [each.records for each in told.counts] == [2, 1, 1, 1, 1, 0, 0]
