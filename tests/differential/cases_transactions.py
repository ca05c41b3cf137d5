"""Transactions: what their coordinators, and the leaders of their partitions, answer to sound and odd questions.

Longer stories are in `transaction_conversation` and `offsets_conversation`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.differential.case import Case, case, each, versions_of
from tests.differential.stage import READ, records
from tests.differential.talk import PATIENCE_S, Talk

PRODUCE, INIT, ADD, ADD_OFFSETS, END, MARK, COMMIT, DESCRIBE, LIST = 0, 22, 24, 25, 26, 27, 28, 65, 66
BATCHED_FROM, V2_FROM = 4, 5
AWAY = 987_654_321
"""A producer id that nobody was given."""


def cases() -> Iterator[Case]:
    yield from adding()
    yield from adding_offsets()
    yield from ending()
    yield from marking()
    yield from committing()
    for version in versions_of(END):
        yield case(END, version, "a transaction, and its end twice", partial(whole, version=version))
    yield from looking()


def adding() -> Iterator[Case]:
    def one(transactional_id: str, *topics: tuple[str, list[int]], producer_id: int = AWAY) -> dict[str, Any]:
        return {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": name, "partitions": indexes} for name, indexes in topics],
        }

    def many(transactional_id: str, *topics: tuple[str, list[int]], verify_only: bool = False) -> dict[str, Any]:
        told = {
            "transactional_id": transactional_id,
            "producer_id": AWAY,
            "producer_epoch": 0,
            "verify_only": verify_only,
            "topics": [{"name": name, "partitions": indexes} for name, indexes in topics],
        }
        return {"transactions": [told]}

    questions: dict[str, dict[str, Any]] = {
        "an unknown id": one("who", (READ, [0])),
        "an empty id": one("", (READ, [0])),
        "an unknown topic": one("who", ("nowhere", [0])),
        "an unknown partition beside a known one": one("who", (READ, [0, 9])),
        "partition -1": one("who", (READ, [-1])),
        "an internal topic": one("who", ("__consumer_offsets", [0])),
        "a bad name": one("who", ("a/b", [0])),
        "many: an unknown id": many("who", (READ, [0])),
        "many: an empty id": many("", (READ, [0])),
        "many: an unknown topic": many("who", ("nowhere", [0]), (READ, [0])),
        "many: a look at an unknown id": many("who", (READ, [0]), verify_only=True),
        "many: a look at an empty id": many("", (READ, [0]), verify_only=True),
    }
    for what, fields in questions.items():
        yield from each(ADD, what, **fields)


def adding_offsets() -> Iterator[Case]:
    def asked(transactional_id: str, group_id: str) -> dict[str, Any]:
        return {
            "transactional_id": transactional_id,
            "producer_id": AWAY,
            "producer_epoch": 0,
            "group_id": group_id,
        }

    yield from each(ADD_OFFSETS, "an unknown id", **asked("who", "a group"))
    yield from each(ADD_OFFSETS, "an empty id", **asked("", "a group"))
    yield from each(ADD_OFFSETS, "an empty group", **asked("who", ""))


def ending() -> Iterator[Case]:
    def asked(transactional_id: str, *, epoch: int = 0, committed: bool = True) -> dict[str, Any]:
        return {
            "transactional_id": transactional_id,
            "producer_id": AWAY,
            "producer_epoch": epoch,
            "committed": committed,
        }

    yield from each(END, "an unknown id", **asked("who"))
    yield from each(END, "an empty id", **asked("", committed=False))
    yield from each(END, "a foreign producer id", **asked("t-1"))
    yield from each(END, "epoch -1", **asked("t-1", epoch=-1))


def marking() -> Iterator[Case]:
    def asked(topic: str, *indexes: int) -> dict[str, Any]:
        marker = {
            "producer_id": AWAY,
            "producer_epoch": 0,
            "transaction_result": False,
            "coordinator_epoch": 0,
            "topics": [{"name": topic, "partition_indexes": list(indexes)}],
        }
        return {"markers": [marker]}

    yield from each(MARK, "nothing", markers=[])
    yield from each(MARK, "an unknown topic", **asked("nowhere", 0))
    yield from each(MARK, "an unknown partition", **asked(READ, 99))
    yield from each(MARK, "no partitions", **asked(READ))


def committing() -> Iterator[Case]:
    def asked(transactional_id: str, group_id: str, topic: str = READ) -> dict[str, Any]:
        return {
            "transactional_id": transactional_id,
            "group_id": group_id,
            "producer_id": AWAY,
            "producer_epoch": 0,
            "topics": [
                {
                    "name": topic,
                    "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
                }
            ],
        }

    yield from each(COMMIT, "an unknown id", **asked("who", "a transactional group"))
    yield from each(COMMIT, "an empty group", **asked("who", ""))
    yield from each(COMMIT, "an unknown topic", **asked("who", "a transactional group", "nowhere"))


def whole(talk: Talk, version: int) -> None:
    """Init, one record, end, the same end again, and the other one."""
    name = f"whole-{version}"
    begun = talk.ask(INIT, 4, transactional_id=name, transaction_timeout_ms=60_000)
    producer = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    topic = f"whole-topic-{version}"
    talk.create(topic, 1, retention_ms="-1")
    if version < V2_FROM:
        talk.ask(
            ADD,
            min(version, BATCHED_FROM - 1),
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=[{"name": topic, "partitions": [0]}],
        )
    batch = records(["a"], base_sequence=0, transactional=True, **producer)
    told = {"name": topic, "partition_data": [{"index": 0, "records": batch}]}
    talk.ask(
        PRODUCE,
        12 if version >= V2_FROM else 11,
        transactional_id=name,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[told],
    )
    talk.ask(END, version, transactional_id=name, committed=True, **producer)
    # Until its markers are written a broker says so, or not: that is a matter of a moment.
    until_complete(talk, name)
    talk.ask(END, version, transactional_id=name, committed=True, **producer)
    talk.ask(END, version, transactional_id=name, committed=False, **producer)


def until_complete(talk: Talk, name: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        (state,) = talk.look(DESCRIBE, 0, transactional_ids=[name]).transaction_states
        if state.transaction_state.startswith("Complete"):
            return
    raise AssertionError(f"the markers of {name} are not written")


def looking() -> Iterator[Case]:
    yield from each(DESCRIBE, "nothing", transactional_ids=[])
    yield from each(DESCRIBE, "an unknown id", transactional_ids=["who"])
    yield from each(DESCRIBE, "an empty id", transactional_ids=[""])
    yield from each(DESCRIBE, "an id without a transaction", transactional_ids=["t-1"])
    yield from each(LIST, "a state", state_filters=["Ongoing"])
    yield from each(LIST, "states that are none", state_filters=["ongoing", "nonsense"])
    yield from each(LIST, "a producer id", producer_id_filters=[AWAY])
    yield from each(LIST, "open for long", state_filters=["Ongoing"], duration_filter=3_600_000)
    yield from each(LIST, "an expression", transactional_id_pattern="t-[0-9]")
    yield from each(LIST, "an expression that matches nothing", transactional_id_pattern="none-.*")
    yield from each(LIST, "no expression", transactional_id_pattern="((")
    yield from each(LIST, "an empty expression", state_filters=["Ongoing"], transactional_id_pattern="")
