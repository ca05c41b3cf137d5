"""Unused offsets and groups expire, and nothing else does."""

from __future__ import annotations

import pytest
from tests.unit.coordinators.story import Story
from tests.unit.coordinators.test_group_admin import reading, stable

from strandline.codec.messages.offset_commit_value import OffsetCommitValue
from strandline.coordinators.groups.classic.classic_group import ClassicGroup, GroupState
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from strandline.coordinators.groups.consumer.records import consumer_group_tombstones
from strandline.coordinators.groups.events import Append, StartTimer, TimerFired
from strandline.coordinators.groups.group_records import offset_tombstone
from strandline.coordinators.offsets import expiry
from strandline.coordinators.offsets.expiry import EXPIRY_KEY, retained_since
from strandline.errors import ErrorCode

RETENTION_MS = 3_600_000
CHECK_MS = 60_000


@pytest.fixture
def story() -> Story:
    return Story(offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=CHECK_MS)


def stay_ms(story: Story, duration_ms: int) -> None:
    """Time passes while member A goes on."""
    for _ in range(duration_ms // 5_000):
        story.pass_ms(5_000)
        assert story.heartbeat("A") is ErrorCode.NONE


def commit_alone(story: Story, **more: int | str) -> None:
    story.commit("job", 4, generation_id=-1, member_id="", **more)  # type: ignore[arg-type]


def test_positions_of_a_consumer_without_a_group_go_by_their_commit(story: Story) -> None:
    commit_alone(story)
    story.pass_ms(RETENTION_MS - CHECK_MS)
    commit_alone(story, partition=1)
    story.told()
    story.pass_ms(2 * CHECK_MS)
    assert (story.committed(), story.committed(partition=1)) == (-1, 4)
    assert story.told() == ["log: orders t-0 = tombstone"]
    story.pass_ms(RETENTION_MS)
    assert not story.shard.groups
    assert story.told() == ["log: orders t-1 = tombstone", "log: orders tombstone"]
    story.restart()
    assert not story.shard.groups


def test_the_retention_begins_when_the_last_member_has_gone(story: Story) -> None:
    stable(story, "t")
    story.commit("A", 7)
    stay_ms(story, 2 * RETENTION_MS)
    story.leave("A")
    story.pass_ms(RETENTION_MS - CHECK_MS)
    assert story.committed() == 7
    story.pass_ms(2 * CHECK_MS)
    assert story.committed() == -1
    assert not story.shard.groups


def test_the_retention_goes_on_where_another_coordinator_takes_over(story: Story) -> None:
    stable(story, "t")
    story.commit("A", 7)
    story.leave("A")
    story.pass_ms(RETENTION_MS // 2)
    story.restart()
    story.pass_ms(RETENTION_MS // 2 - CHECK_MS)
    assert story.committed() == 7
    story.pass_ms(2 * CHECK_MS)
    assert story.committed() == -1


def test_what_a_stable_group_no_longer_reads_is_forgotten(story: Story) -> None:
    stable(story, "t")
    story.commit("A", 7)
    story.commit("A", 8, topic="u")
    stay_ms(story, RETENTION_MS + CHECK_MS)
    assert (story.committed(), story.committed(topic="u")) == (7, -1)


def test_a_group_that_rebalances_forgets_nothing(story: Story) -> None:
    story.enter("A", protocols=reading("t"), rebalance_ms=2 * RETENTION_MS, session_ms=1_800_000)
    story.pass_ms(3_000)
    story.sync("A", {"A": b"all"})
    story.commit("A", 8, topic="u")
    story.pass_ms(1_700_000)
    story.heartbeat("A")
    story.enter("B", protocols=reading("t"), rebalance_ms=2 * RETENTION_MS, session_ms=1_800_000)
    story.pass_ms(1_700_000)
    story.heartbeat("A")
    story.pass_ms(600_000)
    assert story.shard.groups["orders"].state == "PreparingRebalance"
    assert story.committed(topic="u") == 8


def test_nothing_expires_where_subscriptions_are_unknown(story: Story) -> None:
    story.enter("A", protocols=(("range", b"no subscription"),))
    story.pass_ms(3_000)
    story.sync("A", {"A": b"all"})
    story.commit("A", 8, topic="u")
    stay_ms(story, RETENTION_MS + CHECK_MS)
    assert story.committed(topic="u") == 8


@pytest.mark.parametrize("state", [GroupState.STABLE, GroupState.COMPLETING_REBALANCE])
def test_members_of_another_kind_use_all_that_they_committed(state: GroupState) -> None:
    group = ClassicGroup("connectors", now_ms=7)
    group.protocol_type = "connect"
    assert retained_since(group) == 7
    group.state = state
    assert retained_since(group) is None


def test_an_offset_with_an_expiry_of_its_own_goes_by_that(story: Story) -> None:
    story.commit("job", 4, generation_id=-1, member_id="", retention_ms=CHECK_MS)
    story.commit("job", 5, generation_id=-1, member_id="", retention_ms=3 * RETENTION_MS, partition=1)
    story.pass_ms(3 * CHECK_MS)
    assert (story.committed(), story.committed(partition=1)) == (-1, 5)
    story.pass_ms(2 * RETENTION_MS)
    assert story.committed(partition=1) == 5
    story.pass_ms(RETENTION_MS)
    assert story.committed(partition=1) == -1


def test_a_group_without_offsets_expires_at_the_next_look_but_not_while_a_member_joins(story: Story) -> None:
    stable(story, "t")
    story.leave("A")
    story.join("B", session_ms=CHECK_MS + 30_000)
    story.pass_ms(CHECK_MS)
    assert "orders" in story.shard.groups
    story.join("B", session_ms=CHECK_MS + 30_000)
    assert story.client("B").errors[-1] is ErrorCode.MEMBER_ID_REQUIRED
    story.pass_ms(3_000)
    assert story.client("B").errors[-1] is ErrorCode.NONE
    story.leave("B")
    story.told()
    story.pass_ms(CHECK_MS)
    assert story.told() == ["log: orders tombstone"]
    assert not story.shard.groups


def test_a_round_goes_on_in_steps(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "OFFSETS_PER_STEP_MAX", 3)
    for number in range(10):
        story.group = f"job-{number}"
        commit_alone(story)
    story.pass_ms(RETENTION_MS - CHECK_MS)
    story.group = "late"
    commit_alone(story)
    story.pass_ms(2 * CHECK_MS)
    assert list(story.shard.groups) == ["late"]
    (due_ms,) = (due_ms for key, due_ms in story.timers.items() if key.kind == "expiry")
    assert 0 < due_ms - story.now_ms <= CHECK_MS


def test_a_group_of_the_consumer_protocol_keeps_what_it_reads(story: Story) -> None:
    group = ConsumerGroup("modern")
    group.add(ConsumerMember("me", subscribed_topic_names=frozenset({"t"})))
    shard, look = story.shard, TimerFired(EXPIRY_KEY)
    shard.groups["modern"] = group
    for topic in ("t", "u"):
        shard.offsets.put("modern", topic, 0, OffsetCommitValue(offset=4, commit_timestamp=story.now_ms))
    assert [type(effect) for effect in shard.step(look, story.now_ms + RETENTION_MS - 1)] == [StartTimer]
    appended, _ = shard.step(look, story.now_ms + RETENTION_MS)
    assert appended == Append((offset_tombstone("modern", "u", 0),))
    group.remove("me")
    appended, _ = shard.step(look, story.now_ms + RETENTION_MS)
    assert appended == Append((offset_tombstone("modern", "t", 0), *consumer_group_tombstones(group)))
    assert not shard.groups
