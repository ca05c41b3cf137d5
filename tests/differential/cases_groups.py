"""The APIs of groups, each version: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit,
OffsetFetch. Longer conversations, with several members, are in test_groups.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

from tests.differential.case import Case, carries, case, each
from tests.differential.talk import Talk
from tests.differential.words import Id, versions_of

COMMIT, FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC = range(8, 15)
TOPIC = "grouped"
STRANGER = UUID(int=5)


def cases() -> Iterator[Case]:
    yield from coordinators()
    yield from strangers()
    yield from commits()
    yield from fetches()
    yield from members()


def coordinators() -> Iterator[Case]:
    one = range(4)
    many = range(4, 7)
    for kind in (0, 1, 2, 3, 7, -1):
        yield from each(FIND, f"type {kind}", one, key="g", key_type=kind)
        yield from each(FIND, f"type {kind}", many, coordinator_keys=["g"], key_type=kind)
    yield from each(FIND, "the empty key", one, key="")
    yield from each(FIND, "the empty key", many, coordinator_keys=[""])
    yield from each(FIND, "a key of 1,000 characters", one, key="x" * 1000)
    yield from each(FIND, "two keys", many, coordinator_keys=["a", "b"])
    yield from each(FIND, "a key twice", many, coordinator_keys=["a", "a"])
    yield from each(FIND, "no keys", many, coordinator_keys=[])
    yield from each(FIND, "odd characters", many, coordinator_keys=["a b/c\n", "ü"])
    for key in ("a:AAAAAAAAAAAAAAAAAAAAAQ:0", "a:b", "::", "a:AAAAAAAAAAAAAAAAAAAAAQ:-1", "a:AAAAAAAAAAAAAAAAAAAAAQ:x"):
        yield from each(FIND, f"share key {key}", many, coordinator_keys=[key], key_type=2)


def strangers() -> Iterator[Case]:
    """Members that nobody knows, of groups that nobody has heard of."""
    protocols = [{"name": "range"}]

    def joining(group: str = "g-join", **more: Any) -> dict[str, Any]:
        usual = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer"}
        return {"group_id": group, "protocols": protocols, **usual, **more}

    for version in versions_of(JOIN):
        for what, fields in {
            "no group id": joining(""),
            "an unknown member": joining(member_id="nobody"),
            "no protocols": joining("g-join-2", protocols=[]),
            "no protocol type": joining("g-join-2", protocol_type=""),
            "a session too short": joining(session_timeout_ms=5999),
            "a session too long": joining(session_timeout_ms=1_800_001),
            "session 0": joining(session_timeout_ms=0),
            "session -1": joining(session_timeout_ms=-1),
            "an odd group id": joining("a b\n", member_id="nobody"),
        }.items():
            if version == 0:
                fields["rebalance_timeout_ms"] = -1
            if carries(JOIN, version, fields):
                yield case(JOIN, version, what, partial(asked, api_key=JOIN, version=version, fields=fields))
    heartbeats: dict[str, dict[str, Any]] = {
        "an unknown group": {"group_id": "g-none", "generation_id": 1, "member_id": "m"},
        "no group id": {"group_id": "", "generation_id": 1, "member_id": "m"},
        "no member id": {"group_id": "g-none", "generation_id": 1, "member_id": ""},
        "generation -1": {"group_id": "g-none", "generation_id": -1, "member_id": "m"},
        "an instance": {"group_id": "g-none", "generation_id": 1, "member_id": "m", "group_instance_id": "i"},
    }
    for what, fields in heartbeats.items():
        yield from each(HEARTBEAT, what, **fields)
        yield from each(SYNC, what, range(5), **fields)
        named = {"protocol_type": "consumer", "protocol_name": "range"}
        yield from each(SYNC, what, [5], **fields, **named)
        yield from each(SYNC, f"{what}, no protocol", [5], **fields)
    leaves: dict[str, dict[str, Any]] = {
        "an unknown group": {"group_id": "g-none", "member_id": "m"},
        "no group id": {"group_id": "", "member_id": "m"},
        "no member id": {"group_id": "g-none", "member_id": ""},
    }
    for what, fields in leaves.items():
        yield from each(LEAVE, what, range(3), **fields)
        yield from each(
            LEAVE, what, range(3, 6), group_id=fields["group_id"], members=[{"member_id": fields["member_id"]}]
        )
    several: dict[str, list[dict[str, Any]]] = {
        "nobody": [],
        "two strangers": [{"member_id": "a"}, {"member_id": "b"}],
        "a stranger twice": [{"member_id": "a"}, {"member_id": "a"}],
        "an instance": [{"group_instance_id": "i"}],
        "an instance with an id": [{"member_id": "m", "group_instance_id": "i"}],
        "no id": [{}],
    }
    for what, identities in several.items():
        yield from each(LEAVE, f"{what} of an unknown group", range(3, 6), group_id="g-none", members=identities)


def asked(talk: Talk, api_key: int, version: int, fields: dict[str, Any]) -> None:
    talk.ask(api_key, version, **fields)


def commits() -> Iterator[Case]:
    def of(offset: int, version: int, *, topic: str = TOPIC, partition: int = 0, **more: Any) -> dict[str, Any]:
        fields = {"partition_index": partition, "committed_offset": offset}
        for name in ("committed_metadata", "committed_leader_epoch"):
            if name in more:
                fields[name] = more.pop(name)
        named: dict[str, Any] = {"topic_id": Id(topic)} if version >= 10 else {"name": topic}
        return {"group_id": "g-commit", "topics": [{**named, "partitions": [fields]}], **more}

    for version in versions_of(COMMIT):
        questions = {
            "of nobody": of(7, version),
            "with metadata": of(8, version, committed_metadata="here"),
            "with empty metadata": of(8, version, committed_metadata=""),
            "metadata of 4,096": of(8, version, committed_metadata="m" * 4096),
            "metadata of 4,097": of(8, version, committed_metadata="m" * 4097),
            "a negative offset": of(-1, version, partition=1),
            "offset -5": of(-5, version, partition=1),
            "the greatest offset": of(2**63 - 1, version, partition=1),
            "an unknown partition": of(1, version, partition=9),
            "partition -1": of(1, version, partition=-1),
            "no group id": {**of(1, version), "group_id": ""},
            "a member nobody knows": of(1, version, member_id="m", generation_id_or_member_epoch=3),
            "a generation without a member": of(1, version, generation_id_or_member_epoch=3),
            "a member without a generation": of(1, version, member_id="m"),
            "nothing": {"group_id": "g-commit", "topics": []},
            "a leader epoch": of(1, version, committed_leader_epoch=5),
            "an instance": of(1, version, group_instance_id="i"),
        }
        if version < 10:
            questions["an unknown topic"] = of(1, version, topic="nowhere")
            questions["a bad name"] = of(1, version, topic="a/b")
            questions["a topic twice"] = {**of(1, version), "topics": of(1, version)["topics"] * 2}
        else:
            unknown = {"partitions": [{"partition_index": 0, "committed_offset": 1}]}
            questions["an unknown id"] = {**of(1, version), "topics": [{"topic_id": STRANGER, **unknown}]}
            questions["a zero id"] = {**of(1, version), "topics": [{"topic_id": UUID(int=0), **unknown}]}
        for what, fields in questions.items():
            if carries(COMMIT, version, fields):
                yield case(COMMIT, version, what, partial(asked, api_key=COMMIT, version=version, fields=fields))


def fetches() -> Iterator[Case]:
    old, many = range(1, 8), range(8, 11)
    questions: dict[str, dict[str, Any]] = {
        "an offset": {"group_id": "g-kept", "topics": [{"name": TOPIC, "partition_indexes": [0, 1]}]},
        "an unknown group": {"group_id": "g-none", "topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        "an unknown topic": {"group_id": "g-kept", "topics": [{"name": "nowhere", "partition_indexes": [0]}]},
        "an unknown partition": {"group_id": "g-kept", "topics": [{"name": TOPIC, "partition_indexes": [9, -1]}]},
        "all": {"group_id": "g-kept", "topics": None},
        "nothing": {"group_id": "g-kept", "topics": []},
        "no group id": {"group_id": "", "topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        "a topic twice": {"group_id": "g-kept", "topics": [{"name": TOPIC, "partition_indexes": [0]}] * 2},
        "stable ones": {"group_id": "g-kept", "topics": None, "require_stable": True},
    }
    for version in old:
        for what, fields in questions.items():
            if (version >= 2 or fields["topics"] is not None) and carries(FETCH, version, fields):
                yield case(FETCH, version, what, partial(kept, version=version, fields=fields))
    for version in many:
        name: dict[str, Any] = {"topic_id": Id(TOPIC)} if version >= 10 else {"name": TOPIC}
        strange: dict[str, Any] = {"topic_id": STRANGER} if version >= 10 else {"name": "nowhere"}
        asked_for = [{**name, "partition_indexes": [0, 1, 9]}]
        unknown = [{**strange, "partition_indexes": [0]}]
        for what, groups in {
            "an offset": [{"group_id": "g-kept", "topics": asked_for}],
            "an unknown group": [{"group_id": "g-none", "topics": asked_for}],
            "an unknown topic": [{"group_id": "g-kept", "topics": unknown}],
            "all": [{"group_id": "g-kept", "topics": None}],
            "all of nobody": [{"group_id": "g-none", "topics": None}],
            "two groups": [{"group_id": "g-kept", "topics": asked_for}, {"group_id": "g-none", "topics": None}],
            "a group twice": [{"group_id": "g-kept", "topics": asked_for}] * 2,
            "no group": [],
            "no group id": [{"group_id": "", "topics": asked_for}],
            "nothing of a group": [{"group_id": "g-kept", "topics": []}],
            "a member": [{"group_id": "g-kept", "topics": asked_for, "member_id": "m", "member_epoch": 5}],
            "a member's epoch only": [{"group_id": "g-kept", "topics": asked_for, "member_epoch": 5}],
        }.items():
            fields = {"groups": groups}
            if carries(FETCH, version, fields):
                yield case(FETCH, version, what, partial(kept, version=version, fields=fields))


def kept(talk: Talk, version: int, fields: dict[str, Any]) -> None:
    partition = {
        "partition_index": 0,
        "committed_offset": 77,
        "committed_metadata": "here",
        "committed_leader_epoch": 0,
    }
    talk.look(COMMIT, 8, group_id="g-kept", topics=[{"name": TOPIC, "partitions": [partition]}])
    talk.ask(FETCH, version, **fields)


def members() -> Iterator[Case]:
    """One member's life in every version of JoinGroup, with the others' versions that came with it."""
    for version in versions_of(JOIN):
        yield case(JOIN, version, "a member's life", partial(life, version=version))
    nonsense = [{"name": "range", "metadata": b"no subscription"}]
    usual = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer"}
    fields = {"group_id": "g-nonsense", "protocols": nonsense, **usual}
    yield case(JOIN, 3, "metadata that is no subscription", partial(asked, api_key=JOIN, version=3, fields=fields))


def life(talk: Talk, version: int) -> None:
    group = f"g-life-{version}"
    sync, beat, leave, commit = min(version, 5), min(version, 4), min(version, 5), min(version + 2, 9)
    usual: dict[str, Any] = {"session_timeout_ms": 30_000, "protocol_type": "consumer"}
    usual |= {"rebalance_timeout_ms": 60_000} if version else {}
    protocols = [{"name": "range"}]
    joined = talk.ask(JOIN, version, group_id=group, protocols=protocols, **usual)
    if joined.error_code:
        member_id = joined.member_id
        joined = talk.ask(JOIN, version, group_id=group, protocols=protocols, member_id=member_id, **usual)
    me = {"group_id": group, "member_id": joined.member_id}
    mine = {**me, "generation_id": joined.generation_id}
    named = {"protocol_type": "consumer", "protocol_name": "range"} if sync >= 5 else {}
    talk.ask(HEARTBEAT, beat, **mine)
    share = [{"member_id": joined.member_id, "assignment": b"all"}]
    talk.ask(SYNC, sync, assignments=share, **mine, **named)
    talk.ask(SYNC, sync, **mine, **named)
    talk.ask(HEARTBEAT, beat, **mine)
    talk.ask(HEARTBEAT, beat, **{**mine, "generation_id": 99})
    talk.ask(HEARTBEAT, beat, **{**mine, "member_id": "somebody"})
    at = {"generation_id_or_member_epoch": joined.generation_id}
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 3}]}]
    talk.ask(COMMIT, commit, topics=topics, **me, **at)
    talk.ask(COMMIT, commit, topics=topics, **me, generation_id_or_member_epoch=9)
    talk.ask(COMMIT, commit, topics=topics, group_id=group)
    other: dict[str, Any] = {**usual, "protocol_type": "connect"}
    talk.ask(JOIN, version, group_id=group, protocols=protocols, client="other", **other)
    talk.ask(JOIN, version, group_id=group, protocols=[{"name": "else"}], client="other", **usual)
    if leave >= 3:
        talk.ask(LEAVE, leave, group_id=group, members=[{"member_id": "somebody"}, {"member_id": joined.member_id}])
    else:
        talk.ask(LEAVE, leave, group_id=group, member_id="somebody")
        talk.ask(LEAVE, leave, **me)
    talk.ask(HEARTBEAT, beat, **mine)
    talk.ask(FETCH, 7, group_id=group, topics=None)
