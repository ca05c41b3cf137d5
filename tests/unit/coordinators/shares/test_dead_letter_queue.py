"""DeadLetterQueue in a small world: leaders die or seem to, answers get lost, and each dead letter has one copy."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Generator, Sequence

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from strandline.coordinators.shares.dead_letters.covered_offsets import CoveredOffsets, joined
from strandline.coordinators.shares.dead_letters.dead_letter_queue import (
    PATIENCE,
    Archive,
    Buried,
    Copied,
    Copy,
    DeadLetterQueue,
    Failed,
    GiveUp,
    Mark,
    Open,
    Opened,
    QueueEffect,
    QueueEvent,
    QueueState,
    RetryDue,
    RetryLater,
    Skipped,
    Stored,
    SwitchedOff,
    Uncertain,
)
from strandline.coordinators.shares.delivery.dead_ranges import DeadRange
from strandline.coordinators.shares.delivery.offset_ranges import ARCHIVED, ARCHIVING
from strandline.coordinators.shares.share_state import StateBatch

STEPS = 120
OFFSETS = 12
LETTERS_MAX = 3

Task = Generator[None, bool, None]
"""A request on its way. It yields wherever something else may happen; True is sent if the message there is lost."""


class World:
    """The share coordinator, the transaction coordinator and the dead-letter topic, which never forget."""

    def __init__(self) -> None:
        self.state_epoch = 1
        self.leader_epoch = 0
        self.stored: dict[int, int] = {}
        """The state of dead letters, by offset."""
        self.producer_epoch = 0
        self.open_letters: list[int] | None = None
        self.last_batch_id = -1
        self.note: CoveredOffsets | None = None
        self.copies: Counter[tuple[int, int]] = Counter()
        """Committed copies, by state epoch and offset."""

    def may_write(self, leader: Leader) -> bool:
        return leader.epoch >= self.leader_epoch and leader.state_epoch >= self.state_epoch

    def store(self, batches: Sequence[StateBatch]) -> None:
        for first, last, state, _ in batches:
            for offset in range(first, last + 1):
                self.stored[offset] = max(state, self.stored.get(offset, 0))

    def open(self) -> int:
        """Begin for another producer: what is open is aborted, and the producers before are fenced."""
        self.open_letters = None
        self.producer_epoch += 1
        return self.producer_epoch

    def produce(self, epoch: int, offsets: list[int]) -> bool:
        if epoch != self.producer_epoch:
            return False
        self.open_letters = offsets
        return True

    def commit(self, epoch: int, after: int, note: CoveredOffsets) -> bool:
        if epoch != self.producer_epoch or self.open_letters is None or after != self.last_batch_id:
            return False
        for offset in self.open_letters:
            self.copies[note.state_epoch, offset] += 1
            assert self.copies[note.state_epoch, offset] == 1, f"offset {offset} has two copies"
        self.open_letters = None
        self.last_batch_id, self.note = after + 1, note
        return True


class Leader:
    """A broker that leads the partition, or believes that it does."""

    def __init__(self, world: World, epoch: int) -> None:
        self.world = world
        self.epoch = epoch
        self.state_epoch = world.state_epoch
        self.is_dropped = False
        self.queue = DeadLetterQueue(world.state_epoch, letters_max=LETTERS_MAX)
        self.producer_epoch = -1
        self.tasks: deque[Task] = deque()
        world.leader_epoch = max(world.leader_epoch, epoch)
        self.dead = {offset for offset, state in world.stored.items() if state in (ARCHIVING, ARCHIVED)}
        loaded = [offset for offset in sorted(self.dead) if world.stored[offset] == ARCHIVING]
        if loaded:
            self.step(Buried(tuple(DeadRange(offset, offset, 5, is_doubtful=True) for offset in loaded)))

    def step(self, event: QueueEvent) -> None:
        for effect in self.queue.step(event):
            if not isinstance(effect, GiveUp):
                self.tasks.append(self.perform(effect))
                # As the driver does it: what `Archive` ends is ended in memory at once.
                next(self.tasks[-1])

    def advance(self, *, is_lost: bool) -> None:
        """Let the request that is under way come a little further, or get lost."""
        if not self.tasks:
            return
        task = self.tasks[0]
        try:
            task.send(is_lost)
        except StopIteration:
            self.tasks.remove(task)

    def bury(self, first: int, last: int, *, is_rejected: bool) -> None:
        """Make records dead letters. A rejection is stored first; a time-out is not."""
        fresh = [offset for offset in range(first, last + 1) if offset not in self.dead]
        if not fresh or self.is_dropped:
            return
        ranges = [DeadRange(*span, 5) for span in joined((offset, offset) for offset in fresh)]
        if is_rejected:
            if not self.world.may_write(self):
                self.is_dropped = True
                return
            self.world.store([each.archiving() for each in ranges])
        self.dead.update(fresh)
        self.step(Buried(tuple(ranges)))

    def perform(self, effect: QueueEffect) -> Task:
        match effect:
            case Open(needs_note=needs_note):
                yield from self.open(needs_note)
            case Mark(batches=batches) | Archive(batches=batches):
                yield from self.store(batches)
            case Copy(letters=letters, after=after):
                yield from self.copy(letters, after)
            case RetryLater():
                yield
                self.step(RetryDue())

    def open(self, needs_note: bool) -> Task:
        if (yield):
            self.step(Failed("lost"))
            return
        epoch = self.world.open()
        if (yield):
            self.step(Failed("lost"))
            return
        self.producer_epoch = epoch
        if not needs_note:
            self.step(Opened())
            return
        # The note is read by a request of its own, after the producer is the only one.
        last_batch_id, note = self.world.last_batch_id, self.world.note
        if (yield):
            self.step(Failed("lost"))
        else:
            self.step(Opened(last_batch_id, note))

    def store(self, batches: Sequence[StateBatch]) -> Task:
        if (yield):
            self.step(Stored(False))
            return
        if not self.world.may_write(self):
            self.is_dropped = True
            return
        self.world.store(batches)
        is_lost = yield
        self.step(Stored(not is_lost))

    def copy(self, letters: tuple[DeadRange, ...], after: int) -> Task:
        # The driver may copy fewer than it is asked to.
        letters = letters[: max(1, len(letters) - (after % 2))]
        offsets = [offset for each in letters for offset in range(each.first, each.last + 1)]
        if (yield) or not self.world.produce(self.producer_epoch, offsets) or (yield):
            self.step(Failed("not written"))
            return
        note = CoveredOffsets(self.state_epoch, joined((each.first, each.last) for each in letters))
        if (yield):
            self.step(Uncertain(letters, "lost"))
            return
        is_committed = self.world.commit(self.producer_epoch, after, note)
        is_lost = yield
        if is_committed and not is_lost:
            self.step(Copied(letters))
        else:
            self.step(Uncertain(letters, "lost or refused"))


class Story:
    """Some random leaders after another."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.world = World()
        self.leaders = [Leader(self.world, 1)]

    def step(self) -> None:
        rng = self.rng
        leader = rng.choice(self.leaders)
        match rng.choices(("bury", "advance", "lose", "kill", "elect", "reset"), (4, 20, 2, 0.7, 0.7, 0.2))[0]:
            case "bury":
                first = rng.randrange(OFFSETS)
                leader.bury(first, min(OFFSETS - 1, first + rng.randrange(3)), is_rejected=rng.random() < 0.5)
            case "advance":
                leader.advance(is_lost=False)
            case "lose":
                leader.advance(is_lost=True)
            case "kill":
                self.leaders = [Leader(self.world, self.world.leader_epoch + 1)]
            case "elect":
                # The leader before does not know it yet.
                self.leaders = [*self.leaders[-2:], Leader(self.world, self.world.leader_epoch + 1)]
            case "reset":
                # AlterShareGroupOffsets: the same offsets are delivered again.
                self.world.state_epoch += 1
                self.world.stored.clear()
                self.leaders = [*self.leaders[-1:], Leader(self.world, self.world.leader_epoch)]
        self.leaders = [each for each in self.leaders if not each.is_dropped] or [
            Leader(self.world, self.world.leader_epoch + 1)
        ]

    def finish(self) -> None:
        """Let the last leader end everything."""
        last = Leader(self.world, self.world.leader_epoch + 1)
        for _ in range(1_000):
            if not last.tasks:
                break
            last.advance(is_lost=False)
        assert last.queue.state is QueueState.IDLE
        assert not last.queue.waiting
        for offset, state in self.world.stored.items():
            assert state == ARCHIVED, f"offset {offset} is stuck"
            assert self.world.copies[self.world.state_epoch, offset] == 1, f"offset {offset} has no copy"
        for (state_epoch, offset), count in self.world.copies.items():
            assert count == 1
            assert state_epoch != self.world.state_epoch or offset in self.world.stored


@pytest.mark.lengthy("random walks beside a model")
@hypothesis_settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_each_dead_letter_has_one_copy_even_if_leaders_die(seed: int) -> None:
    story = Story(random.Random(seed))
    for _ in range(STEPS):
        story.step()
    story.finish()


# What happens to single dead letters


def one(*offsets: int, **fields: bool) -> tuple[DeadRange, ...]:
    return tuple(DeadRange(offset, offset, 5, **fields) for offset in offsets)  # type: ignore[arg-type]


def only(effects: list[QueueEffect]) -> QueueEffect:
    (effect,) = effects
    return effect


def copying(queue: DeadLetterQueue, *offsets: int) -> Copy:
    """Bring the queue to a transaction."""
    only(queue.step(Buried(one(*offsets))))
    only(queue.step(Opened(-1, None)))
    effect = only(queue.step(Stored(True)))
    assert isinstance(effect, Copy)
    return effect


def test_a_dead_letter_is_marked_copied_and_archived() -> None:
    queue = DeadLetterQueue(7)
    assert queue.step(Buried(one(4))) == [Open(needs_note=True)]
    assert queue.step(Opened(2, None)) == [Mark((StateBatch(4, 4, ARCHIVING, 5),))]
    assert queue.step(Stored(True)) == [Copy(one(4), after=2)]
    assert queue.is_working
    assert queue.step(Copied(one(4))) == [Archive((StateBatch(4, 4, ARCHIVED, 5),))]
    assert queue.step(Stored(True)) == []
    assert not queue.is_working
    assert queue.step(Buried(one(9))) == [Open(needs_note=False)]
    assert queue.step(Opened()) == [Mark((StateBatch(9, 9, ARCHIVING, 5),))]
    assert queue.step(Stored(True)) == [Copy(one(9), after=3)]


def test_what_a_note_of_another_state_covers_is_copied() -> None:
    queue = DeadLetterQueue(7)
    queue.step(Buried(one(4, is_doubtful=True)))
    assert isinstance(only(queue.step(Opened(2, CoveredOffsets(6, ((4, 4),))))), Mark)


def test_transactions_that_are_too_large_are_halved_and_one_record_goes_without_its_content() -> None:
    queue = DeadLetterQueue(1)
    assert copying(queue, 1, 2, 3, 4).letters == one(1, 2, 3, 4)
    for expected in one(1, 2), one(1), one(1, is_bare=True):
        assert queue.step(Failed("too large", is_too_large=True)) == [Open(needs_note=False)]
        only(queue.step(Opened()))
        assert queue.step(Stored(True)) == [Copy(expected, after=-1)]
    assert isinstance(only(queue.step(Failed("too large", is_too_large=True))), RetryLater)
    queue.step(RetryDue())
    queue.step(Opened())
    queue.step(Stored(True))
    queue.step(Copied(one(1)))
    queue.step(Stored(True))
    queue.step(Opened())
    assert queue.step(Stored(True)) == [Copy(one(2, 3, 4), after=0)]


def test_attempts_are_ever_further_apart_and_nothing_is_given_up_while_others_are_delivered() -> None:
    queue = DeadLetterQueue(1)
    queue.step(Buried(one(1)))
    delays = []
    for _ in range(30):
        retry = only(queue.step(Failed("no topic")))
        assert isinstance(retry, RetryLater)
        delays.append(retry.delay_s)
        queue.step(RetryDue())
    assert delays[:4] == [0.1, 0.2, 0.4, 0.8]
    assert delays[-1] == 10.0
    assert queue.waiting == [*one(1)]


def test_half_is_given_up_when_nothing_else_can_be_delivered_for_long() -> None:
    queue = DeadLetterQueue(1)
    queue.step(Buried(one(1, 2, 3, 4)))
    for _ in range(PATIENCE):
        assert isinstance(only(queue.step(Failed("no topic", is_blocked=True))), RetryLater)
        queue.step(RetryDue())
    given_up, archive = queue.step(Failed("no topic", is_blocked=True))
    assert given_up == GiveUp(one(1, 2), "no topic")
    assert archive == Archive((StateBatch(1, 1, ARCHIVED, 5), StateBatch(2, 2, ARCHIVED, 5)))
    assert queue.waiting == [*one(3, 4)]


def test_without_a_topic_dead_letters_end() -> None:
    queue = DeadLetterQueue(1)
    queue.step(Buried(one(1, 2)))
    given_up, archive = queue.step(SwitchedOff())
    assert isinstance(given_up, GiveUp)
    assert isinstance(archive, Archive)
    assert queue.step(Stored(True)) == []


def test_markers_of_transactions_end_without_a_copy() -> None:
    queue = DeadLetterQueue(1)
    copying(queue, 1, 2)
    assert queue.step(Skipped(one(1))) == [Archive((StateBatch(1, 1, ARCHIVED, 5),))]
    assert queue.step(Stored(True)) == [Open(needs_note=False)]


def test_a_note_is_read_as_it_was_written() -> None:
    covered = CoveredOffsets(3, ((1, 4), (9, 9)))
    assert covered.split(0, 10) == ([(1, 4), (9, 9)], [(0, 0), (5, 8), (10, 10)])
    assert covered.split(2, 3) == ([(2, 3)], [])
    assert covered.split(5, 8) == ([], [(5, 8)])
