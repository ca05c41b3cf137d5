"""Segments in the store: their states, which one holds an offset, and which belong to the log of the present leader."""

from __future__ import annotations

import itertools
import random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.log.leader_epochs import LeaderEpochs
from strandline.tiers.lineage import epochs_between, is_in_lineage
from strandline.tiers.records import RemoteSegment, SegmentAdded, SegmentChanged, TieredPartition
from strandline.tiers.remote_segments import RemoteSegments, ranges_of
from strandline.tiers.segment_states import SegmentState, may_follow

PLACE = TieredPartition(UUID(int=7), 3, "orders")


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start_offset in entries:
        epochs.note(epoch, start_offset)
    return epochs


def segment(number: int, start: int, end: int, *epochs: tuple[int, int], size: int = 100, ms: int = 0) -> RemoteSegment:
    return RemoteSegment(
        UUID(int=number), start, end, epochs or ((0, start),), ms, size, 1, 0, SegmentState.COPY_STARTED
    )


def added(known: RemoteSegments, *segments: RemoteSegment) -> RemoteSegments:
    for each in segments:
        assert known.apply(SegmentAdded(PLACE, each))
        assert known.apply(SegmentChanged(PLACE, each.id, SegmentState.COPY_FINISHED, 1, 0))
    return known


@pytest.mark.parametrize(("before", "after"), list(itertools.product([None, *SegmentState], SegmentState)))
def test_the_allowed_transitions_are_kafkas(before: SegmentState | None, after: SegmentState) -> None:
    allowed = {(None, 0), (0, 1), (0, 2), (1, 2), (2, 3), *((state, state) for state in range(4))}
    assert may_follow(before, after) == ((before, after) in allowed)


def test_only_a_finished_copy_is_read() -> None:
    known, copy = RemoteSegments(), segment(1, 0, 9)
    known.apply(SegmentAdded(PLACE, copy))
    assert known.find(0, 5) is None
    known.apply(SegmentChanged(PLACE, copy.id, SegmentState.COPY_FINISHED, 1, 0))
    found = known.find(0, 5)
    assert found is not None
    assert found.id == copy.id
    known.apply(SegmentChanged(PLACE, copy.id, SegmentState.DELETE_STARTED, 1, 0))
    assert known.find(0, 5) is None
    assert [each.id for each in known.in_state(SegmentState.DELETE_STARTED)] == [copy.id]
    known.apply(SegmentChanged(PLACE, copy.id, SegmentState.DELETE_FINISHED, 1, 0))
    assert not len(known)


def test_a_late_record_does_not_bring_a_deleted_segment_back() -> None:
    known, copy = RemoteSegments(), segment(1, 0, 9)
    known.apply(SegmentAdded(PLACE, copy))
    known.apply(SegmentChanged(PLACE, copy.id, SegmentState.DELETE_STARTED, 1, 0))
    assert not known.apply(SegmentChanged(PLACE, copy.id, SegmentState.COPY_FINISHED, 1, 0))
    known.apply(SegmentChanged(PLACE, copy.id, SegmentState.DELETE_FINISHED, 1, 0))
    assert not known.apply(SegmentAdded(PLACE, copy))
    assert not known.apply(SegmentChanged(PLACE, copy.id, SegmentState.COPY_FINISHED, 1, 0))
    assert known.find(0, 5) is None
    assert known.rejected == 3


def test_an_offset_is_found_by_its_epoch_and_never_by_itself() -> None:
    # The leader of epoch 1 copied 0 to 99. An election took 50 to 99 back, and the leader of epoch 2 copied others.
    known = added(
        RemoteSegments(),
        segment(1, 0, 99, (1, 0)),
        segment(2, 40, 120, (1, 40), (2, 50)),
    )
    assert known.find(1, 10) == known.by_id[UUID(int=1)]
    assert known.find(2, 60) == known.by_id[UUID(int=2)]
    # Epoch 1 goes up to 49 in the second segment, and up to 99 in the first.
    assert known.find(1, 60) == known.by_id[UUID(int=1)]
    assert known.find(3, 60) is None
    assert known.highest(epochs_of((1, 0), (2, 50)), 200) == (120, 2)
    assert known.highest(epochs_of((1, 0), (3, 50)), 200) == (49, 1)


@pytest.mark.parametrize(
    ("epochs", "end", "log_end", "leader", "belongs"),
    [
        (((1, 0),), 9, 20, ((1, 0),), True),
        (((1, 0),), 9, 9, ((1, 0),), False),  # The leader's log ends before it.
        (((1, 0),), 9, 20, ((2, 0),), False),  # Of an epoch that the leader forgot, or never had.
        (((1, 0), (2, 5)), 9, 20, ((1, 0), (2, 5)), True),
        (((1, 0), (2, 5)), 9, 20, ((1, 0), (2, 6)), False),
        (((1, 0), (2, 5)), 9, 20, ((1, 0), (2, 5), (3, 8)), False),  # Its end was taken back.
        (((1, 0), (2, 5)), 9, 20, ((1, 0), (2, 5), (3, 10)), True),
        (((1, 0), (3, 5)), 9, 20, ((1, 0), (2, 3), (3, 5)), False),  # Epoch 2 is missing in the segment.
        (((1, 0), (2, 5), (3, 5)), 9, 20, ((1, 0), (3, 5)), True),  # Epoch 2 has no records.
        (((1, 0), (2, 5)), 9, 20, ((2, 5),), True),  # The leader's log starts in the segment.
        (((2, 3),), 9, 20, ((1, 0), (2, 5)), False),
        (((2, 3),), 9, 20, ((2, 5),), True),
    ],
)
def test_lineage(
    epochs: tuple[tuple[int, int], ...], end: int, log_end: int, leader: tuple[tuple[int, int], ...], belongs: bool
) -> None:
    assert is_in_lineage(segment(1, epochs[0][1], end, *epochs), log_end, epochs_of(*leader)) == belongs


histories = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_lineage_is_what_comparing_each_record_says(data: st.DataObject) -> None:
    """Logs as lists of epochs: a segment belongs if each of its records has the leader's epoch at its offset."""
    shared = sorted(data.draw(histories))
    former = shared + sorted(each + 4 for each in data.draw(histories))
    cut = data.draw(st.integers(1, len(former)))
    leader = former[:cut] + [data.draw(st.integers(max(former) + 1, max(former) + 2))] * data.draw(st.integers(1, 10))
    begin = data.draw(st.integers(0, len(former) - 1))
    end = data.draw(st.integers(begin, len(former) - 1))
    copied = segment(1, begin, end, *epochs_between(compressed(former), begin, end + 1))
    expected = end < len(leader) - 1 and leader[begin : end + 1] == former[begin : end + 1]
    found = is_in_lineage(copied, len(leader), compressed(leader))
    if end < len(leader) - 1:
        assert found == expected, (former, leader, begin, end)


def compressed(log: list[int]) -> LeaderEpochs:
    return epochs_of(*((epoch, offset) for offset, epoch in enumerate(log) if offset == 0 or log[offset - 1] != epoch))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_a_found_segment_has_the_record_of_that_epoch(seed: int) -> None:
    rng = random.Random(seed)
    known, owners = RemoteSegments(), []
    for number in range(1, 8):
        start = rng.randrange(50)
        log = sorted(rng.randrange(4) for _ in range(start + rng.randrange(1, 30)))
        copied = segment(number, start, len(log) - 1, *epochs_between(compressed(log), start, len(log)))
        added(known, copied)
        owners.append((copied, log))
        if rng.random() < 0.3:
            known.apply(SegmentChanged(PLACE, copied.id, SegmentState.DELETE_STARTED, 1, 0))
            owners.pop()
    for offset, epoch in itertools.product(range(80), range(4)):
        holders = {each.id for each, log in owners if each.start_offset <= offset < len(log) and log[offset] == epoch}
        found = known.find(epoch, offset)
        assert (found is None) == (not holders), (seed, offset, epoch)
        assert found is None or found.id in holders, (seed, offset, epoch)


def test_ranges_leave_out_epochs_without_records() -> None:
    assert ranges_of(segment(1, 0, 9, (1, 0), (2, 4), (3, 4))) == [(1, 0, 3), (3, 4, 9)]


@pytest.mark.parametrize(
    ("epochs", "start", "end", "found"),
    [
        (((0, 0),), 0, 10, ((0, 0),)),
        (((0, 0), (1, 5)), 0, 5, ((0, 0),)),
        (((0, 0), (1, 5)), 3, 6, ((0, 3), (1, 5))),
        (((0, 0), (1, 5)), 5, 6, ((1, 5),)),
        (((0, 0), (1, 5), (2, 5)), 4, 9, ((0, 4), (2, 5))),
    ],
)
def test_epochs_of_a_range(
    epochs: tuple[tuple[int, int], ...], start: int, end: int, found: tuple[tuple[int, int], ...]
) -> None:
    assert epochs_between(epochs_of(*epochs), start, end) == found
