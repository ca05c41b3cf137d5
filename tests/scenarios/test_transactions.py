"""Transactions through the front door: committed, aborted, fenced, timed out, and carried through the loss of nodes."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.scenarios.transactional_clients import (
    PATIENCE_S,
    PlainSpoken,
    read,
    refusal,
    stock_producer,
    transact,
)

import strandline
from strandline.codec.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.embedded_cluster import EmbeddedCluster

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedBroker]:
    with strandline.embedded(properties={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


@pytest.fixture
def topic(node: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    """One of its own for each test, of two partitions."""
    name: str = request.node.name[:200]
    node.create_topic(name, partitions=2)
    return name


def test_what_is_committed_is_read_and_what_is_aborted_is_not(node: EmbeddedBroker, topic: str) -> None:
    producer = stock_producer(node.bootstrap, "accounts")
    transact(producer, topic, ["a1", "a2", "a3"], partitions=2)
    transact(producer, topic, ["b1", "b2"], partitions=2, commits=False)
    transact(producer, topic, ["c1", "c2"], partitions=2)
    assert sorted(read(node.bootstrap, topic, 5, partitions=2)) == ["a1", "a2", "a3", "c1", "c2"]
    everything = read(node.bootstrap, topic, 7, partitions=2, isolation="read_uncommitted")
    assert sorted(everything) == ["a1", "a2", "a3", "b1", "b2", "c1", "c2"]


def test_whoever_takes_an_id_over_fences_the_one_before(node: EmbeddedBroker, topic: str) -> None:
    first = stock_producer(node.bootstrap, "accounts")
    first.begin_transaction()
    first.produce(topic, b"of the zombie", partition=0)
    assert first.flush(PATIENCE_S) == 0
    second = stock_producer(node.bootstrap, "accounts")
    transact(second, topic, ["of the heir"])
    assert refusal(first.commit_transaction, PATIENCE_S).fatal()
    assert read(node.bootstrap, topic, 1) == ["of the heir"]


def test_a_transaction_that_is_open_for_too_long_is_aborted(node: EmbeddedBroker, topic: str) -> None:
    slow = stock_producer(node.bootstrap, "slow", transaction_timeout_ms=1_000, message_timeout_ms=1_000)
    slow.begin_transaction()
    slow.produce(topic, b"too late", partition=0)
    assert slow.flush(PATIENCE_S) == 0
    # It stands behind the open transaction: it is seen when that has ended.
    transact(stock_producer(node.bootstrap, "quick"), topic, ["in time"])
    assert read(node.bootstrap, topic, 1) == ["in time"]
    error = refusal(slow.commit_transaction, PATIENCE_S)
    assert error.fatal() or error.txn_requires_abort(), error


def test_a_producer_of_version_2_goes_on_when_the_cluster_is_set_back() -> None:
    """It hears of that when it connects anew. Until then each end gives it another epoch, with sequences from 0 on:
    with the epoch that it had, its next records would pass for those of the transaction before, and be dropped."""
    with (
        strandline.embedded() as broker,
        PlainSpoken([broker.port], "accounts") as producer,
    ):
        broker.create_topic("t")
        producer.init()
        back = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
        answer = producer.peer(broker.port).ask(UpdateFeaturesRequest(feature_updates=[back]), 1)
        assert answer.error_code == ErrorCode.NONE, answer
        for value in ("a", "b", "c"):
            assert producer.produce("t", value) == ErrorCode.NONE
            assert producer.end(commits=True).error_code == ErrorCode.NONE
            producer.sequences.clear()
        assert read(broker.bootstrap, "t", 3) == ["a", "b", "c"]


def test_a_producer_may_not_ask_for_more_time_than_there_is(node: EmbeddedBroker, topic: str) -> None:
    error = refusal(lambda: stock_producer(node.bootstrap, "patient", transaction_timeout_ms=900_001))
    assert error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_a_node_that_is_killed_goes_on_where_it_was(node: EmbeddedBroker, topic: str) -> None:
    transact(stock_producer(node.bootstrap, "accounts"), topic, ["a1"])
    open_for_ever = stock_producer(node.bootstrap, "gone", transaction_timeout_ms=5_000, message_timeout_ms=5_000)
    open_for_ever.begin_transaction()
    open_for_ever.produce(topic, b"left behind", partition=0)
    assert open_for_ever.flush(PATIENCE_S) == 0
    node.kill()
    node.start()
    transact(stock_producer(node.bootstrap, "accounts"), topic, ["a2"])
    assert read(node.bootstrap, topic, 2) == ["a1", "a2"]


def test_transactions_v2_have_an_epoch_each(node: EmbeddedBroker, topic: str) -> None:
    with PlainSpoken([node.port], "accounts") as producer:
        producer.init()
        first_epoch = producer.epoch
        assert producer.produce(topic, "a1") == ErrorCode.NONE
        assert producer.produce(topic, "a2") == ErrorCode.NONE
        assert producer.end(commits=True).error_code == ErrorCode.NONE
        assert producer.epoch == first_epoch + 1
        assert producer.produce(topic, "b1") == ErrorCode.NONE
        # The answer was lost, perhaps: the first transaction is committed, and only that one.
        again = producer.end(commits=True, epoch=first_epoch, goes_on=False)
        assert again.error_code in (ErrorCode.NONE, ErrorCode.PRODUCER_FENCED)
        assert producer.end(commits=False).error_code == ErrorCode.NONE
        assert producer.produce(topic, "c1") == ErrorCode.NONE
        assert producer.end(commits=True).error_code == ErrorCode.NONE
    assert read(node.bootstrap, topic, 3) == ["a1", "a2", "c1"]


def test_a_batch_of_the_transaction_before_is_fenced(node: EmbeddedBroker, topic: str) -> None:
    with PlainSpoken([node.port], "accounts") as producer, PlainSpoken([node.port], "accounts") as late:
        producer.init()
        late.go_on(producer.producer_id, producer.epoch)
        assert producer.produce(topic, "a1") == ErrorCode.NONE
        assert producer.end(commits=True).error_code == ErrorCode.NONE
        late.sequences[topic, 0] = 1
        assert late.produce(topic, "too late") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert producer.produce(topic, "b1") == ErrorCode.NONE
        assert producer.end(commits=True).error_code == ErrorCode.NONE
    assert read(node.bootstrap, topic, 2) == ["a1", "b1"]


def test_a_partition_that_nobody_added_takes_nothing(node: EmbeddedBroker, topic: str) -> None:
    with PlainSpoken([node.port], "accounts") as producer:
        producer.init()
        # Clients of these versions say AddPartitionsToTxn first.
        assert producer.produce(topic, "hanging", version=11) == ErrorCode.TRANSACTION_ABORTABLE
        assert producer.produce(topic, "hanging", version=9) == ErrorCode.INVALID_TXN_STATE
    assert read(node.bootstrap, topic, 0, isolation="read_uncommitted") == []


def test_offsets_are_committed_with_the_transaction_or_not_at_all(node: EmbeddedBroker, topic: str) -> None:
    """Read, write and move on as one: what is aborted is done again, and done once."""
    plain = Producer({"bootstrap.servers": node.bootstrap, "log_level": 2})
    for number in range(6):
        plain.produce(topic, f"{number}", partition=0)
    assert plain.flush(PATIENCE_S) == 0
    producer = stock_producer(node.bootstrap, f"worker of {topic}")
    for commits in (False, True, False, True):
        worker = Consumer(
            {
                "bootstrap.servers": node.bootstrap,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 2,
            }
        )
        worker.subscribe([topic], on_assign=only_the_first_partition)
        messages = [take(worker) for _ in range(3)]
        producer.begin_transaction()
        for message in messages:
            producer.produce(topic, b"done " + message.value(), partition=1)
        after = TopicPartition(topic, 0, messages[-1].offset() + 1)
        producer.send_offsets_to_transaction([after], worker.consumer_group_metadata(), PATIENCE_S)
        if commits:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
        worker.close()
    done = [value for value in read(node.bootstrap, topic, 12, partitions=2) if value.startswith("done")]
    assert done == [f"done {number}" for number in range(6)]


def only_the_first_partition(consumer: Consumer, assigned: list[TopicPartition]) -> None:
    consumer.assign([each for each in assigned if each.partition == 0])


def take(consumer: Consumer) -> Message:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            return message
    raise AssertionError("nothing to be read")


# ---- several nodes


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with strandline.embedded(nodes=3) as nodes:
        yield nodes


def test_coordinators_and_partitions_are_everywhere(cluster: EmbeddedCluster) -> None:
    """Six ids and six partitions on three nodes: most markers and questions go to another node."""
    cluster.create_topic("everywhere", partitions=6)
    for number in range(6):
        producer = stock_producer(cluster.bootstrap, f"id {number}")
        transact(producer, "everywhere", [f"{number} {each}" for each in range(6)], partitions=6)
        transact(producer, "everywhere", ["never"] * 6, partitions=6, commits=False)
    with PlainSpoken([node.port for node in cluster.nodes.values()], "spoken") as spoken:
        spoken.init()
        for index in range(6):
            assert spoken.produce("everywhere", f"spoken {index}", partition=index) == ErrorCode.NONE
        assert spoken.end(commits=True).error_code == ErrorCode.NONE
    expected = [f"{number} {each}" for number in range(6) for each in range(6)]
    expected += [f"spoken {index}" for index in range(6)]
    assert sorted(read(cluster.bootstrap, "everywhere", len(expected), partitions=6)) == sorted(expected)


@dataclasses.dataclass
class Apart:
    """A transaction with one record, whose coordinator is another node than the leader of its partition."""

    producer: PlainSpoken
    topic: str
    partition: int
    leader: int
    coordinator: int
    third: int


@contextlib.contextmanager
def apart(cluster: EmbeddedCluster, topic: str) -> Iterator[Apart]:
    cluster.create_topic(topic, partitions=3)
    by_port = {node.port: node_id for node_id, node in cluster.nodes.items()}
    with PlainSpoken(list(by_port), topic) as finder:
        coordinator = by_port[finder.coordinator_port()]
    leaders = {partition: cluster.leader_of(topic, partition) for partition in range(3)}
    partition, leader = next(each for each in leaders.items() if each[1] != coordinator)
    third = next(node_id for node_id in cluster.nodes if node_id not in (coordinator, leader))
    with PlainSpoken([cluster.nodes[third].port], topic) as producer:
        producer.init()
        assert producer.produce(topic, "decided", partition=partition) == ErrorCode.NONE
        yield Apart(producer, topic, partition, leader, coordinator, third)
    cluster.start_all()
    cluster.wait_in_sync(topic)


def goes_on(cluster: EmbeddedCluster, play: Apart, producer: PlainSpoken, *, sees: list[str]) -> None:
    """The producer commits another record, and a reader sees that, after what was decided before."""
    assert producer.produce(play.topic, "next", partition=play.partition) == ErrorCode.NONE
    assert producer.end(commits=True).error_code == ErrorCode.NONE
    assert read(cluster.bootstrap, play.topic, len(sees) + 1, partitions=3) == [*sees, "next"]


@pytest.mark.slow
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_the_leader_is_lost_between_decision_and_marker(cluster: EmbeddedCluster, commits: bool) -> None:
    with apart(cluster, f"leader-lost-{commits}") as play:
        # It takes no marker any more, and the decision needs only the coordinator and its replicas.
        cluster.pause(play.leader)
        assert play.producer.end(commits=commits).error_code == ErrorCode.NONE
        cluster.kill(play.leader)
        goes_on(cluster, play, play.producer, sees=["decided"] if commits else [])


@pytest.mark.slow
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_the_coordinator_is_lost_between_decision_and_markers(cluster: EmbeddedCluster, commits: bool) -> None:
    with apart(cluster, f"coordinator-lost-{commits}") as play:
        cluster.pause(play.leader)
        assert play.producer.end(commits=commits).error_code == ErrorCode.NONE
        cluster.kill(play.coordinator)
        cluster.resume(play.leader)
        with PlainSpoken([cluster.nodes[play.third].port], play.producer.transactional_id) as heir:
            heir.init()
            goes_on(cluster, play, heir, sees=["decided"] if commits else [])
