"""What administrators ask of groups, each version: DescribeGroups, ListGroups, DeleteGroups, OffsetDelete."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.differential.case import Case, carries, case
from tests.differential.talk import Talk
from tests.differential.words import versions_of

COMMIT, FETCH, JOIN, LEAVE, SYNC = 8, 9, 11, 13, 14
DESCRIBE, LIST, DELETE, OFFSET_DELETE, HEARTBEAT_848 = 15, 16, 42, 47, 68
TOPIC, OTHER_TOPIC = "grouped", "target"

Prepare = Callable[[Talk, str], None]


def cases() -> Iterator[Case]:
    yield from descriptions()
    yield from lists()
    yield from deletions()
    yield from offset_deletions()


# ---- groups in every state


def subscription(*topics: str) -> bytes:
    """What a consumer says of itself in version 0 of its protocol."""
    named = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + named + struct.pack(">i", -1)


def join(
    talk: Talk, group: str, *, protocol_type: str = "consumer", metadata: bytes = subscription(TOPIC), **more: Any
) -> Any:
    protocols = [{"name": "range", "metadata": metadata}]
    usual = {"session_timeout_ms": 300_000, "rebalance_timeout_ms": 300_000, "protocol_type": protocol_type}
    joined = talk.look(JOIN, 3, group_id=group, protocols=protocols, **usual, **more)
    assert not joined.error_code
    return joined


def nobody(talk: Talk, group: str) -> None:
    """The group does not exist."""


def simple(talk: Talk, group: str) -> None:
    """A consumer without a group keeps its positions here."""
    commit(talk, group)


def completing(talk: Talk, group: str) -> None:
    join(talk, group)


def stable(talk: Talk, group: str, **more: Any) -> None:
    joined = join(talk, group, **more)
    mine = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id}
    synced = talk.look(SYNC, 3, assignments=[{"member_id": joined.member_id, "assignment": b"all"}], **mine)
    assert not synced.error_code
    at = {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
    commit(talk, group, **at)
    commit(talk, group, OTHER_TOPIC, **at)


def left(talk: Talk, group: str) -> None:
    joined = join(talk, group)
    at = {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
    synced = talk.look(SYNC, 3, group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    assert not synced.error_code
    commit(talk, group, **at)
    assert not talk.look(LEAVE, 2, group_id=group, member_id=joined.member_id).error_code


def pending(talk: Talk, group: str) -> None:
    """Somebody was given a member id and has not come back with it."""
    usual = {"session_timeout_ms": 300_000, "rebalance_timeout_ms": 300_000, "protocol_type": "consumer"}
    talk.look(JOIN, 4, group_id=group, protocols=[{"name": "range"}], **usual)


def static(talk: Talk, group: str) -> None:
    protocols = [{"name": "range", "metadata": subscription(TOPIC)}]
    usual = {"session_timeout_ms": 300_000, "rebalance_timeout_ms": 300_000, "protocol_type": "consumer"}
    joined = talk.look(JOIN, 5, group_id=group, protocols=protocols, group_instance_id="till", **usual)
    me = {"group_id": group, "member_id": joined.member_id, "generation_id": joined.generation_id}
    share = [{"member_id": joined.member_id, "assignment": b"all"}]
    assert not talk.look(SYNC, 3, **me, group_instance_id="till", assignments=share).error_code


def connectors(talk: Talk, group: str) -> None:
    stable(talk, group, protocol_type="connect", metadata=b"whatever")


def nonsense(talk: Talk, group: str) -> None:
    """Of anything longer Kafka meets an exception of its own, and never answers."""
    stable(talk, group, metadata=b"")


def commit(talk: Talk, group: str, topic: str = TOPIC, **member: Any) -> None:
    partitions = [{"partition_index": index, "committed_offset": 5} for index in (0, 1)]
    answer = talk.look(COMMIT, 8, group_id=group, topics=[{"name": topic, "partitions": partitions}], **member)
    assert not answer.topics[0].partitions[0].error_code


STATES: dict[str, Prepare] = {
    "an unknown group": nobody,
    "a simple group": simple,
    "a group without assignment": completing,
    "a stable group": stable,
    "a group whose members left": left,
    "a group that waits for its first": pending,
    "a static member": static,
    "a group of connectors": connectors,
    "metadata that is no subscription": nonsense,
}


# ---- the questions


def descriptions() -> Iterator[Case]:
    for version in versions_of(DESCRIBE):
        for index, (what, prepare) in enumerate(STATES.items()):
            yield case(DESCRIBE, version, what, partial(describe, version=version, prepare=prepare, number=index))
        for what, groups in {
            "no group": [],
            "the empty id": [""],
            "two strangers": ["g-none-1", "g-none-2"],
            "an odd id": ["a b/c\n"],
            "a stranger twice": ["g-none-1", "g-none-1"],
        }.items():
            yield case(DESCRIBE, version, what, partial(asked, api_key=DESCRIBE, version=version, groups=groups))


def describe(talk: Talk, version: int, prepare: Prepare, number: int) -> None:
    group = f"g-describe-{version}-{number}"
    prepare(talk, group)
    talk.ask(DESCRIBE, version, groups=[group])
    fields = {"groups": [group], "include_authorized_operations": True}
    if carries(DESCRIBE, version, fields):
        talk.ask(DESCRIBE, version, **fields)


def asked(talk: Talk, api_key: int, version: int, **fields: Any) -> None:
    talk.ask(api_key, version, **fields)


def lists() -> Iterator[Case]:
    states: list[list[str]] = [
        [],
        ["Stable"],
        ["stable"],
        [" STABLE "],
        ["Empty", "CompletingRebalance"],
        ["Dead"],
        ["nonsense"],
        [""],
        ["Stable", "nonsense"],
        ["Assigning", "Reconciling"],
    ]
    types: list[list[str]] = [["classic"], ["Classic"], ["consumer"], [" classic"], ["share"], ["nonsense"], [""]]
    for version in versions_of(LIST):
        for chosen in states:
            fields: dict[str, Any] = {"states_filter": chosen}
            if carries(LIST, version, fields):
                name = f"in state {', '.join(map(repr, chosen)) or 'any'}"
                yield case(LIST, version, name, partial(listed, version=version, fields=fields))
        for chosen in types:
            fields = {"types_filter": chosen}
            if carries(LIST, version, fields):
                name = f"of type {', '.join(map(repr, chosen))}"
                yield case(LIST, version, name, partial(listed, version=version, fields=fields))
        both = {"types_filter": ["classic"], "states_filter": ["stable"]}
        if carries(LIST, version, both):
            yield case(LIST, version, "by both", partial(listed, version=version, fields=both))


def listed(talk: Talk, version: int, fields: dict[str, Any]) -> None:
    """Of all groups that the cases have left, those that were made for this question are shown."""
    prefix = f"g-list-{version}-"
    if not any(group.group_id.startswith(prefix) for group in talk.look(LIST, 3).groups):
        for number, prepare in enumerate(STATES.values()):
            prepare(talk, f"{prefix}{number}")
    answer = talk.look(LIST, version, **fields)
    answer.groups = [group for group in answer.groups if group.group_id.startswith(prefix)]
    talk.note(talk.words.plain(answer))


def deletions() -> Iterator[Case]:
    for version in versions_of(DELETE):
        for number, (what, prepare) in enumerate(STATES.items()):
            yield case(DELETE, version, what, partial(delete, version=version, prepare=prepare, number=number))
        for what, groups in {
            "no group": [],
            "the empty id": [""],
            "two strangers": ["g-none-1", "g-none-2"],
            "a stranger twice": ["g-none-1", "g-none-1"],
        }.items():
            yield case(DELETE, version, what, partial(asked, api_key=DELETE, version=version, groups_names=groups))
        yield case(DELETE, version, "one may go and one may not", partial(delete_two, version=version))


def delete(talk: Talk, version: int, prepare: Prepare, number: int) -> None:
    group = f"g-delete-{version}-{number}"
    prepare(talk, group)
    talk.ask(DELETE, version, groups_names=[group])
    talk.ask(DESCRIBE, 6, groups=[group])
    talk.ask(FETCH, 7, group_id=group, topics=None)
    talk.ask(DELETE, version, groups_names=[group])


def delete_two(talk: Talk, version: int) -> None:
    first, second = f"g-delete-{version}-a", f"g-delete-{version}-b"
    simple(talk, first)
    stable(talk, second)
    talk.ask(DELETE, version, groups_names=[first, second, first])


def offset_deletions() -> Iterator[Case]:
    for number, (what, prepare) in enumerate(STATES.items()):
        yield case(OFFSET_DELETE, 0, what, partial(delete_offsets, prepare=prepare, number=number))
    wanted: dict[str, list[Any]] = {
        "nothing": [],
        "an unknown topic": [of("nowhere", 0)],
        "a bad name": [of("a/b", 0)],
        "an unknown partition": [of(TOPIC, 0, 9)],
        "partition -1": [of(TOPIC, -1)],
        "a topic without partitions": [of(TOPIC)],
        "an unknown topic without partitions": [of("nowhere")],
        "a topic twice": [of(TOPIC, 0), of(TOPIC, 1)],
        "a partition twice": [of(TOPIC, 0, 0)],
        "what was never committed": [of("three", 0)],
        "something and an unknown topic": [of(TOPIC, 0), of("nowhere", 0)],
    }
    for number, (what, topics) in enumerate(wanted.items()):
        yield case(OFFSET_DELETE, 0, what, partial(delete_some, topics=topics, group=f"g-offset-delete-some-{number}"))
        for group, who in (("g-none", "nobody"), ("", "the empty id")):
            script = partial(asked, api_key=OFFSET_DELETE, version=0, group_id=group, topics=topics)
            yield case(OFFSET_DELETE, 0, f"{what} of {who}", script)


def of(topic: str, *partitions: int) -> dict[str, Any]:
    return {"name": topic, "partitions": [{"partition_index": index} for index in partitions]}


def delete_offsets(talk: Talk, prepare: Prepare, number: int) -> None:
    group = f"g-offset-delete-{number}"
    prepare(talk, group)
    talk.ask(OFFSET_DELETE, 0, group_id=group, topics=[of(TOPIC, 0), of(OTHER_TOPIC, 0)])
    talk.ask(FETCH, 7, group_id=group, topics=None)


def delete_some(talk: Talk, topics: list[Any], group: str) -> None:
    simple(talk, group)
    talk.ask(OFFSET_DELETE, 0, group_id=group, topics=topics)
    talk.ask(FETCH, 7, group_id=group, topics=None)
