"""The same odd requests to Apache Kafka 4.3.1 and to us: the same outcome, or a difference that is written down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.brokers import Broker, start_kafka, start_strandline
from bench.kafka_jars import KafkaUnavailable
from tests.hostile import conversations, produce_cases
from tests.hostile.batches import batch, produce
from tests.hostile.conversations import outcome
from tests.hostile.peer import Peer, request
from tests.hostile.process import until

from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.errors import ErrorCode

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    root: Path = tmp_path_factory.mktemp("brokers")
    started: list[Broker] = []
    try:
        started.append(start_strandline(root / "strandline"))
        started.append(start_kafka(root / "kafka"))
        for broker in started:
            for topic, configs in produce_cases.TOPICS.items():
                broker.create_topic(topic, 2, configs)
            with Peer(broker.port) as peer:
                peer.ask(produce(produce_cases.TOPIC, batch()), 9)
            until(lambda broker=broker: has_offsets_topic(broker), "the offsets topic is there")  # type: ignore[misc]
        yield started[0], started[1]
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    finally:
        for broker in started:
            broker.discard()


def has_offsets_topic(broker: Broker) -> bool:
    with Peer(broker.port) as peer:
        return bool(peer.ask(FindCoordinatorRequest(key="g"), 1).error_code == 0)


def test_produce(brokers: tuple[Broker, Broker]) -> None:
    unlike = {}
    for name, case in produce_cases.CASES.items():
        ours, theirs = (outcome(broker.port, request(case.make(), case.version), 0, case.version) for broker in brokers)
        expected = produce_cases.KAFKA_DIFFERS.get(name, case.code)
        said = words(expected)
        if ours != words(case.code) or theirs != said:
            unlike[name] = f"we say {ours}, Kafka says {theirs}, the table says {words(case.code)} and {said}"
    assert not unlike, "\n".join(f"{name}: {what}" for name, what in unlike.items())


def words(expected: ErrorCode | str) -> str:
    if expected == produce_cases.NO_ANSWER:
        return conversations.SILENT
    assert isinstance(expected, ErrorCode)
    return expected.name if expected else conversations.OK


def test_everything_else(brokers: tuple[Broker, Broker]) -> None:
    unlike = {}
    for name, (content, api_key, version) in conversations.conversations().items():
        ours, theirs = (outcome(broker.port, content, api_key, version) for broker in brokers)
        if theirs != conversations.KAFKA_DIFFERS.get(name, ours) or (name in conversations.KAFKA_DIFFERS) != (
            ours != theirs
        ):
            unlike[name] = f"we say {ours}, Kafka says {theirs}"
    assert not unlike, "\n".join(f"{name}: {what}" for name, what in unlike.items())
