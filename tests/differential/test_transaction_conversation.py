"""The coordinator of transactions answers as Kafka's does, and has the transaction in the same state after each answer.

Without Java the recording is compared: with the state machine alone, and with a node. Another test holds the recording
beside a running Apache Kafka.
"""

from __future__ import annotations

import contextlib

import pytest
from tests.clients.kafka_server import running_kafka
from tests.differential.transaction_conversation import (
    SEEDS,
    OnTheTable,
    OverTheWire,
    all_conversations,
    converse,
    recorded,
)

import strandline

ANSWERS_MIN = 700
WORDS = (
    "NONE",
    "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_TXN_STATE",
    "PRODUCER_FENCED",
    "TRANSACTION_ABORTABLE",
)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_state_machine_answers_as_kafka(seed: int) -> None:
    assert converse(OnTheTable(), seed) == recorded()[str(seed)]


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(SEEDS[:2], id="two"), pytest.param(SEEDS[2:], id="the-others", marks=pytest.mark.slow)],
)
def test_a_node_answers_as_kafka(seeds: range) -> None:
    with strandline.embedded() as log, contextlib.closing(OverTheWire(log.port)) as node:
        conversations = {seed: converse(node, seed) for seed in seeds}
    theirs = recorded()
    assert conversations == {seed: theirs[str(seed)] for seed in conversations}


def test_the_conversations_touch_everything() -> None:
    lines = [line for transcript in recorded().values() for line in transcript]
    assert len(lines) >= ANSWERS_MIN
    said = {word for _, words, _ in lines for word in words.split()}
    assert said >= set(WORDS)
    states = {state.split()[0] for _, _, state in lines if state}
    assert states == {"Empty", "Ongoing", "CompleteCommit", "CompleteAbort"}


@pytest.mark.slow
@pytest.mark.java
def test_the_recording_is_what_kafka_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_kafka(tmp_path_factory) as broker, contextlib.closing(OverTheWire(broker.port)) as kafka:
        assert all_conversations(kafka) == recorded()
