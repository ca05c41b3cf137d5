"""Progress on one partition against a naive model: what is committed, what a restart works on again."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strandline.queue.finished_offsets import METADATA_BYTES_MAX, SPAN_MAX, UNFINISHED_MAX, decode_finished
from strandline.queue.partition_progress import NO_OFFSET, PartitionProgress


class ProgressModel(RuleBasedStateMachine):
    """A log with gaps, consumers that read on, finish in any order, commit, and are killed."""

    @initialize(start=st.integers(0, 50))
    def begin(self, start: int) -> None:
        self.progress = PartitionProgress(start)
        self.next = start
        self.log: list[int] = []
        """Every offset of the log that was read so far."""
        self.finished: set[int] = set()
        self.worked: list[int] = []
        """Taken by the present consumer, and not finished."""
        self.committed = start, ""
        self.finished_then: set[int] = set()
        """What was finished at the last commit."""

    @rule(gap=st.sampled_from((0, 0, 0, 1, 7)))
    def read_one(self, gap: int) -> None:
        again = [offset for offset in self.log if offset >= self.next]
        offset = again[0] if again else self.next + gap
        assert self.progress.has_room(offset)
        is_worked = self.progress.take(offset)
        assert is_worked == (offset not in self.finished_then), offset
        if is_worked:
            self.worked.append(offset)
        else:
            assert offset in self.finished, "a record was skipped that no consumer has finished"
        if not again:
            self.log.append(offset)
        self.next = offset + 1

    @precondition(lambda self: self.worked)
    @rule(data=st.data())
    def finish_one(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.worked))
        self.worked.remove(offset)
        self.finished.add(offset)
        self.progress.finish(offset)

    @rule()
    def commit(self) -> None:
        self.committed = self.progress.committable, self.progress.metadata()
        self.finished_then |= {offset for offset in self.log if offset < self.next and offset not in self.worked}

    @rule()
    def kill(self) -> None:
        """The next consumer knows what was committed, and reads from there."""
        self.progress = PartitionProgress(*self.committed)
        self.next = self.committed[0]
        self.worked = []
        self.finished &= self.finished_then

    @invariant()
    def nothing_is_skipped(self) -> None:
        unfinished = [offset for offset in self.log if offset < self.next and offset not in self.finished]
        assert sorted(self.worked) == unfinished
        assert self.progress.committable <= min(unfinished, default=self.progress.committable)
        if unfinished:
            assert self.progress.committable == unfinished[0]
        assert len(self.progress.metadata()) <= METADATA_BYTES_MAX


ProgressModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_progress = ProgressModel.TestCase


def test_a_partition_without_a_position_has_none_until_something_was_taken() -> None:
    progress = PartitionProgress(NO_OFFSET)
    assert progress.committable == NO_OFFSET
    assert progress.take(1000)
    assert progress.committable == 1000
    progress.finish(1000)
    assert progress.committable == 1001


def test_a_log_that_was_truncated_is_worked_again() -> None:
    progress = PartitionProgress(0)
    for offset in range(10):
        assert progress.take(offset)
        progress.finish(offset)
    assert progress.take(4), "another record has the offset now"
    assert progress.committable == 4
    progress.finish(4)
    assert progress.committable == 5


@pytest.mark.parametrize("seed", range(3))
def test_the_metadata_always_has_all_that_is_finished(seed: int) -> None:
    """A stuck record, and others far behind it: as long as there is room, a restart repeats nothing."""
    chance = random.Random(seed)
    progress, unfinished, offset = PartitionProgress(0), {0}, 0
    assert progress.take(0)
    finished: set[int] = set()
    for _ in range(4000):
        offset += chance.randrange(1, 5000)
        if not progress.has_room(offset):
            assert len(unfinished) >= UNFINISHED_MAX
            assert offset >= SPAN_MAX
            done = chance.choice(sorted(unfinished - {0}))
        else:
            assert progress.take(offset)
            unfinished.add(offset)
            done = chance.choice(sorted(unfinished)) if chance.random() < 0.6 else 0
        if done:
            unfinished.remove(done)
            finished.add(done)
            progress.finish(done)
    assert progress.committable == 0
    assert offset > SPAN_MAX
    metadata = progress.metadata()
    assert len(metadata) <= METADATA_BYTES_MAX
    ranges = decode_finished(0, metadata)
    assert all(any(first <= each <= last for first, last in ranges) for each in finished)
    assert not any(first <= each <= last for first, last in ranges for each in unfinished)


def test_a_consumer_that_is_killed_again_and_again_repeats_nothing() -> None:
    """Each consumer commits after one record, long before it has read all that the first one had finished."""
    progress = PartitionProgress(0)
    for offset in range(20):
        assert progress.take(offset)
    done = {3, 4, 9, 15, 19}
    for offset in done:
        progress.finish(offset)
    for _ in range(10):
        progress = PartitionProgress(progress.committable, progress.metadata())
        offset = progress.committable
        while not progress.take(offset):
            assert offset in done
            offset += 1
        assert offset not in done, "it was done before"
        progress.finish(offset)
        done.add(offset)
    assert len(done) == 15
