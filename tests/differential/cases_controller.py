"""ElectLeaders, reassignments, DescribeQuorum and UnregisterBroker, as far as one broker can be asked."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.differential.case import Case, case, each
from tests.differential.stage import READ
from tests.differential.talk import Talk
from tests.differential.words import versions_of

ELECT_LEADERS, REASSIGN, LIST_REASSIGNMENTS, DESCRIBE_QUORUM, UNREGISTER = 43, 45, 46, 55, 64
PREFERRED, UNCLEAN = 0, 1


def cases() -> Iterator[Case]:
    yield from elections()
    yield from reassignments()
    yield from listed()
    yield from quorums()
    yield from unregistrations()


def elections() -> Iterator[Case]:
    def asked(*partitions: int, topic: str = READ) -> dict[str, Any]:
        return {"topic": topic, "partitions": list(partitions)}

    questions: dict[str, list[dict[str, Any]]] = {
        "led as preferred": [asked(0, 1)],
        "an unknown topic": [asked(0, topic="nowhere")],
        "an unknown partition": [asked(9, -1)],
        "a bad name": [asked(0, topic="a/b")],
        "nothing": [],
        "no partitions": [asked()],
        "a partition twice": [asked(0, 0)],
        "a topic twice": [asked(0), asked(1)],
    }
    for what, partitions in questions.items():
        yield from each(ELECT_LEADERS, what, topic_partitions=partitions)
        yield from each(ELECT_LEADERS, f"{what}, unclean", topic_partitions=partitions, election_type=UNCLEAN)
    for kind in (2, 127, -1):
        yield from each(ELECT_LEADERS, f"of kind {kind}", topic_partitions=[asked(0)], election_type=kind)
    for version in versions_of(ELECT_LEADERS):
        yield case(ELECT_LEADERS, version, "all", partial(elect_all, version=version, kind=PREFERRED))
    for version in versions_of(ELECT_LEADERS)[1:]:
        yield case(ELECT_LEADERS, version, "all, unclean", partial(elect_all, version=version, kind=UNCLEAN))


def elect_all(talk: Talk, version: int, kind: int) -> None:
    """What was not needed is not told of, and other cases have topics of their own."""
    fields = {} if version == 0 else {"election_type": kind}
    answer = talk.look(ELECT_LEADERS, version, topic_partitions=None, **fields)
    answer.replica_election_results = [topic for topic in answer.replica_election_results if topic.partition_result]
    talk.note(talk.words.plain(answer))


def reassignments() -> Iterator[Case]:
    def asked(replicas: list[int] | None, index: int = 0, topic: str = "one") -> list[dict[str, Any]]:
        return [{"name": topic, "partitions": [{"partition_index": index, "replicas": replicas}]}]

    questions: dict[str, list[dict[str, Any]]] = {
        "as it is": asked([1]),
        "nobody": asked([]),
        "a broker twice": asked([1, 1]),
        "a broker that is not there": asked([9]),
        "one that is not there as well": asked([1, 9]),
        "a negative broker": asked([-1]),
        "cancelled": asked(None),
        "an unknown partition": asked([1], 9),
        "a negative partition": asked([1], -1),
        "an unknown partition, cancelled": asked(None, 9),
        "an unknown topic": asked([1], topic="nowhere"),
        "a bad name": asked([1], topic="a/b"),
        "nothing": [],
        "no partitions": [{"name": "one", "partitions": []}],
        "a partition twice": asked([1]) + asked([9]),
        "two topics": asked([1]) + asked([1], topic=READ),
    }
    for what, topics in questions.items():
        yield from each(REASSIGN, what, topics=topics)
        yield from each(REASSIGN, f"{what}, the same number", topics=topics, allow_replication_factor_change=False)


def listed() -> Iterator[Case]:
    questions: dict[str, list[dict[str, Any]] | None] = {
        "all": None,
        "nothing": [],
        "one": [{"name": "one", "partition_indexes": [0]}],
        "an unknown partition": [{"name": "one", "partition_indexes": [9, -1]}],
        "an unknown topic": [{"name": "nowhere", "partition_indexes": [0]}],
        "a bad name": [{"name": "a/b", "partition_indexes": [0]}],
        "no partitions": [{"name": "one", "partition_indexes": []}],
    }
    for what, topics in questions.items():
        yield from each(LIST_REASSIGNMENTS, what, topics=topics)


def unregistrations() -> Iterator[Case]:
    for broker_id in (77, -1, 2**31 - 1):
        yield from each(UNREGISTER, f"broker {broker_id}", broker_id=broker_id)


def quorums() -> Iterator[Case]:
    def asked(*partitions: int, topic: str = "__cluster_metadata") -> dict[str, Any]:
        return {"topic_name": topic, "partitions": [{"partition_index": index} for index in partitions]}

    for version in versions_of(DESCRIBE_QUORUM):
        script = partial(describe_quorum, version=version, topics=[asked(0)])
        yield case(DESCRIBE_QUORUM, version, "the quorum", script)
    questions: dict[str, list[dict[str, Any]]] = {
        "nothing": [],
        "no partitions": [asked()],
        "another partition": [asked(1)],
        "a negative partition": [asked(-1)],
        "two partitions": [asked(0, 1)],
        "another topic": [asked(0, topic=READ)],
        "an unknown topic": [asked(0, topic="nowhere")],
        "two topics": [asked(0), asked(0, topic=READ)],
    }
    for what, topics in questions.items():
        yield from each(DESCRIBE_QUORUM, what, topics=topics)


def describe_quorum(talk: Talk, version: int, topics: list[dict[str, Any]]) -> None:
    """Offsets, epochs, ids and times are each broker's own."""
    answer = talk.look(DESCRIBE_QUORUM, version, topics=topics)
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.leader_epoch = min(partition.leader_epoch, 1)
            partition.high_watermark = min(partition.high_watermark, 1)
            for replica in (*partition.current_voters, *partition.observers):
                replica.log_end_offset = min(replica.log_end_offset, 1)
                replica.last_fetch_timestamp = min(replica.last_fetch_timestamp, 1)
                replica.last_caught_up_timestamp = min(replica.last_caught_up_timestamp, 1)
                replica.replica_directory_id = uuid.UUID(int=min(replica.replica_directory_id.int, 1))
    answer.nodes = []
    talk.note(talk.words.plain(answer))
