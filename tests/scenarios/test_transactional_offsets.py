"""Offsets within transactions on real nodes: who may commit them, who sees them when, and what a crash takes along."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.scenarios.transactional_clients import PATIENCE_S, TRY_AGAIN, PlainSpoken, refusal, stock_producer

import strandline
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from strandline.codec.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.embedded_cluster import EmbeddedCluster

pytestmark = pytest.mark.timeout(180)

E = ErrorCode


class Committer(PlainSpoken):
    """A producer that commits offsets of a group, and nothing else."""

    def group_port(self, group: str) -> int:
        def ask() -> tuple[int, int]:
            (found,) = self.peer(self._ports[0]).ask(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators
            return found.error_code, found.port

        return self._patiently(ask)

    def commit(self, group: str, topic: str, offset: int, *, version: int = 5, epoch: int | None = None) -> ErrorCode:
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic, partitions=[TxnOffsetCommitRequestPartition(committed_offset=offset)]
                )
            ],
        )

        def ask() -> tuple[int, int]:
            response = self.peer(self.group_port(group)).ask(request, version)
            code = response.topics[0].partitions[0].error_code
            return (code, code) if code in TRY_AGAIN else (0, code)

        return E(self._patiently(ask))

    def committed(self, group: str, topic: str, *, require_stable: bool = False) -> int | ErrorCode:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        groups = [OffsetFetchRequestGroup(group_id=group, topics=topics)]

        def ask() -> tuple[int, int | ErrorCode]:
            request = OffsetFetchRequest(groups=groups, require_stable=require_stable)
            (answered,) = self.peer(self.group_port(group)).ask(request, 9).groups
            if answered.error_code:
                return answered.error_code, -1
            partition = answered.topics[0].partitions[0]
            return 0, E(partition.error_code) if partition.error_code else partition.committed_offset

        return self._patiently(ask)

    def settled(self, group: str, topic: str) -> int | ErrorCode:
        """What is committed once no transaction is about to change it."""
        until = time.monotonic() + PATIENCE_S
        while (found := self.committed(group, topic, require_stable=True)) is E.UNSTABLE_OFFSET_COMMIT:
            assert time.monotonic() < until
        return found


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedBroker]:
    with strandline.embedded(properties={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


@pytest.fixture
def topic(node: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    node.create_topic(name, partitions=1)
    return name


def test_only_who_asks_for_stable_offsets_has_to_wait(node: EmbeddedBroker, topic: str) -> None:
    with Committer([node.port], topic) as producer:
        producer.init()
        assert producer.commit(topic, topic, 5) is E.NONE
        assert producer.committed(topic, topic) == -1
        assert producer.committed(topic, topic, require_stable=True) is E.UNSTABLE_OFFSET_COMMIT
        assert producer.end(commits=True).error_code == E.NONE
        assert producer.settled(topic, topic) == 5
        assert producer.commit(topic, topic, 9) is E.NONE
        assert producer.committed(topic, topic) == 5
        assert producer.end(commits=False).error_code == E.NONE
        assert producer.settled(topic, topic) == 5


def test_a_late_commit_of_the_transaction_before_does_not_go_into_the_next(node: EmbeddedBroker, topic: str) -> None:
    with Committer([node.port], topic) as producer:
        producer.init()
        first_epoch = producer.epoch
        assert producer.commit(topic, topic, 5) is E.NONE
        assert producer.end(commits=True).error_code == E.NONE
        assert producer.commit(topic, topic, 7) is E.NONE
        assert producer.commit(topic, topic, 6, epoch=first_epoch) is E.INVALID_PRODUCER_EPOCH
        assert producer.end(commits=True).error_code == E.NONE
        assert producer.settled(topic, topic) == 7


def test_who_adds_no_offsets_to_the_transaction_commits_none(node: EmbeddedBroker, topic: str) -> None:
    """Clients of these versions say AddOffsetsToTxn first."""
    with Committer([node.port], topic) as producer:
        producer.init()
        assert producer.commit(topic, topic, 5, version=4) is E.TRANSACTION_ABORTABLE
        assert producer.commit(topic, topic, 5, version=3) is E.INVALID_TXN_STATE
        assert producer.committed(topic, topic, require_stable=True) == -1


def test_a_crash_takes_neither_what_is_pending_nor_what_is_decided(node: EmbeddedBroker, topic: str) -> None:
    with Committer([node.port], topic) as producer:
        producer.init()
        assert producer.commit(topic, topic, 5) is E.NONE
        node.kill()
        node.start()
        producer.close()
        assert producer.committed(topic, topic, require_stable=True) is E.UNSTABLE_OFFSET_COMMIT
        assert producer.end(commits=True).error_code == E.NONE
        node.kill()
        node.start()
        producer.close()
        assert producer.settled(topic, topic) == 5


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_others_think_gone_commits_nothing(node: EmbeddedBroker, topic: str, protocol: str) -> None:
    """Two processes with one group: the first is thought dead and does its work twice, but counts once (KIP-447)."""
    plain = Producer({"bootstrap.servers": node.bootstrap, "log_level": 2})
    plain.produce(topic, b"work")
    assert plain.flush(PATIENCE_S) == 0
    settings = {
        "bootstrap.servers": node.bootstrap,
        "group.id": topic,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 2,
    }
    zombie = Consumer(settings)
    zombie.subscribe([topic])
    message = zombie.poll(PATIENCE_S)
    assert message is not None
    assert message.error() is None
    membership = zombie.consumer_group_metadata()
    zombie.close()
    producer = stock_producer(node.bootstrap, f"zombie of {topic}")
    producer.begin_transaction()
    after = [TopicPartition(topic, 0, 1)]
    error = refusal(producer.send_offsets_to_transaction, after, membership, PATIENCE_S)
    assert error.txn_requires_abort(), error
    assert error.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)
    producer.abort_transaction(PATIENCE_S)
    heir = Consumer(settings)
    heir.subscribe([topic])
    message = heir.poll(PATIENCE_S)
    assert message is not None
    assert message.offset() == 0
    producer.begin_transaction()
    producer.send_offsets_to_transaction(after, heir.consumer_group_metadata(), PATIENCE_S)
    producer.commit_transaction(PATIENCE_S)
    (committed,) = heir.committed(after, timeout=PATIENCE_S)
    assert committed.offset == 1
    heir.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with strandline.embedded(nodes=3) as nodes:
        yield nodes


@pytest.mark.slow
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_the_groups_coordinator_is_lost_within_the_transaction(cluster: EmbeddedCluster, commits: bool) -> None:
    name = f"group-lost-{commits}"
    cluster.create_topic(name, partitions=1)
    by_port = {each.port: node_id for node_id, each in cluster.nodes.items()}
    with Committer(list(by_port), name) as producer:
        producer.init()
        assert producer.commit(name, name, 3) is E.NONE
        assert producer.end(commits=True).error_code == E.NONE
        assert producer.commit(name, name, 5) is E.NONE
        lost = by_port[producer.group_port(name)]
        left = [port for port, node_id in by_port.items() if node_id != lost]
        with Committer(left, name) as heir:
            heir.go_on(producer.producer_id, producer.epoch)
            cluster.kill(lost)
            assert heir.end(commits=commits).error_code == E.NONE
            assert heir.settled(name, name) == (5 if commits else 3)
    cluster.start_all()
