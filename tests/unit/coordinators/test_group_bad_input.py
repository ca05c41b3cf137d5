"""What a shard says to requests that are wrong: one table, with Kafka's codes.

The group has a dynamic member A, who leads, and a static member S ("till-1"), in generation 1, and one offset.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.coordinators.story import Story

from strandline.codec.messages.heartbeat_response import HeartbeatResponse
from strandline.codec.messages.join_group_response import JoinGroupResponse
from strandline.codec.messages.leave_group_response import LeaveGroupResponse
from strandline.codec.messages.offset_commit_response import OffsetCommitResponse
from strandline.codec.messages.sync_group_response import SyncGroupResponse
from strandline.errors import ErrorCode

E = ErrorCode


def stable_group(**config: int) -> Story:
    story = Story(**config)
    story.client("S", instance_id="till-1")
    story.enter("A")
    story.join("S")
    story.pass_ms(6_000)
    story.sync("A", {"A": b"p0", "S": b"p1"})
    story.sync("S")
    story.commit("A", 9)
    return story


def completing_group(**config: int) -> Story:
    """Generation 2 has begun; its leader A has not assigned yet."""
    story = stable_group(**config)
    story.join("A")
    story.join("S")
    return story


def as_member(story: Story, name: str, *, member_id: str, instance_id: str | None = None) -> Story:
    client = story.client(name, instance_id=instance_id)
    client.member_id = member_id
    client.generation_id = story.clients["A"].generation_id
    client.protocol_name = "range"
    return story


def stranger(story: Story) -> str:
    as_member(story, "X", member_id="X-nobody")
    return "X"


def impostor(story: Story) -> str:
    """Knows the instance id, and has a member id that lost it."""
    as_member(story, "I", member_id="till-1-old", instance_id="till-1")
    return "I"


def unknown_instance(story: Story) -> str:
    as_member(story, "U", member_id=story.clients["A"].member_id, instance_id="till-9")
    return "U"


def code_of(response: object) -> ErrorCode:
    match response:
        case JoinGroupResponse() | SyncGroupResponse() | HeartbeatResponse():
            return E(response.error_code)
        case LeaveGroupResponse():
            return E(response.members[0].error_code if response.members else response.error_code)
        case OffsetCommitResponse():
            return E(response.topics[0].partitions[0].error_code)
    raise AssertionError(response)


CASES: list[tuple[str, Callable[[Story], object], ErrorCode]] = [
    # JoinGroup
    ("join: session too short", lambda s: s.join("N", session_ms=5_999), E.INVALID_SESSION_TIMEOUT),
    ("join: session too long", lambda s: s.join("N", session_ms=1_800_001), E.INVALID_SESSION_TIMEOUT),
    ("join: no protocol type", lambda s: s.join("N", protocol_type=""), E.INCONSISTENT_GROUP_PROTOCOL),
    ("join: no protocols", lambda s: s.join("N", protocols=()), E.INCONSISTENT_GROUP_PROTOCOL),
    ("join: other protocol", lambda s: s.join("N", protocols=(("x", b""),)), E.INCONSISTENT_GROUP_PROTOCOL),
    ("join: other type", lambda s: s.join("N", protocol_type="connect"), E.INCONSISTENT_GROUP_PROTOCOL),
    ("join: unknown member id", lambda s: s.join(stranger(s)), E.UNKNOWN_MEMBER_ID),
    ("join: fenced static member", lambda s: s.join(impostor(s)), E.FENCED_INSTANCE_ID),
    ("join: unknown instance with an id", lambda s: s.join(unknown_instance(s)), E.UNKNOWN_MEMBER_ID),
    # SyncGroup
    ("sync: unknown member", lambda s: s.sync(stranger(s)), E.UNKNOWN_MEMBER_ID),
    ("sync: fenced static member", lambda s: s.sync(impostor(s)), E.FENCED_INSTANCE_ID),
    ("sync: old generation", lambda s: s.sync("A", generation_id=0), E.ILLEGAL_GENERATION),
    ("sync: generation to come", lambda s: s.sync("A", generation_id=2), E.ILLEGAL_GENERATION),
    ("sync: other protocol", lambda s: s.sync("A", protocol_name="x"), E.INCONSISTENT_GROUP_PROTOCOL),
    # Heartbeat
    ("heartbeat: unknown member", lambda s: s.heartbeat(stranger(s)), E.UNKNOWN_MEMBER_ID),
    ("heartbeat: fenced static member", lambda s: s.heartbeat(impostor(s)), E.FENCED_INSTANCE_ID),
    ("heartbeat: unknown instance", lambda s: s.heartbeat(unknown_instance(s)), E.UNKNOWN_MEMBER_ID),
    ("heartbeat: old generation", lambda s: s.heartbeat("A", generation_id=0), E.ILLEGAL_GENERATION),
    # LeaveGroup
    ("leave: unknown member", lambda s: s.leave(stranger(s)), E.UNKNOWN_MEMBER_ID),
    ("leave: fenced static member", lambda s: s.leave(impostor(s)), E.FENCED_INSTANCE_ID),
    ("leave: no id at all", lambda s: s.leave("N"), E.UNKNOWN_MEMBER_ID),
    # OffsetCommit
    ("commit: unknown member", lambda s: s.commit(stranger(s), 99), E.UNKNOWN_MEMBER_ID),
    ("commit: fenced static member", lambda s: s.commit(impostor(s), 99), E.FENCED_INSTANCE_ID),
    ("commit: old generation", lambda s: s.commit("A", 99, generation_id=0), E.ILLEGAL_GENERATION),
    ("commit: member without generation", lambda s: s.commit("A", 99, generation_id=-1), E.ILLEGAL_GENERATION),
    ("commit: nobody", lambda s: s.commit("N", 99, generation_id=-1, member_id=""), E.UNKNOWN_MEMBER_ID),
    ("commit: metadata too large", lambda s: s.commit("A", 99, metadata="m" * 4_097), E.OFFSET_METADATA_TOO_LARGE),
    ("commit: two units a character", lambda s: s.commit("A", 99, metadata="🌊" * 2_049), E.OFFSET_METADATA_TOO_LARGE),
]


@pytest.mark.parametrize(("request_", "code"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_a_wrong_request_gets_kafkas_code_and_changes_nothing(
    request_: Callable[[Story], object], code: ErrorCode
) -> None:
    story = stable_group()
    records = len(story.records)
    request_(story)
    assert code_of(story.last) is code
    assert len(story.records) == records
    assert story.committed() == 9
    assert story.shard.groups["orders"].state == "Stable"
    assert story.heartbeat("A") is E.NONE
    assert story.heartbeat("S") is E.NONE


NO_GROUP: list[tuple[str, Callable[[Story], object], ErrorCode]] = [
    ("join with an id", lambda s: s.join("A", member_id="A-1"), E.UNKNOWN_MEMBER_ID),
    ("sync", lambda s: s.sync("A"), E.UNKNOWN_MEMBER_ID),
    ("heartbeat", lambda s: s.heartbeat("A"), E.UNKNOWN_MEMBER_ID),
    ("leave", lambda s: s.leave("A"), E.UNKNOWN_MEMBER_ID),
    ("commit, version 8", lambda s: s.commit("A", 1, generation_id=3, api_version=8), E.ILLEGAL_GENERATION),
    ("commit, version 9", lambda s: s.commit("A", 1, generation_id=3, api_version=9), E.GROUP_ID_NOT_FOUND),
    ("join without protocols", lambda s: s.join("A", protocols=()), E.INCONSISTENT_GROUP_PROTOCOL),
]


@pytest.mark.parametrize(("request_", "code"), [pytest.param(*case[1:], id=case[0]) for case in NO_GROUP])
def test_a_group_that_does_not_exist_is_not_made_by_a_wrong_request(
    request_: Callable[[Story], object], code: ErrorCode
) -> None:
    story = Story()
    request_(story)
    assert code_of(story.last) is code
    assert story.shard.groups == {}
    assert story.records == []


@pytest.mark.parametrize("request_", [lambda s: s.join("A"), lambda s: s.sync("A"), lambda s: s.heartbeat("A")])
def test_an_empty_group_id_is_invalid(request_: Callable[[Story], object]) -> None:
    story = Story(group="")
    request_(story)
    assert code_of(story.last) is E.INVALID_GROUP_ID
    story.step_leave_with_no_members()
    assert code_of(story.last) is E.INVALID_GROUP_ID
    assert story.shard.groups == {}


def test_offsets_without_a_group_id_are_kept_as_kafka_keeps_them() -> None:
    story = Story(group="")
    assert story.commit("A", 3, generation_id=-1, member_id="") is E.NONE
    assert story.committed() == 3


def test_no_member_may_sync_while_members_join_again() -> None:
    story = stable_group()
    story.join("A")
    story.sync("S")
    assert code_of(story.last) is E.REBALANCE_IN_PROGRESS
    assert story.heartbeat("S") is E.REBALANCE_IN_PROGRESS
    assert story.commit("S", 4, partition=1) is E.NONE


def test_a_commit_waits_for_the_assignment() -> None:
    story = completing_group()
    assert story.commit("A", 10) is E.REBALANCE_IN_PROGRESS
    assert story.heartbeat("A") is E.NONE
    assert story.committed() == 9


def test_a_full_group_rejects_new_members() -> None:
    story = stable_group(group_size_max=2)
    story.join("N")
    assert code_of(story.last) is E.GROUP_MAX_SIZE_REACHED
    assert story.heartbeat("A") is E.NONE
    story.join("A")  # A rebalance begins; the two seats belong to those who join again first.
    story.join("N")
    assert code_of(story.last) is E.MEMBER_ID_REQUIRED
    story.join("N")
    story.join("S")
    assert story.clients["S"].errors[-1] is E.GROUP_MAX_SIZE_REACHED
    assert sorted(story.shard.groups["orders"].members) == sorted(
        [story.clients["A"].member_id, story.clients["N"].member_id]
    )


def test_a_group_that_is_over_a_lowered_limit_rebalances_when_it_is_loaded() -> None:
    story = stable_group()
    story.config = type(story.config)(group_size_max=1)
    story.restart()
    assert story.heartbeat("A") is E.REBALANCE_IN_PROGRESS
    story.join("A")
    story.join("S")
    assert story.clients["S"].errors[-1] is E.GROUP_MAX_SIZE_REACHED
    assert story.shard.groups["orders"].generation_id == 2


def test_unused_member_ids_are_bounded_and_forgotten() -> None:
    story = Story(pending_members_max=3)
    for index in range(5):
        story.join(f"N{index}")
    assert [story.clients[f"N{index}"].errors[-1] for index in range(5)] == [
        *[E.MEMBER_ID_REQUIRED] * 3,
        *[E.GROUP_MAX_SIZE_REACHED] * 2,
    ]
    story.leave("N0")
    story.join("N5")
    assert story.clients["N5"].errors[-1] is E.MEMBER_ID_REQUIRED
    story.pass_ms(10_100)
    assert story.shard.groups == {}
    assert [key.kind for key in story.timers] == ["expiry"]
    story.join("N6")
    assert story.clients["N6"].errors[-1] is E.MEMBER_ID_REQUIRED


def test_a_pending_member_cannot_be_static() -> None:
    story = stable_group()
    story.join("N")
    story.clients["N"].instance_id = "till-7"
    story.join("N")
    assert code_of(story.last) is E.UNKNOWN_SERVER_ERROR


def test_a_repeated_request_ends_the_wait_of_the_first() -> None:
    story = stable_group()
    story.join("A")
    story.join("A")
    assert code_of(story.last) is E.REBALANCE_IN_PROGRESS
    story.join("S")
    story.sync("S")
    story.sync("S")
    assert code_of(story.last) is E.REBALANCE_IN_PROGRESS
    assert len(story.unanswered) == 1


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    story = completing_group()
    story.sync("S")
    story.leave("S")
    assert story.clients["S"].errors[-1] is E.UNKNOWN_MEMBER_ID
    assert story.unanswered == set()


def test_members_that_say_more_than_a_record_may_hold_get_no_assignment() -> None:
    story = Story(group_record_bytes_max=1_000)
    story.enter("A", protocols=(("range", b"m" * 2_000),))
    story.enter("B")
    story.pass_ms(6_000)
    story.sync("B")
    story.sync("A", {"A": b"p0", "B": b"p1"})
    assert story.client("A").errors[-1] is story.client("B").errors[-1] is E.UNKNOWN_SERVER_ERROR
    assert not story.records
    # It says less, and all is well.
    story.join("A")
    story.join("B")
    story.sync("A", {"A": b"p0", "B": b"p1"})
    story.sync("B")
    assert (story.client("A").assignment, story.client("B").assignment) == (b"p0", b"p1")


def test_a_static_member_that_returns_with_too_much_makes_its_group_rebalance() -> None:
    story = Story(group_record_bytes_max=1_000)
    story.client("A", instance_id="till")
    story.enter("A")
    story.pass_ms(3_000)
    story.sync("A", {"A": b"p0"})
    logged = len(story.records)
    story.join("A", member_id="", protocols=(("range", b"m" * 2_000),))
    story.sync("A", {"A": b"p0"})
    assert story.client("A").errors[-1] is E.UNKNOWN_SERVER_ERROR
    assert len(story.records) == logged
