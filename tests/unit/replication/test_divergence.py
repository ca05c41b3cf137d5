"""Two logs that parted are brought together by epochs alone: what they share stays, what the leader lacks goes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.log.leader_epochs import LeaderEpochs
from strandline.replication.divergence import truncation_offset

Log = list[int]
"""The epoch of each record. Two records at the same offset are the same if their epochs are: a leader writes each
offset of its epoch once."""


def epochs_of(log: Log) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for offset, epoch in enumerate(log):
        epochs.note(epoch, offset)
    return epochs


@st.composite
def parted_logs(draw: st.DrawFn) -> tuple[Log, Log]:
    """Logs of two replicas of which each led for a while, with what they share at the beginning."""
    shared: Log = sorted(draw(st.lists(st.integers(0, 4), max_size=8)))
    after = shared[-1] if shared else -1
    left: Log = list(shared)
    right: Log = list(shared)
    for epoch in range(after + 1, after + 1 + draw(st.integers(0, 6))):
        owner = left if draw(st.booleans()) else right
        owner += [epoch] * draw(st.integers(0, 4))
    # Within the last shared epoch one may have got further than the other.
    if shared and draw(st.booleans()) and len(left) == len(shared):
        left += [after] * draw(st.integers(0, 3))
    return left, right


def common_prefix(left: Log, right: Log) -> int:
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


@settings(max_examples=300, deadline=None)
@given(parted_logs())
def test_a_follower_ends_as_a_part_of_its_leader_and_loses_nothing_they_share(logs: tuple[Log, Log]) -> None:
    leader, follower = logs
    shared = common_prefix(leader, follower)
    leader_epochs = epochs_of(leader)
    for _ in range(20):
        epochs = epochs_of(follower)
        last_epoch, offset = epochs.latest, len(follower)
        if last_epoch < 0:
            break
        epoch, end = leader_epochs.end_offset(last_epoch, len(leader))
        if epoch < 0:
            # The leader has only older epochs: its last one, up to its end.
            epoch, end = leader_epochs.latest, len(leader)
        if epoch >= last_epoch and end >= offset:
            break
        cut = truncation_offset(epochs, len(follower), epoch, end)
        assert cut < len(follower), "each answer takes something away, or the two would ask for ever"
        assert cut >= shared, "what both hold is never cut"
        del follower[cut:]
    assert follower == leader[: len(follower)]
    assert len(follower) >= shared


def test_a_whole_epoch_that_the_leader_never_saw_is_cut() -> None:
    follower = epochs_of([0, 0, 1, 1, 1])
    assert truncation_offset(follower, 5, 0, 4) == 2, "our own end of epoch 0, not the leader's"


def test_within_one_epoch_the_shorter_wins() -> None:
    follower = epochs_of([0, 0, 0, 0])
    assert truncation_offset(follower, 4, 0, 3) == 3


def test_nothing_in_common() -> None:
    assert truncation_offset(epochs_of([3, 3]), 2, 1, 9) == 0
    assert truncation_offset(LeaderEpochs(), 7, -1, 5) == 5
