"""The leader's view of its followers: who counts for the high watermark, who is taken in, who is left out."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.errors import ErrorCode
from strandline.replication.in_sync import InSyncReplicas, Proposal

LAG_S = 10.0
BROKER_EPOCHS = {2: 20, 3: 30}


class Leader:
    """Node 1 leads; 2 and 3 follow."""

    def __init__(self, isr: tuple[int, ...] = (1, 2, 3), **fields: Any) -> None:
        self.fenced: set[int] = set()
        self.registered = dict(BROKER_EPOCHS)
        self.in_sync = InSyncReplicas(
            1,
            replicas=(1, 2, 3),
            isr=isr,
            leader_epoch=5,
            partition_epoch=7,
            epoch_start_offset=fields.pop("epoch_start_offset", 100),
            lag_max_s=LAG_S,
            is_eligible=lambda each, epoch: self.registered[each] == epoch and each not in self.fenced,
            now=0.0,
        )

    def fetch(self, follower: int, offset: int, *, end_offset: int, now: float = 0.0, broker_epoch: int = 0) -> None:
        self.in_sync.now = now
        self.in_sync.on_fetch(
            self.in_sync.followers[follower],
            offset,
            log_start_offset=0,
            broker_epoch=broker_epoch or BROKER_EPOCHS[follower],
            end_offset=end_offset,
        )


def test_the_high_watermark_is_what_everybody_in_sync_holds() -> None:
    leader = Leader()
    assert leader.in_sync.high_watermark(150) < 0, "nobody has been heard of in this epoch"
    leader.fetch(2, 140, end_offset=150)
    assert leader.in_sync.high_watermark(150) < 0
    leader.fetch(3, 120, end_offset=150)
    assert leader.in_sync.high_watermark(150) == 120
    assert leader.in_sync.high_watermark(110) == 110, "the leader's own end counts, too: what is flushed, perhaps"


def test_who_is_not_in_sync_does_not_hold_the_watermark_back() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 150, end_offset=150)
    leader.fetch(3, 3, end_offset=150, now=LAG_S + 1)
    assert leader.in_sync.high_watermark(150) == 150


def test_who_is_about_to_join_is_waited_for_while_it_keeps_up_and_is_there() -> None:
    """Else a busy leader with nobody in sync would run away from a follower that is a batch behind, for ever."""
    leader = Leader(isr=(1,))
    leader.fetch(2, 150, end_offset=150)
    assert leader.in_sync.high_watermark(160) == 150
    leader.fenced.add(2)
    assert leader.in_sync.high_watermark(160) == 160, "a broker that died right then must not stop the others"
    leader.fenced.clear()
    leader.in_sync.now = LAG_S + 1
    assert leader.in_sync.high_watermark(160) == 160


# Coming in


def test_who_has_caught_up_is_proposed_with_the_epoch_of_its_process() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(3, 99, end_offset=150)
    assert leader.in_sync.maybe_expand(90) is None, "below the beginning of the leader's epoch it may still be cut"
    leader.fetch(3, 120, end_offset=150)
    assert leader.in_sync.maybe_expand(130) is None, "it lacks what is committed"
    proposal = leader.in_sync.maybe_expand(120)
    assert proposal == Proposal(5, 7, (1, 2, 3), (-1, -1, 30))
    assert leader.in_sync.maybe_expand(120) is None, "one at a time"


@pytest.mark.parametrize("why_not", ["fenced", "restarted"])
def test_who_is_fenced_or_another_process_by_now_is_not_proposed(why_not: str) -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(3, 150, end_offset=150)
    if why_not == "fenced":
        leader.fenced.add(3)
    else:
        leader.registered[3] = 31
    assert leader.in_sync.maybe_expand(100) is None


def test_who_is_proposed_counts_before_the_answer() -> None:
    """The controller may have decided and elected it already: what it lacks must not be committed."""
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 150, end_offset=150)
    leader.fetch(3, 120, end_offset=150)
    proposal = leader.in_sync.maybe_expand(120)
    assert proposal is not None
    leader.in_sync.now = LAG_S * 5
    assert leader.in_sync.high_watermark(150) == 120
    assert leader.in_sync.isr == (1, 2), "but it is not in sync before somebody says so"


# Being left out


def test_who_stays_behind_is_left_out_and_counts_until_the_answer() -> None:
    leader = Leader()
    leader.fetch(2, 150, end_offset=150)
    leader.fetch(3, 120, end_offset=150)
    assert leader.in_sync.maybe_shrink(150, 1.0) is None
    assert leader.in_sync.maybe_shrink(150, LAG_S) is None
    proposal = leader.in_sync.maybe_shrink(150, LAG_S + 2)
    assert proposal == Proposal(5, 7, (1, 2), (-1, 20))
    assert leader.in_sync.high_watermark(150) == 120, "until then it may be elected"
    assert not leader.in_sync.on_proposal_answered(
        proposal, ErrorCode.NONE, leader_epoch=5, partition_epoch=8, isr=(1, 2)
    )
    leader.in_sync.now = LAG_S * 5
    assert leader.in_sync.high_watermark(150) == 150


def test_who_was_left_out_comes_in_again_when_it_fetches() -> None:
    """Below the minimum nothing is committed, so that a follower that is gone holds all below the high watermark."""
    leader = Leader()
    leader.fetch(2, 150, end_offset=150)
    leader.fetch(3, 150, end_offset=150)
    leader.fetch(2, 160, end_offset=160)
    assert leader.in_sync.maybe_shrink(160, 1.0) is None
    assert leader.in_sync.maybe_shrink(160, LAG_S + 2) is not None
    leader.in_sync.on_metadata(replicas=(1, 2, 3), isr=(1, 2), partition_epoch=8, now=LAG_S + 2)
    assert leader.in_sync.maybe_expand(150) is None, "it was not heard of since"
    leader.fetch(3, 150, end_offset=160, now=LAG_S + 3)
    proposal = leader.in_sync.maybe_expand(150)
    assert proposal is not None
    assert sorted(proposal.isr) == [1, 2, 3]


def test_where_nothing_was_written_for_an_hour_nobody_has_fallen_behind() -> None:
    leader = Leader()
    for follower in (2, 3):
        leader.fetch(follower, 150, end_offset=150)
    assert leader.in_sync.maybe_shrink(150, 3600.0) is None
    assert leader.in_sync.maybe_shrink(151, 3601.0) is None, "they had no time to fetch it"
    leader.fetch(2, 151, end_offset=151, now=3602.0)
    assert leader.in_sync.maybe_shrink(151, 3601.0 + LAG_S) is None
    proposal = leader.in_sync.maybe_shrink(151, 3602.0 + LAG_S)
    assert proposal is not None
    assert proposal.isr == (1, 2)


def test_who_is_always_one_batch_behind_keeps_up() -> None:
    """Under load a fetch never asks for the very end; it asks for what was the end at the fetch before."""
    leader = Leader()
    end, now = 100, 0.0
    for _ in range(100):
        now += 1.0
        for follower in (2, 3):
            leader.fetch(follower, end, end_offset=end + 10, now=now)
        end += 10
        assert leader.in_sync.maybe_shrink(end, now) is None


def test_a_new_leader_gives_everybody_time_to_be_heard_of() -> None:
    leader = Leader()
    assert leader.in_sync.maybe_shrink(100, 1.0) is None
    assert leader.in_sync.maybe_shrink(100, LAG_S) is None
    proposal = leader.in_sync.maybe_shrink(100, LAG_S + 2)
    assert proposal is not None
    assert proposal.isr == (1,)


# Answers


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refusal_leaves_all_as_it_was(code: ErrorCode) -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(3, 150, end_offset=150)
    proposal = leader.in_sync.maybe_expand(100)
    assert proposal is not None
    assert not leader.in_sync.on_proposal_answered(proposal, code)
    assert leader.in_sync.proposed is None
    assert leader.in_sync.maybe_expand(100) is not None, "it may be tried again"


@pytest.mark.parametrize("code", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
def test_who_is_refused_for_not_knowing_enough_waits_for_the_metadata(code: ErrorCode) -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 150, end_offset=150)
    leader.fetch(3, 120, end_offset=150)
    proposal = leader.in_sync.maybe_expand(120)
    assert proposal is not None
    assert not leader.in_sync.on_proposal_answered(proposal, code)
    assert leader.in_sync.maybe_expand(120) is None
    leader.in_sync.now = LAG_S * 5
    assert leader.in_sync.high_watermark(150) == 120, "it may be just what was decided"
    assert leader.in_sync.on_metadata(replicas=(1, 2, 3), isr=(1, 2), partition_epoch=8, now=0.0)
    leader.in_sync.now = LAG_S * 5
    assert leader.in_sync.high_watermark(150) == 150


def test_without_an_answer_the_same_is_proposed_again() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(3, 150, end_offset=150)
    proposal = leader.in_sync.maybe_expand(100)
    assert proposal is not None
    assert leader.in_sync.on_proposal_answered(proposal, ErrorCode.REQUEST_TIMED_OUT)
    assert leader.in_sync.proposed is proposal


def test_what_the_metadata_tells_first_makes_the_answer_old() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(3, 150, end_offset=150)
    proposal = leader.in_sync.maybe_expand(100)
    assert proposal is not None
    assert leader.in_sync.on_metadata(replicas=(1, 2, 3), isr=(1,), partition_epoch=9, now=0.0)
    assert not leader.in_sync.on_proposal_answered(
        proposal, ErrorCode.NONE, leader_epoch=5, partition_epoch=8, isr=(1, 2, 3)
    )
    assert (leader.in_sync.isr, leader.in_sync.partition_epoch) == ((1,), 9)


def test_metadata_that_repeats_an_answer_does_not_take_back_a_later_proposal() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(3, 150, end_offset=150)
    proposal = leader.in_sync.maybe_expand(100)
    assert proposal is not None
    leader.in_sync.on_proposal_answered(proposal, ErrorCode.NONE, leader_epoch=5, partition_epoch=8, isr=(1, 2, 3))
    leader.in_sync.maybe_shrink(200, 1.0)
    later = leader.in_sync.maybe_shrink(200, LAG_S + 2)
    assert later is not None
    assert not leader.in_sync.on_metadata(replicas=(1, 2, 3), isr=(1, 2, 3), partition_epoch=8, now=0.0)
    assert leader.in_sync.proposed is later
    assert not leader.in_sync.on_metadata(replicas=(1, 2), isr=(1, 2), partition_epoch=6, now=0.0), "older still"
    assert leader.in_sync.replicas == (1, 2, 3)


def test_replicas_come_and_go() -> None:
    leader = Leader()
    leader.fetch(2, 150, end_offset=150)
    leader.in_sync.on_metadata(replicas=(1, 2, 4), isr=(1, 2), partition_epoch=8, now=0.0)
    assert sorted(leader.in_sync.followers) == [2, 4]
    assert leader.in_sync.followers[2].end_offset == 150, "what is known of who stays is kept"
    assert leader.in_sync.high_watermark(150) == 150


def test_the_low_watermark_waits_for_who_is_there() -> None:
    leader = Leader(isr=(1, 2))
    assert leader.in_sync.low_watermark(80) == -1, "one in sync has not told"
    leader.fetch(2, 150, end_offset=150)
    assert leader.in_sync.low_watermark(80) == 0
    leader.in_sync.followers[2].log_start_offset = 80
    assert leader.in_sync.low_watermark(80) == 80, "who was never heard of is not there"
    leader.fetch(3, 20, end_offset=150)
    assert leader.in_sync.low_watermark(80) == 0
    leader.fenced.add(3)
    assert leader.in_sync.low_watermark(80) == 80


def has_missed(leader: Leader, offset: int, *, horizon: int, start: int = 0, clean: int = 0, epoch: int = 20) -> bool:
    follower = leader.in_sync.followers[2]
    is_missed = leader.in_sync.has_missed_tombstones(
        follower, offset, log_start_offset=start, broker_epoch=epoch, horizon=horizon, cleaned_up_to=clean
    )
    if not is_missed:
        leader.fetch(2, offset, end_offset=1000, broker_epoch=epoch)
    return is_missed


def test_a_follower_that_ends_below_removed_tombstones_has_missed_them() -> None:
    leader = Leader(isr=(1, 3))
    assert has_missed(leader, 40, horizon=50)
    assert not has_missed(leader, 50, horizon=50), "it has the last one, at 49"
    assert has_missed(leader, 60, horizon=70), "removed since it last asked"


def test_a_follower_that_begins_again_may_take_its_time() -> None:
    leader = Leader(isr=(1, 3))
    assert not has_missed(leader, 0, horizon=50, clean=90)
    assert not has_missed(leader, 10, horizon=50, clean=90)
    assert not has_missed(leader, 20, horizon=90, clean=200), "what that deletes had gone when it began"
    assert has_missed(leader, 20, horizon=91, clean=200), "it may hold what that deletes"
    assert not has_missed(leader, 91, horizon=91, clean=200)
    assert not has_missed(leader, 7, horizon=91, clean=200, start=7), "it is empty again"
    assert not has_missed(leader, 30, horizon=91, clean=200)


def test_another_process_may_bring_another_log() -> None:
    leader = Leader(isr=(1, 3))
    assert not has_missed(leader, 0, horizon=50)
    assert not has_missed(leader, 10, horizon=50)
    assert has_missed(leader, 10, horizon=50, epoch=21)


def test_a_replica_that_may_be_elected_is_known() -> None:
    leader = Leader(isr=(1, 3))
    assert [leader.in_sync.may_lead(each) for each in (1, 2, 3)] == [True, False, True]
    leader.in_sync.eligible = (2,)
    assert leader.in_sync.may_lead(2)
    leader.in_sync.eligible = ()
    leader.fetch(2, 150, end_offset=150)
    assert leader.in_sync.maybe_expand(150) is not None
    assert leader.in_sync.may_lead(2), "it is proposed"
