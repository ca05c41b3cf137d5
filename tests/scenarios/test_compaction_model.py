"""A compacted topic of a real broker beside a dictionary: whatever is written, cleaned and restarted, they are equal.

The simulation tells longer stories, with elections and power cuts (`tests/simulation/test_compaction_model.py`). Here
the cleaner is a process of its own, the files are real, and stock clients write and read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from tests.clients.positions import until_decided
from tests.scenarios.compaction_ground import BY_HAND, WAIT_S_MAX, compact_now, folded, make, put, read

import strandline
from strandline.errors import ErrorCode

CONFIG = BY_HAND | {"delete.retention.ms": "0", "internal.segment.bytes": "1500"}
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
VALUES = st.one_of(st.none(), st.binary(min_size=1, max_size=200))
WRITES = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6)
STORIES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), WRITES),
        st.tuples(st.just("put"), WRITES),
        st.tuples(st.just("commit"), WRITES),
        st.tuples(st.just("abort"), WRITES),
        st.tuples(st.just("clean"), st.none()),
        st.tuples(st.just("clean"), st.none()),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("kill"), st.none()),
    ),
    min_size=5,
    max_size=20,
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_topics = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with strandline.embedded(properties={"transaction.state.log.num.partitions": "1"}) as log:
        yield log


def transact(bootstrap: str, topic: str, writes: list[tuple[bytes, bytes | None]], *, commits: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "compression.type": "lz4"})
    producer.init_transactions(WAIT_S_MAX)
    producer.begin_transaction()
    for key, value in writes:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(WAIT_S_MAX) == 0
    (producer.commit_transaction if commits else producer.abort_transaction)(WAIT_S_MAX)


STORY: list[tuple[str, Any]] = [
    ("put", [(key, key * 200) for key in (b"a", b"b", b"c", b"d", b"e", b"a")]),
    ("commit", [(b"a", b"committed" * 20), (b"b", None)]),
    ("clean", None),
    ("abort", [(b"a", b"aborted"), (b"c", None)]),
    ("kill", None),
    ("put", [(b"b", b"back" * 50), (b"d", None), (b"e", b"later" * 40)]),
    ("restart", None),
]
"""One of each kind, so that a key is cleaned, deleted and written again before and after a kill."""


@pytest.mark.slow
def test_a_compacted_topic_equals_a_dictionary(broker: Any) -> None:
    play(broker, STORY)


@pytest.mark.slow
@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(story=STORIES)
def test_a_compacted_topic_equals_a_dictionary_whatever_is_done(broker: Any, story: list[tuple[str, Any]]) -> None:
    note(f"{story}")
    play(broker, story)


def play(broker: Any, story: list[tuple[str, Any]]) -> None:
    topic = f"table-{next(_topics)}"
    make(broker.bootstrap, CONFIG, topic=topic)
    expected: dict[bytes | None, bytes] = {}
    at: dict[int, tuple[bytes | None, bytes | None]] = {}
    for number, (verb, what) in enumerate([*story, ("clean", None), ("clean", None)]):
        match verb:
            case "put":
                codec = CODECS[number % len(CODECS)]
                settings = {"compression.type": codec, "batch.num.messages": 3, "enable.idempotence": True}
                offsets = put(broker.bootstrap, what, topic=topic, **settings)
                at |= dict(zip(offsets, what, strict=True))
            case "commit" | "abort":
                transact(broker.bootstrap, topic, what, commits=verb == "commit")
            case "clean":
                # What is not decided is neither read nor cleaned.
                until_decided(broker.bootstrap, topic)
                told = compact_now(broker.port, topic=topic)
                assert told.error_code == ErrorCode.NONE, told
                check(broker.bootstrap, topic, expected, at)
            case "restart":
                broker.restart()
            case "kill":
                broker.kill()
                broker.restart()
        if verb in ("put", "commit"):
            expected = folded([(0, key, value) for key, value in expected.items()] + [(0, *each) for each in what])
    found = check(broker.bootstrap, topic, expected, at)
    assert len(found) == len({key for _, key, _ in found}), "each key is there once"


def check(
    bootstrap: str,
    topic: str,
    expected: dict[bytes | None, bytes],
    at: dict[int, tuple[bytes | None, bytes | None]],
) -> list[tuple[int, bytes | None, bytes | None]]:
    found = read(bootstrap, topic=topic, **{"isolation.level": "read_committed"})
    assert folded(found) == expected
    for offset, key, value in found:
        assert at.get(offset, (key, value)) == (key, value), "an offset names the same record for ever"
    return found
