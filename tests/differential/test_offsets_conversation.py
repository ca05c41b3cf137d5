"""Offsets within transactions are taken, refused and shown as by Kafka, in groups of every kind.

Without Java the recording is compared with a node. Another test holds the recording beside a running Apache Kafka.
"""

from __future__ import annotations

import pytest
from tests.clients.kafka_server import running_kafka
from tests.differential.offsets_conversation import KINDS, SEEDS, SETTINGS, all_conversations, converse, recorded

import strandline

ANSWERS_MIN = 650
WORDS = (
    "NONE",
    "ILLEGAL_GENERATION",
    "INVALID_PRODUCER_EPOCH",
    "INVALID_TXN_STATE",
    "NON_EMPTY_GROUP",
    "OFFSET_METADATA_TOO_LARGE",
    "TRANSACTION_ABORTABLE",
    "UNKNOWN_MEMBER_ID",
)


def check_node(seeds: range) -> None:
    theirs = recorded()
    with strandline.embedded(properties=SETTINGS) as log:
        for seed in seeds:
            assert converse(log.port, seed) == theirs[str(seed)], f"seed {seed}"


@pytest.mark.slow
def test_a_node_answers_as_kafka() -> None:
    check_node(SEEDS[: 2 * len(KINDS)])


@pytest.mark.slow
def test_a_node_answers_as_kafka_in_all_conversations() -> None:
    check_node(SEEDS)


def test_the_conversations_touch_everything() -> None:
    lines = [line for transcript in recorded().values() for line in transcript]
    assert len(lines) >= ANSWERS_MIN
    assert {said for _, said, _ in lines} >= {*WORDS, *KINDS}
    assert any("UNSTABLE_OFFSET_COMMIT" in seen for _, _, seen in lines)


@pytest.mark.slow
@pytest.mark.java
def test_the_recording_is_what_kafka_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_kafka(tmp_path_factory, SETTINGS) as broker:
        assert all_conversations(broker.port) == recorded()
