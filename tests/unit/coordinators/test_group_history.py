"""What is remembered of rebalances: why each began, how long it took, who lost and got what, and who flaps."""

from __future__ import annotations

import uuid

import pytest
from tests.unit.coordinators import test_mixed_groups
from tests.unit.coordinators.consumer_story import SESSION_MS as CONSUMER_SESSION_MS
from tests.unit.coordinators.consumer_story import ConsumerStory
from tests.unit.coordinators.mixed_clients import Table
from tests.unit.coordinators.story import REBALANCE_MS, SESSION_MS, Story

from strandline.codec.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from strandline.codec.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from strandline.coordinators.groups.classic.classic_group import ClassicGroup, ClassicGroupMember, Protocol
from strandline.coordinators.groups.classic.consumer_protocol import encode_assignment, encode_subscription
from strandline.coordinators.groups.consumer.consumer_group import ConsumerMember
from strandline.coordinators.groups.events import Tell
from strandline.coordinators.groups.history.assignment_diff import HELD_BYTES_MAX, MemberRef, assignment_diff
from strandline.coordinators.groups.history.flapping_members import (
    FLAP_WINDOW_MS,
    FLAPPERS_MAX,
    LIVES_MAX,
    SHORT_LIFE_MS,
    FlappingMembers,
)
from strandline.coordinators.groups.history.group_history import (
    CHANGES_MAX,
    HISTORY_BYTES_MAX,
    NOTES_MAX,
    REASON_CHARACTERS_MAX,
    REBALANCES_PER_GROUP_MAX,
    GroupHistory,
    Happening,
    Rebalance,
    is_at_rest,
)
from strandline.coordinators.groups.history.sentences import note_words, rebalance_line
from strandline.errors import ErrorCode

FOUR_PARTITIONS = {"t": 4}


def topics(*names: str) -> tuple[tuple[str, bytes], ...]:
    return (("range", encode_subscription(ConsumerProtocolSubscription(topics=list(names)), 1)),)


def owns(*partitions: int, topic: str = "t") -> bytes:
    # With user data that is not null, because the trace of a story shows assignments as text.
    assigned = [TopicPartition(topic=topic, partitions=list(partitions))]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=b""), 1)


def name_of(topic_id: uuid.UUID) -> str:
    return {uuid.UUID(int=1): "t"}[topic_id]


def whys(rebalance: Rebalance) -> list[str]:
    return [note_words(note) for note in rebalance.notes]


def moves(rebalance: Rebalance) -> dict[str, tuple[list[int], list[int], int] | None]:
    """By client: what it lost of topic t, what it got, and how much it kept."""
    found: dict[str, tuple[list[int], list[int], int] | None] = {}
    for change in rebalance.changes:
        seen = assignment_diff(change.before, change.after, name_of)
        name = change.who.instance_id or change.who.client_id
        found[name] = None
        if seen is not None:
            found[name] = (sorted(seen.lost.get("t", ())), sorted(seen.gained.get("t", ())), seen.kept)
    return found


def two_members_share() -> Story:
    story = Story(initial_rebalance_delay_ms=0)
    story.enter("A", protocols=topics("t"))
    story.pass_ms(1)
    story.sync("A", {"A": owns(0, 1)})
    story.enter("B", protocols=topics("t"))
    story.join("A", protocols=topics("t"))
    story.sync("B")
    story.sync("A", {"A": owns(0), "B": owns(1)})
    return story


def history(story: Story | ConsumerStory) -> list[Rebalance]:
    return story.shard.history.of("orders")


# ---- the classic protocol


def test_who_joined_and_what_it_got() -> None:
    first, second = history(two_members_share())
    assert (whys(first), moves(first)) == (["A joined"], {"A": ([], [0, 1], 0)})
    assert (first.epoch, first.members, first.group_type) == (1, 1, "classic")
    assert (whys(second), moves(second)) == (["B joined"], {"A": ([1], [], 1), "B": ([], [1], 0)})
    assert 0 < second.ended_ms - second.began_ms < 100


def test_who_timed_out_and_what_it_lost() -> None:
    story = two_members_share()
    for _ in range(4):
        story.pass_ms(SESSION_MS // 3)
        story.heartbeat("A")
    began_ms = history(story)[-1].began_ms
    assert history(story)[-1].ended_ms == -1, "A has to join first"
    story.pass_ms(500)
    story.join("A", protocols=topics("t"))
    story.sync("A", {"A": owns(0, 1)})
    last = history(story)[-1]
    assert whys(last) == [f"B timed out (no heartbeat for its session, {SESSION_MS} ms)"]
    assert moves(last) == {"A": ([], [1], 1), "B": ([1], [], 0)}
    assert last.began_ms == began_ms
    assert last.ended_ms - began_ms >= 500, "it took as long as A took to join"


def test_who_left_with_its_own_words() -> None:
    story = two_members_share()
    story.leave("B")
    story.join("A", protocols=topics("t"))
    story.sync("A", {"A": owns(0, 1)})
    assert whys(history(story)[-1]) == ["B left"]


def test_a_member_that_does_not_join_again_is_too_late() -> None:
    story = two_members_share()
    story.enter("C", protocols=topics("t"))
    story.join("A", protocols=topics("t"))
    for _ in range(REBALANCE_MS // SESSION_MS * 2 + 1):
        story.pass_ms(SESSION_MS // 2)
        story.heartbeat("B")  # It lives, but it does not come.
    story.sync("C")
    story.sync("A", {"A": owns(0), "C": owns(1)})
    last = history(story)[-1]
    assert whys(last) == ["C joined", "B was too late (did not join again within the rebalance timeout)"]
    assert moves(last) == {"B": ([1], [], 0), "C": ([], [1], 0)}, "A kept what it had and is not worth a word"


def test_another_subscription_and_a_leader_that_asks() -> None:
    story = two_members_share()
    story.join("B", protocols=topics("t", "u"))
    story.join("A", protocols=topics("t"))
    story.sync("B")
    story.sync("A", {"A": owns(0), "B": owns(1)})
    assert whys(history(story)[-1]) == ["B changed its subscription"]
    assert history(story)[-1].changes == ()
    story.join("A", protocols=topics("t"))
    story.join("B", protocols=topics("t", "u"))
    story.sync("B")
    story.sync("A", {"A": owns(1), "B": owns(0)})
    assert whys(history(story)[-1]) == ["A asked for a rebalance (its leader)"]
    assert moves(history(story)[-1]) == {"A": ([0], [1], 0), "B": ([1], [0], 0)}


def test_a_static_member_that_comes_back_moves_nothing() -> None:
    story = Story(initial_rebalance_delay_ms=0)
    story.client("A", instance_id="seat-a")
    story.enter("A", protocols=topics("t"))
    story.pass_ms(1)
    story.sync("A", {"A": owns(0, 1)})
    story.client("A").member_id = ""
    story.join("A", protocols=topics("t"))
    last = history(story)[-1]
    assert (last.is_rebalance, whys(last), last.changes) == (False, ["seat-a came back to its seat"], ())


def test_a_static_member_with_another_member_id_is_the_same_one() -> None:
    story = two_members_share()
    story.client("C", instance_id="seat-c")
    story.enter("C", protocols=topics("t"))
    for name in "AB":
        story.join(name, protocols=topics("t"))
    story.sync("B")
    story.sync("C")
    story.sync("A", {"A": owns(0), "B": owns(1), "C": owns(2)})
    story.leave("B")
    story.client("C").member_id = ""
    story.join("C", protocols=topics("t"))
    story.join("A", protocols=topics("t"))
    story.sync("C")
    story.sync("A", {"A": owns(0, 1), "C": owns(2)})
    last = history(story)[-1]
    assert whys(last) == ["B left", "seat-c came back to its seat"]
    assert moves(last) == {"A": ([], [1], 1), "B": ([1], [], 0)}


def test_a_group_that_becomes_empty() -> None:
    story = two_members_share()
    story.leave("A", "B")
    last = history(story)[-1]
    assert (whys(last), last.members) == (["A left", "B left"], 0)
    assert moves(last) == {"A": ([0], [], 0), "B": ([1], [], 0)}


def test_what_no_consumer_wrote_is_not_read() -> None:
    story = Story(initial_rebalance_delay_ms=0)
    story.enter("A", protocols=(("connect", b"\xff"),))
    story.pass_ms(1)
    story.sync("A", {"A": b"\x7f"}, protocol_name="connect")
    assert moves(history(story)[-1]) == {"A": None}


def test_a_coordinator_that_is_loaded_starts_over() -> None:
    story = two_members_share()
    story.enter("C", protocols=topics("t"))
    assert history(story)[-1].ended_ms == -1
    kept = story.shard.history
    story.restart()
    assert history(story) == [], "a shard of its own remembers nothing"
    for group_id in story.shard.groups:
        kept.start_over(group_id)
    assert [each.epoch for each in kept.of("orders")] == [1, 2], "what was under way is not known to have ended"


# ---- the consumer protocol


def test_members_of_the_consumer_protocol() -> None:
    story = ConsumerStory(topics=FOUR_PARTITIONS)
    story.join("a", client_id="A")
    story.join("b", client_id="B")
    assert history(story)[-1].ended_ms == -1, "a has to give up first"
    story.say("a", 2, client_id="A")
    story.say("a", 2, owns={"t": [0, 1]}, client_id="A")
    story.say("b", 3, client_id="B")
    first, second = history(story)
    assert (whys(first), moves(first)) == (["A joined"], {"A": ([], [0, 1, 2, 3], 0)})
    assert (whys(second), moves(second)) == (["B joined"], {"A": ([2, 3], [], 2), "B": ([], [2, 3], 0)})
    assert (second.group_type, second.epoch, second.members) == ("consumer", 3, 2)

    story.say("b", -1, client_id="B")
    story.say("a", 3, client_id="A")
    third = history(story)[-1]
    assert (whys(third), moves(third)) == (["B left"], {"A": ([], [2, 3], 2), "B": ([2, 3], [], 0)})

    story.topics.grow("t", 5)
    story.topics_changed("t")
    story.say("a", 4, client_id="A")
    fourth = history(story)[-1]
    assert (whys(fourth), moves(fourth)) == (["topics changed (t)"], {"A": ([], [4], 4)})

    story.pass_ms(CONSUMER_SESSION_MS + 1)
    fifth = history(story)[-1]
    assert whys(fifth) == [f"A timed out (no heartbeat for its session, {CONSUMER_SESSION_MS} ms)"]
    assert (fifth.members, moves(fifth)) == (0, {"A": ([0, 1, 2, 3, 4], [], 0)})


def test_a_member_that_does_not_give_up_in_time() -> None:
    story = ConsumerStory(topics=FOUR_PARTITIONS)
    story.join("a", client_id="A")
    story.join("b", client_id="B")
    story.say("a", 2, client_id="A")
    for _ in range(5):
        story.pass_ms(15_000)
        if "a" in story.group.members:
            story.say("a", 2, client_id="A")
        story.say("b", story.group.members["b"].member_epoch, client_id="B")
    last = history(story)[-1]
    assert whys(last) == ["B joined", "A was too late (did not give up partitions within the rebalance timeout)"]
    assert moves(last) == {"A": ([0, 1, 2, 3], [], 0), "B": ([], [0, 1, 2, 3], 0)}


def test_a_static_member_of_the_consumer_protocol_that_is_away_for_a_while() -> None:
    story = ConsumerStory(topics=FOUR_PARTITIONS)
    story.join("a", client_id="A", instance_id="seat")
    story.say("a", -2, instance_id="seat", client_id="A")
    story.join("a2", client_id="A", instance_id="seat")
    told = [(whys(each), each.is_rebalance) for each in history(story)]
    assert told == [
        (["seat joined"], True),
        (["seat went away for a while", "seat came back to its seat"], False),
    ]


def test_who_speaks_for_an_instance_that_another_process_has_is_fenced() -> None:
    story = ConsumerStory(topics=FOUR_PARTITIONS)
    story.join("a", client_id="A", instance_id="seat")
    assert story.join("a2", client_id="A2", instance_id="seat").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    story.say("a3", 2, client_id="A3", instance_id="seat")
    last = history(story)[-1]
    assert (last.is_rebalance, [note.who.client_id for note in last.notes if note.who]) == (False, ["A2", "A3"])
    assert whys(last)[0] == "seat was fenced (another process has its instance id)"

    classic = Story(initial_rebalance_delay_ms=0)
    classic.client("A", instance_id="seat")
    classic.enter("A", protocols=topics("t"))
    classic.pass_ms(1)
    classic.sync("A", {"A": owns(0, 1)})
    classic.client("B", instance_id="seat")
    classic.join("B", protocols=topics("t"))
    assert classic.heartbeat("A") is ErrorCode.FENCED_INSTANCE_ID
    classic.sync("A")
    classic.join("A", protocols=topics("t"))
    last = history(classic)[-1]
    assert (last.is_rebalance, whys(last)) == (
        False,
        ["seat came back to its seat", *["seat was fenced (another process has its instance id)"] * 3],
    )


# ---- whatever happens


class WatchedTable(Table):
    """Consumers of both protocols, coordinators that die; and after each step it is looked at what is remembered."""

    def check(self) -> None:
        super().check()
        if (group := self.group) is None:
            return
        is_open = self.shard.history.is_open(group.group_id)
        if is_at_rest(group):
            assert not is_open, "the group is at rest"
        elif not any(isinstance(each, ConsumerMember) and each.member_epoch < 0 for each in group.members.values()):
            # The seat of a static member that is away keeps a group from being stable, but nothing moves for it.
            assert is_open, f"{group.state}, and the cause is unknown"


@pytest.mark.parametrize(
    "seed",
    [
        *range(3),
        *(pytest.param(seed, marks=pytest.mark.lengthy("random walks beside a model")) for seed in range(3, 20)),
    ],
)
def test_every_rebalance_begins_with_a_reason_and_ends(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_mixed_groups, "Table", WatchedTable)
    table = test_mixed_groups.run(seed, steps=150)
    assert table.group is not None
    for rebalance in table.shard.history.of(table.group.group_id):
        assert rebalance.notes
        # What one lost another may get, and no member gets what another keeps.
        assert all(change.before != change.after for change in rebalance.changes)


# ---- who flaps


def group_of(*members: str) -> ClassicGroup:
    group = ClassicGroup("orders")
    for name in members:
        member = ClassicGroupMember(name, None, f"client-{name}", "/10.0.0.1", 1, 1, (Protocol("range", b""),), owns(0))
        group.add(member, "consumer")
    return group


def live_and_die(history: GroupHistory, who: MemberRef, at_ms: int, life_ms: int) -> int:
    group = group_of()
    history.note(group, Happening.JOINED, who, at_ms)
    return history.note(group, Happening.TIMED_OUT, who, at_ms + life_ms).flaps


def test_a_client_that_comes_and_goes_again_and_again_flaps() -> None:
    history = GroupHistory()
    who = [MemberRef(f"m{number}", None, "billing", "/10.0.0.7") for number in range(5)]
    told = [live_and_die(history, each, number * 60_000, 10_000) for number, each in enumerate(who)]
    assert told == [0, 0, 3, 4, 5]
    assert history.note(group_of(), Happening.JOINED, who[0], 300_000).flaps == 5
    later_ms = 4 * 60_000 + 10_000 + FLAP_WINDOW_MS
    assert live_and_die(history, MemberRef("m9", None, "billing", "/10.0.0.7"), later_ms, 10_000) == 0, "long ago"


@pytest.mark.parametrize(
    ("who", "life_ms"),
    [
        pytest.param([MemberRef(f"m{n}", None, "billing", f"/10.0.0.{n}") for n in range(9)], 1_000, id="other hosts"),
        pytest.param(
            [MemberRef(f"m{n}", f"i{n}", "billing", "/10.0.0.7") for n in range(9)], 1_000, id="other instances"
        ),
        pytest.param(
            [MemberRef(f"m{n}", None, "billing", "/10.0.0.7") for n in range(9)], SHORT_LIFE_MS, id="long lives"
        ),
    ],
)
def test_who_does_not_flap(who: list[MemberRef], life_ms: int) -> None:
    history = GroupHistory()
    assert {live_and_die(history, each, number * 1_000, life_ms) for number, each in enumerate(who)} == {0}


@pytest.mark.parametrize(("others", "flaps"), [((), {0}), (("other",), {0, 3})], ids=["alone", "beside another"])
def test_a_command_that_reads_and_leaves_flaps_only_beside_others(others: tuple[str, ...], flaps: set[int]) -> None:
    history = GroupHistory()
    told = set()
    for number in range(3):
        who = MemberRef(f"m{number}", None, "strandline-cli", "/10.0.0.7")
        history.note(group_of(*others), Happening.JOINED, who, number * 10_000)
        told.add(history.note(group_of(*others, who.member_id), Happening.LEFT, who, number * 10_000 + 3_000).flaps)
    assert told == flaps


def test_an_instance_that_is_restarted_again_and_again_flaps_without_a_timeout() -> None:
    history = GroupHistory()
    told = [
        history.note(
            group_of(), Happening.RETURNED, MemberRef(f"m{n}", "seat", "billing", ""), n * 10_000, opens=False
        ).flaps
        for n in range(6)
    ]
    assert told == [0, 0, 0, 3, 4, 5]


# ---- within limits


def test_who_flaps_is_counted_within_limits() -> None:
    lives = FlappingMembers()
    for number in range(FLAPPERS_MAX * 2):
        for _ in range(4):
            who = MemberRef(f"m{number}", None, f"client-{number}", "/10.0.0.7")
            lives.begin(who, 1)
            lives.end(who, 1)
    assert lives.flaps(MemberRef("m0", None, "client-0", "/10.0.0.7"), 2) == 0, "the first were forgotten"
    assert lives.flaps(MemberRef("x", None, f"client-{FLAPPERS_MAX * 2 - 1}", "/10.0.0.7"), 2) == 4
    seat = MemberRef("m", "seat")
    for _ in range(LIVES_MAX * 2):
        lives.begin(seat, 1)
    assert lives.flaps(seat, 2) == LIVES_MAX


def test_each_group_and_all_of_them_together_are_bounded() -> None:
    history = GroupHistory()
    for number in range(REBALANCES_PER_GROUP_MAX + 5):
        history.note(group_of("a"), Happening.ASSIGNED, None, number)
        history.settle(group_of("a", "b"), number)
    past = history.of("orders")
    assert len(past) == REBALANCES_PER_GROUP_MAX
    assert past[0].began_ms == 5
    reason = "r" * REASON_CHARACTERS_MAX * 2
    wide = MemberRef("m" * 30_000, None, "c" * 30_000, "")
    for number in range(400):
        group = ClassicGroup(f"group-{number}")
        history.note(group, Happening.JOINED, wide, number, reason=reason)
        history.settle(group, number)
        assert history.size_bytes <= HISTORY_BYTES_MAX
    assert history.of("orders") == [], "the oldest went first"
    assert history.of("group-0") == []
    newest = history.of("group-399")[0]
    assert newest.notes[0].reason == "r" * REASON_CHARACTERS_MAX
    kept = [number for number in range(400) if history.of(f"group-{number}")]
    assert kept == list(range(kept[0], 400))


def test_one_rebalance_is_bounded() -> None:
    history = GroupHistory()
    many = [f"m{number}" for number in range(CHANGES_MAX + 7)]
    for number in range(NOTES_MAX + 3):
        history.note(group_of(), Happening.JOINED, MemberRef(many[number]), number)
    ended = history.settle(group_of(*many), 1_000)
    assert ended is not None
    assert (len(ended.notes), ended.notes_left_out) == (NOTES_MAX, 3)
    assert (len(ended.changes), ended.changes_left_out) == (CHANGES_MAX, 7)
    told = rebalance_line(ended)
    assert "and 193 more" in told.sentence
    assert told.facts["changed"] == CHANGES_MAX + 7


def test_one_that_is_fenced_for_ever_pushes_nothing_out() -> None:
    history = GroupHistory()
    history.note(group_of(), Happening.JOINED, MemberRef("a"), 1)
    history.settle(group_of("a"), 2)
    for number in range(NOTES_MAX * 3):
        history.note(group_of("a"), Happening.FENCED, MemberRef(f"z{number}", "seat"), 10 + number, opens=False)
    joined, fenced = history.of("orders")
    assert joined.notes[0].who == MemberRef("a")
    assert (len(fenced.notes), fenced.notes_left_out) == (NOTES_MAX, NOTES_MAX * 2)
    assert fenced.notes[-1].at_ms == fenced.ended_ms == 9 + NOTES_MAX * 3
    assert history.size_bytes == joined.size_bytes + fenced.size_bytes


def test_a_huge_assignment_is_not_kept() -> None:
    history = GroupHistory()
    group = group_of("a")
    history.note(group, Happening.ASSIGNED, None, 1)
    group.members["a"].assignment = bytes(HELD_BYTES_MAX + 1)
    ended = history.settle(group, 2)
    assert ended is not None
    assert ended.changes[0].after is None
    assert moves(ended) == {"client-a": None}


# ---- what the log is told


def test_the_log_is_told_of_rebalances_and_of_who_died() -> None:
    story = two_members_share()
    told: list[Tell] = []
    step = story.shard.step
    story.shard.step = lambda event, now_ms: [  # type: ignore[method-assign]
        effect
        for effect in step(event, now_ms)
        if not isinstance(effect, Tell) or not told.append(effect)  # type: ignore[func-returns-value]
    ]
    for _ in range(4):
        story.pass_ms(SESSION_MS // 3)
        story.heartbeat("A")
    story.join("A", protocols=topics("t"))
    story.sync("A", {"A": owns(0, 1)})
    died, rebalanced = told
    assert died.sentence == f"group orders: B timed out (no heartbeat for its session, {SESSION_MS} ms)"
    assert died.facts["event"] == "timed out"
    assert died.facts["client"] == "B"
    assert rebalanced.sentence.startswith("group orders: rebalanced to generation 3 with 1 member in ")
    assert rebalanced.sentence.endswith(f"ms: B timed out (no heartbeat for its session, {SESSION_MS} ms)")
    assert rebalanced.facts["members"] == 1
