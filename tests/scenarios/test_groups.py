"""Stories of groups: each one is a script and the trace that it must leave."""

from __future__ import annotations

from tests.unit.coordinators.story import REBALANCE_MS, SESSION_MS, Story

from strandline.errors import ErrorCode


def two_members_share() -> Story:
    """A and B in one stable generation: A leads, A has p0 and B has p1."""
    story = Story()
    story.enter("A")
    story.enter("B")
    story.pass_ms(3_000)
    story.pass_ms(3_000)
    story.sync("B")
    story.sync("A", {"A": b"p0", "B": b"p1"})
    return story


def test_two_members_share_a_topic() -> None:
    story = two_members_share()
    assert story.told() == [
        "A#1: join MEMBER_ID_REQUIRED",
        "B#1: join MEMBER_ID_REQUIRED",
        "A#1: joined generation 1, leads, range",
        "B#1: joined generation 1, follows, range",
        "log: orders generation 1 [A#1=p0, B#1=p1]",
        "A#1: assigned p0",
        "B#1: assigned p1",
    ]
    assert story.clients["A"].members == [story.clients["A"].member_id, story.clients["B"].member_id]
    assert story.clients["B"].members == [], "only the leader assigns, so only it is told who is there"
    assert story.heartbeat("A") is ErrorCode.NONE
    assert story.commit("A", 42) is ErrorCode.NONE
    assert story.committed() == 42


def test_a_member_that_dies_is_noticed_and_its_partitions_move() -> None:
    story = two_members_share()
    story.told()
    for _ in range(4):
        story.pass_ms(SESSION_MS // 3)
        story.heartbeat("A")  # B is silent.
    assert story.told()[-1] == "A#1: heartbeat REBALANCE_IN_PROGRESS"
    story.join("A")
    story.sync("A", {"A": b"p0 p1"})
    assert story.told() == [
        "A#1: joined generation 2, leads, range",
        "log: orders generation 2 [A#1=p0 p1]",
        "A#1: assigned p0 p1",
    ]
    assert story.commit("B", 7, partition=1) is ErrorCode.UNKNOWN_MEMBER_ID, "the dead may not move a position"
    assert story.committed(partition=1) == -1
    assert story.heartbeat("B") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_hands_over_at_once() -> None:
    story = two_members_share()
    story.told()
    assert story.leave("B") == [ErrorCode.NONE]
    assert story.heartbeat("A") is ErrorCode.REBALANCE_IN_PROGRESS
    story.join("A")
    story.sync("A", {"A": b"p0 p1"})
    assert story.leave("A") == [ErrorCode.NONE]
    assert story.told() == [
        "B#1: left NONE",
        "A#1: heartbeat REBALANCE_IN_PROGRESS",
        "A#1: joined generation 2, leads, range",
        "log: orders generation 2 [A#1=p0 p1]",
        "A#1: assigned p0 p1",
        "log: orders generation 3 []",
        "A#1: left NONE",
    ]


def test_a_slow_member_is_left_behind_at_the_rebalance_timeout() -> None:
    story = two_members_share()
    story.told()
    story.enter("C")
    story.join("A")
    for _ in range(REBALANCE_MS // 5_000):
        story.heartbeat("B")  # B lives, but does not join again.
        story.pass_ms(5_000)
    assert [line for line in story.told() if "heartbeat" not in line] == [
        "C#1: join MEMBER_ID_REQUIRED",
        "A#1: joined generation 2, leads, range",
        "C#1: joined generation 2, follows, range",
    ]
    assert story.heartbeat("B") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_join_again_is_replaced() -> None:
    story = two_members_share()
    story.told()
    story.enter("C")
    story.join("B")
    story.pass_ms(SESSION_MS + 100)  # A, the leader, is gone: its session ends long before the rebalance timeout.
    assert story.told() == [
        "C#1: join MEMBER_ID_REQUIRED",
        "B#1: joined generation 2, leads, range",
        "C#1: joined generation 2, follows, range",
    ]


def test_a_member_that_never_syncs_is_removed() -> None:
    story = Story()
    story.enter("A")
    story.enter("B")
    story.pass_ms(6_000)
    story.sync("A", {"A": b"p0", "B": b"p1"})
    for _ in range(REBALANCE_MS // 5_000 + 1):
        story.heartbeat("A")
        story.heartbeat("B")
        story.pass_ms(5_000)
    assert story.heartbeat("B") is ErrorCode.UNKNOWN_MEMBER_ID
    assert story.heartbeat("A") is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_initial_delay_is_extended_while_members_arrive() -> None:
    story = Story(initial_rebalance_delay_ms=3_000)
    story.join("A", api_version=3, rebalance_ms=8_000)
    story.pass_ms(2_000)
    story.join("B", api_version=3, rebalance_ms=8_000)
    story.pass_ms(2_000)
    assert story.told() == [], "B arrived during the delay, so the group waits again"
    story.join("C", api_version=3, rebalance_ms=8_000)
    story.pass_ms(2_500)
    assert story.told() == []
    story.pass_ms(2_000)
    assert story.told() == [
        "A#1: joined generation 1, leads, range",
        "B#1: joined generation 1, follows, range",
        "C#1: joined generation 1, follows, range",
    ], "but never longer than the rebalance timeout"


def test_a_static_member_that_returns_keeps_its_partitions() -> None:
    story = Story()
    story.client("A", instance_id="till-1")
    story.client("B", instance_id="till-2")
    story.join("A")
    story.join("B")
    story.pass_ms(6_000)
    story.sync("A", {"A": b"p0", "B": b"p1"})
    story.sync("B")
    story.told()

    old = story.clients.pop("B")
    story.client("B", instance_id="till-2")  # The process restarts and has forgotten its member id.
    story.join("B")
    story.sync("B")
    assert story.told() == [
        f"log: orders generation 1 [A#1=p0, {story.clients['B'].member_id}=p1]",
        "B#2: joined generation 1, follows, range",
        "B#2: assigned p1",
    ]
    assert story.heartbeat("A") is ErrorCode.NONE, "nobody else noticed"

    story.clients["old B"] = old
    assert story.heartbeat("old B") is ErrorCode.FENCED_INSTANCE_ID
    assert story.commit("old B", 1) is ErrorCode.FENCED_INSTANCE_ID
    assert story.committed() == -1


def test_a_static_leader_that_returns_leads_without_assigning() -> None:
    story = Story()
    story.client("A", instance_id="till-1")
    story.join("A")
    story.pass_ms(3_000)
    story.sync("A", {"A": b"p0"})
    story.clients.pop("A")

    story.client("A", instance_id="till-1")
    story.join("A", api_version=9)
    assert story.clients["A"].leads
    assert story.clients["A"].skip_assignment
    assert story.clients["A"].members == [story.clients["A"].member_id]

    story.clients.pop("A")
    story.client("A", instance_id="till-1")
    story.join("A", api_version=8)
    assert not story.clients["A"].leads, "a client without skip_assignment must not take itself for the leader"
    story.sync("A", {"A": b"other"})
    assert story.clients["A"].assignment == b"p0"


def test_two_processes_with_one_instance_id_the_later_wins() -> None:
    story = Story()
    story.client("A", instance_id="till-1")
    story.client("impostor", instance_id="till-1")
    story.join("A")
    story.join("impostor")
    assert story.told() == ["A: join FENCED_INSTANCE_ID"]
    story.pass_ms(6_000)
    assert story.told() == ["impostor#1: joined generation 1, leads, range"]


def test_a_static_member_is_removed_by_an_administrator() -> None:
    story = Story()
    story.client("A", instance_id="till-1")
    story.join("A")
    story.pass_ms(3_000)
    story.sync("A", {"A": b"p0"})
    story.client("admin", instance_id="till-1")
    assert story.leave("admin") == [ErrorCode.NONE]
    assert story.heartbeat("A") is ErrorCode.UNKNOWN_MEMBER_ID
    assert story.shard.groups["orders"].state == "Empty"


def test_a_commit_of_an_old_generation_moves_nothing() -> None:
    story = two_members_share()
    assert story.commit("B", 10, partition=1) is ErrorCode.NONE
    story.enter("C")
    assert story.commit("B", 11, partition=1) is ErrorCode.NONE, "before it joins again B may still save its work"
    story.join("A")
    story.join("B")
    assert story.commit("B", 12, partition=1) is ErrorCode.REBALANCE_IN_PROGRESS
    story.sync("A", {"A": b"p0", "B": b"", "C": b"p1"})
    assert story.commit("B", 13, partition=1, generation_id=1) is ErrorCode.ILLEGAL_GENERATION
    assert story.committed(partition=1) == 11


def test_the_broker_restarts_and_members_go_on_where_they_were() -> None:
    story = two_members_share()
    story.commit("A", 5)
    story.restart()
    story.told()
    assert story.heartbeat("A") is ErrorCode.NONE
    assert story.heartbeat("B") is ErrorCode.NONE
    assert story.commit("B", 6, partition=1) is ErrorCode.NONE
    assert (story.committed(), story.committed(partition=1)) == (5, 6)


def test_the_broker_restarts_in_the_middle_of_a_rebalance() -> None:
    story = two_members_share()
    story.enter("C")
    story.join("A")
    story.join("B")  # Generation 2 has begun, and its leader has not assigned yet.
    story.restart()
    story.told()
    assert story.heartbeat("C") is ErrorCode.UNKNOWN_MEMBER_ID
    assert story.heartbeat("A") is ErrorCode.ILLEGAL_GENERATION
    story.clients["C"].member_id = ""
    story.enter("C")
    story.join("A")
    story.join("B")
    story.sync("A", {"A": b"p0", "B": b"", "C": b"p1"})
    story.sync("B")
    story.sync("C")
    assert story.told()[-4:] == [
        "log: orders generation 2 [A#1=p0, B#1=, C#2=p1]",
        "A#1: assigned p0",
        "B#1: assigned ",
        "C#2: assigned p1",
    ]


def test_a_member_that_does_not_return_after_a_restart_times_out() -> None:
    story = two_members_share()
    story.restart()
    story.pass_ms(SESSION_MS - 100)
    assert story.heartbeat("A") is ErrorCode.NONE, "each member gets a whole session"
    story.pass_ms(200)
    assert story.heartbeat("A") is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_simple_consumer_keeps_its_offsets_here_and_nothing_else() -> None:
    story = Story()
    assert story.commit("job", 12, generation_id=-1, member_id="") is ErrorCode.NONE
    story.restart()
    assert story.committed() == 12
    assert story.shard.groups["orders"].protocol_type is None
    story.enter("A")
    assert story.commit("job", 13, generation_id=-1, member_id="") is ErrorCode.UNKNOWN_MEMBER_ID
    assert story.committed() == 12, "a group with members has its positions moved by members"


def test_a_metadata_change_rebalances_and_a_repeated_join_does_not() -> None:
    story = two_members_share()
    story.told()
    story.join("B")
    assert story.told() == ["B#1: joined generation 1, follows, range"]
    story.join("B", protocols=(("range", b"more topics"),))
    assert story.told() == []
    assert story.heartbeat("A") is ErrorCode.REBALANCE_IN_PROGRESS
    story.join("A")
    assert story.told()[1:] == [
        "A#1: joined generation 2, leads, range",
        "B#1: joined generation 2, follows, range",
    ]


def test_the_leader_can_ask_for_a_rebalance() -> None:
    story = two_members_share()
    story.told()
    story.join("A")
    assert story.told() == []
    assert story.heartbeat("B") is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_protocol_with_the_most_votes_wins_among_those_all_support() -> None:
    story = Story()
    story.enter("A", protocols=(("sticky", b""), ("range", b""), ("only-a", b"")))
    story.enter("B", protocols=(("range", b""), ("sticky", b"")))
    story.enter("C", protocols=(("range", b""), ("sticky", b"")))
    story.pass_ms(60_000)
    assert [client.protocol_name for client in story.clients.values()] == ["range"] * 3


def test_one_leave_takes_many_members() -> None:
    story = two_members_share()
    story.client("ghost").member_id = "nobody"
    assert story.leave("A", "ghost", "B") == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert story.shard.groups["orders"].state == "Empty"


def test_a_member_that_the_leader_forgets_has_nothing() -> None:
    story = two_members_share()
    story.join("A")
    story.join("B")
    story.sync("B")
    story.sync("A", {"A": b"p0 p1"})
    assert story.clients["B"].assignment == b"", "not what it had in the generation before"


def test_a_static_member_that_restarts_before_it_synced_is_still_waited_for() -> None:
    story = Story()
    story.client("S", instance_id="till-1")
    story.enter("A")
    story.join("S")
    story.pass_ms(6_000)
    story.sync("A", {"A": b"p0", "S": b"p1"})
    story.clients.pop("S")
    story.client("S", instance_id="till-1")
    story.join("S")
    story.sync("S")
    assert story.clients["S"].assignment == b"p1"
    for _ in range(REBALANCE_MS // 5_000 + 1):
        story.pass_ms(5_000)
        assert story.heartbeat("A") is ErrorCode.NONE, "all have synced, so nobody is put out for it"
        assert story.heartbeat("S") is ErrorCode.NONE


def test_a_newcomer_that_was_promised_a_seat_is_waited_for() -> None:
    story = two_members_share()
    story.told()
    story.join("N")
    story.join("A")
    story.join("B")
    assert story.told() == ["N#1: join MEMBER_ID_REQUIRED"], "one rebalance for all of them, not two"
    story.join("N")
    assert [line.split(",")[0] for line in story.told()] == [
        "A#1: joined generation 2",
        "B#1: joined generation 2",
        "N#1: joined generation 2",
    ]


def test_a_newcomer_that_does_not_take_its_seat_holds_nobody_up_for_long() -> None:
    story = two_members_share()
    story.told()
    story.join("N")
    story.join("A")
    story.join("B")
    story.pass_ms(SESSION_MS + 100)
    assert story.told()[1:] == ["A#1: joined generation 2, leads, range", "B#1: joined generation 2, follows, range"]


def test_a_static_member_that_misses_a_rebalance_keeps_its_seat() -> None:
    story = Story()
    story.client("S", instance_id="till-1")
    story.enter("A")
    story.join("S", session_ms=100_000)
    story.pass_ms(6_000)
    story.sync("A", {"A": b"p0", "S": b"p1"})
    story.sync("S")
    story.told()
    story.join("A")
    story.pass_ms(REBALANCE_MS + 100)
    assert story.told() == ["A#1: joined generation 2, leads, range"]
    assert story.clients["S"].member_id in story.clients["A"].members, "it may be restarting, and is assigned to"


def test_only_absent_static_members_are_left_and_the_group_waits_for_them() -> None:
    story = Story()
    story.client("S", instance_id="till-1")
    story.enter("A")
    story.join("S", session_ms=100_000)
    story.pass_ms(6_000)
    story.sync("A", {"A": b"p0", "S": b"p1"})
    story.sync("S")
    story.leave("A")
    story.told()
    story.pass_ms(REBALANCE_MS + 100)
    assert story.told() == [], "nobody is there to lead"
    story.join("S", session_ms=100_000)
    assert story.told() == ["S#1: joined generation 2, leads, range"]


def test_a_parked_sync_is_cut_off_by_the_next_rebalance() -> None:
    story = two_members_share()
    story.join("A")
    story.join("B")
    story.sync("B")
    story.told()
    story.enter("C")
    assert story.told() == ["B#1: sync REBALANCE_IN_PROGRESS", "C#1: join MEMBER_ID_REQUIRED"][::-1]
    group = story.shard.groups["orders"]
    assert {member.assignment for member in group.members.values()} == {b""}, "nobody holds partitions in between"


def test_a_new_member_does_not_wait_for_ever() -> None:
    story = Story()
    story.enter("A", rebalance_ms=900_000)
    story.pass_ms(6_000)
    story.sync("A", {"A": b"p0"})
    story.enter("N")
    story.told()
    for _ in range(61):
        story.heartbeat("A")  # A lives, and takes its time to join again.
        story.pass_ms(5_000)
    assert [line for line in story.told() if "heartbeat" not in line] == ["N#1: join UNKNOWN_MEMBER_ID"]


def test_a_member_that_missed_the_answer_asks_again() -> None:
    story = two_members_share()
    story.join("A")
    story.join("B")
    story.told()
    story.join("B")
    story.join("A")
    assert story.told() == ["B#1: joined generation 2, follows, range", "A#1: joined generation 2, leads, range"]
    assert len(story.clients["A"].members) == 2
    story.join("B", protocols=(("range", b"more topics"),))
    assert story.heartbeat("A") is ErrorCode.REBALANCE_IN_PROGRESS, "but not if it has changed its mind"


def test_a_static_member_that_returns_with_other_protocols_rebalances() -> None:
    story = Story()
    story.client("S", instance_id="till-1")
    story.join("S", protocols=(("range", b""), ("sticky", b"")))
    story.pass_ms(6_000)
    story.sync("S", {"S": b"p0"})
    story.clients.pop("S")
    story.client("S", instance_id="till-1")
    story.join("S", protocols=(("sticky", b""), ("range", b"")))
    assert story.clients["S"].generation_id == 2
    assert story.clients["S"].protocol_name == "sticky"


def test_a_static_member_that_returns_while_the_leader_assigns_rebalances() -> None:
    story = Story()
    story.client("S", instance_id="till-1")
    story.enter("A")
    story.join("S")
    story.pass_ms(6_000)
    story.clients.pop("S")
    story.client("S", instance_id="till-1")
    story.join("S")
    assert story.heartbeat("A") is ErrorCode.REBALANCE_IN_PROGRESS, "A would assign to a member id that is gone"
    story.join("A")
    story.sync("A", {"A": b"p0", "S": b"p1"})
    story.sync("S")
    assert story.clients["S"].assignment == b"p1"
