"""Requests of the APIs of share groups, for the matrix of rights."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from tests.differential.rights_stage import NOWHERE, ORDERS, SECRET, SHARING, RightsTalk
from tests.differential.words import Id

STATES = "states"
"""A group whose state only the APIs between brokers have."""
STRANGER: Final = UUID(int=0x1234567890)
FETCH, ACKNOWLEDGE, INITIALIZE, WRITE_STATE = 78, 79, 83, 85
OPEN, CLOSE = 0, -1

Fields = dict[str, Any]


def topic_ids(topics: list[str], **partition: Any) -> list[Fields]:
    return [{"topic_id": STRANGER if each == NOWHERE else Id(each), "partitions": [partition]} for each in topics]


def heartbeat(topics: list[str], groups: list[str]) -> Fields:
    return {"group_id": groups[0], "member_id": "stranger", "member_epoch": 5, "subscribed_topic_names": topics}


def fetch(topics: list[str], groups: list[str], member_id: str = "fetcher") -> Fields:
    return {
        "group_id": groups[0],
        "member_id": member_id,
        "share_session_epoch": OPEN,
        "max_records": 10,
        "batch_size": 10,
        "max_bytes": 1 << 20,
        "max_wait_ms": 100,
        "topics": topic_ids(topics, partition_index=0),
    }


def acknowledge(topics: list[str], groups: list[str], member_id: str = "stranger") -> Fields:
    batch = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
    asked = topic_ids(topics, partition_index=0, acknowledgement_batches=[batch])
    return {"group_id": groups[0], "member_id": member_id, "share_session_epoch": 1, "topics": asked}


def share_session(version: int, talk: RightsTalk, user: str) -> None:
    """Open a session with two topics, acknowledge records of both, and close it."""
    member_id, topics = f"worker-{user}", [ORDERS, SECRET]
    opened = talk.ask(FETCH, version, client=user, **fetch(topics, [SHARING], member_id))
    if not opened.error_code:
        asked = acknowledge(topics, [SHARING], member_id)
        talk.ask(ACKNOWLEDGE, version, client=user, **asked)
        talk.ask(ACKNOWLEDGE, version, client=user, **asked | {"topics": [], "share_session_epoch": CLOSE})


def state(key: int, topics: list[str], groups: list[str]) -> Fields:
    """Return a request between brokers."""
    partition: Fields = {"partition": 0}
    if key == INITIALIZE:
        partition |= {"state_epoch": 1, "start_offset": 0}
    elif key == WRITE_STATE:
        batch = {"first_offset": 0, "last_offset": 1, "delivery_state": 2, "delivery_count": 1}
        partition |= {"state_epoch": 1, "start_offset": -1, "state_batches": [batch]}
    return {"group_id": groups[0], "topics": topic_ids(topics, **partition)}


def describe_offsets(topics: list[str] | None, groups: list[str]) -> Fields:
    asked = None if topics is None else [{"topic_name": each, "partitions": [0]} for each in topics]
    return {"groups": [{"group_id": each, "topics": asked} for each in groups]}


def alter_offsets(topics: list[str], groups: list[str]) -> Fields:
    offsets = [{"partition_index": 0, "start_offset": 1}]
    return {"group_id": groups[0], "topics": [{"topic_name": each, "partitions": offsets} for each in topics]}


def delete_offsets(topics: list[str], groups: list[str]) -> Fields:
    return {"group_id": groups[0], "topics": [{"topic_name": each} for each in topics]}
