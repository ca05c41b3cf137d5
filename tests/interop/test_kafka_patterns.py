"""Patterns beside Apache Kafka: the same are refused, and the same topics are matched by the others."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from bench.brokers import Broker
from tests.clients.kafka_server import kafka
from tests.hostile.peer import Peer

import strandline
from strandline.codec.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.errors import ErrorCode

__all__ = ["kafka"]

pytestmark = [pytest.mark.slow, pytest.mark.java]

PATIENCE_S = 60.0
TOPICS = ("pat-orders", "pat-orders-eu", "pat.orders.us", "pat_Users", "pat-x1")
REFUSED = (
    "(pat",
    "*",
    "[z-a]",
    r"(p)\1",
    "(?=pat)",
    "(?!pat)",
    "a{1001}",
    "a**",
    "(?P<n",
    r"\8",
    "(?>pat)",
    "[[:foo:]]",
)
MATCHING = (
    "pat-orders",
    "pat-orders.*",
    "pat.orders.*",
    "(?i)PAT_USERS",
    r"pat[-_.]\w+",
    r"pat-x\d",
    "pat-(orders|x1)",
    "pat-orders|pat-x1",
    r"\Apat-x1\z",
    "pat-x1$",
    "p.*?1",
    r"\Qpat.orders\E.*",
    r"[[:alpha:]]+-x1",
    r"\pL+_\PN+",
    "orders",
)


class Asked:
    """A broker with the topics, and what its coordinator says to patterns."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in TOPICS]
        self.peer.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        self._wait(lambda: set(self.names().values()) >= set(TOPICS))
        key = ["any"]
        self._wait(
            lambda: self.peer.ask(FindCoordinatorRequest(coordinator_keys=key), 4).coordinators[0].error_code == 0
        )

    @staticmethod
    def _wait(holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def names(self) -> dict[uuid.UUID, str]:
        asked = [MetadataRequestTopic(name=name) for name in TOPICS]
        answer = self.peer.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12)
        return {topic.topic_id: topic.name for topic in answer.topics if topic.error_code == 0}

    def join(self, pattern: str) -> tuple[int, set[str]]:
        """The code, and the topics that the only member of a new group is given; empty if none come for a while."""
        group_id, member_id = f"g-{uuid.uuid4()}", str(uuid.uuid4())
        epoch, deadline, quiet = 0, time.monotonic() + PATIENCE_S, 0
        while quiet < 20:
            assert time.monotonic() < deadline
            request = ConsumerGroupHeartbeatRequest(
                group_id=group_id,
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=10_000 if epoch == 0 else -1,
                subscribed_topic_regex=pattern if epoch == 0 else None,
                topic_partitions=[] if epoch == 0 else None,
            )
            answer = self.peer.ask(request, 1)
            if answer.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
                time.sleep(0.05)
                continue
            if answer.error_code:
                return answer.error_code, set()
            epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                names = self.names()
                return 0, {names.get(each.topic_id, "?") for each in answer.assignment.topic_partitions}
            quiet += 1
            time.sleep(0.1)
        return 0, set()


@pytest.fixture(scope="module")
def brokers(kafka: Broker) -> Iterator[tuple[Asked, Asked]]:
    port = int(kafka.bootstrap.rsplit(":", 1)[1])
    with strandline.embedded() as log, Peer(log.port) as ours, Peer(port) as kafkas:
        yield Asked(ours), Asked(kafkas)


@pytest.mark.parametrize("pattern", REFUSED)
def test_the_same_patterns_are_refused(brokers: tuple[Asked, Asked], pattern: str) -> None:
    ours, kafkas = (broker.join(pattern) for broker in brokers)
    assert ours == kafkas == (ErrorCode.INVALID_REGULAR_EXPRESSION, set())


@pytest.mark.parametrize("pattern", MATCHING)
def test_the_same_topics_are_matched(brokers: tuple[Asked, Asked], pattern: str) -> None:
    ours, kafkas = (broker.join(pattern) for broker in brokers)
    assert ours == kafkas


def test_topics_of_the_cluster_itself_are_matched_too(brokers: tuple[Asked, Asked]) -> None:
    ours, kafkas = (broker.join("__consumer_offsets") for broker in brokers)
    assert ours == kafkas == (0, {"?"})
