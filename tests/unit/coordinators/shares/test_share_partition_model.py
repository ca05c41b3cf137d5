"""SharePartition beside a naive model: a dictionary with one entry per record."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from strandline.coordinators.shares.delivery.acknowledgements import (
    ACCEPT,
    GAP_TYPE,
    REJECT,
    RELEASE,
    RENEW,
    AcknowledgedBatch,
)
from strandline.coordinators.shares.delivery.dead_ranges import DeadRange
from strandline.coordinators.shares.delivery.offset_ranges import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    DONE,
)
from strandline.coordinators.shares.delivery.share_partition import SharePartition, StateChange
from strandline.coordinators.shares.delivery.share_settings import ShareSettings
from strandline.coordinators.shares.share_state import NO_START_OFFSET, ShareState, StateBatch
from strandline.errors import RequestError

MEMBERS = ("ann", "bob", "cleo")
LOCK_S = 30.0
STEPS = 100
KINDS = ("produce", "trim", "acquire", "held", "any", "leave", "answer", "time", "fail", "copy")
WEIGHTS = (4, 1, 9, 9, 2, 1, 6, 2, 0.5, 3)
TARGETS = {GAP_TYPE: ARCHIVED, ACCEPT: ACKNOWLEDGED, REJECT: ARCHIVED, RELEASE: AVAILABLE}


class FakeBatches:
    """Batches of a log, read from an offset on."""

    def __init__(self, batches: list[tuple[int, int]]) -> None:
        self.batches = batches

    @property
    def first_offset(self) -> int:
        return self.batches[0][0]

    def cover(self, offset: int) -> int:
        return next((last for _, last in self.batches if last >= offset), self.batches[-1][1])

    def bases(self, first: int, last: int) -> list[int]:
        return [base for base, _ in self.batches if first <= base <= last]

    def undue(self, first: int, last: int, now_ms: int) -> list[tuple[int, int, int]]:
        return []

    def keys(self, first: int, last: int) -> list[tuple[int, int]]:
        return []


@dataclass
class Record:
    """One record of the model."""

    state: int = AVAILABLE
    count: int = 0
    member: str = ""
    deadline: float = 0.0
    lock: int = 0
    """Which request acquired or renewed it last."""
    is_suspect: bool = False
    change: StateChange | None = None


@dataclass
class Stored:
    """A naive share coordinator: what it keeps for each offset."""

    start_offset: int = NO_START_OFFSET
    records: dict[int, tuple[int, int]] = field(default_factory=dict)

    def write(self, start_offset: int, batches: tuple[StateBatch, ...]) -> None:
        if start_offset != NO_START_OFFSET:
            assert start_offset >= self.start_offset, "the stored start offset went back"
            self.start_offset = start_offset
        for first, last, state, count in batches:
            for offset in range(first, last + 1):
                known = self.records.get(offset, (0, -1))
                self.records[offset] = max(known, (state, count), key=lambda each: (each[1], each[0]))

    def load(self) -> ShareState:
        offsets = sorted(each for each in self.records if each >= self.start_offset)
        return ShareState(1, self.start_offset, tuple(StateBatch(each, each, *self.records[each]) for each in offsets))


class Deliveries:
    """Members acquire, acknowledge, time out and leave; writes are stored late, or never."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        limit, locks_max, start = rng.choice((2, 3, 5)), rng.choice((5, 40)), rng.choice((0, 7))
        topic = rng.choice(("", "dlq.tasks"))
        self.settings = ShareSettings(delivery_count_limit=limit, record_locks_max=locks_max, dead_letter_topic=topic)
        self.log: list[tuple[int, int]] = []
        self.log_start = start
        self.log_end = start
        self.stored_start = start
        self.unsaid_end = 0
        """The end of records that were given up by time, which was not stored."""
        self.now = 0.0
        self.stored = Stored()
        self.share = SharePartition(ShareState(1, NO_START_OFFSET, ()), start)
        self.records: dict[int, Record] = {}
        self.pending: list[StateChange] = []
        self.accepted: set[int] = set()
        """Offsets whose acceptance was stored."""
        self.dead: list[DeadRange] = []
        """Dead letters whose copy is not committed."""
        self.lock = 0
        """Requests that took locks."""

    def step(self) -> None:
        rng = self.rng
        match rng.choices(KINDS, WEIGHTS)[0]:
            case "produce":
                self.produce([rng.randint(1, 6) for _ in range(rng.randint(1, 4))], rng.choice((0, 0, 0, 3)))
            case "trim":
                if rng.random() < 0.5:
                    self.trim(rng.randint(1, 8))
                elif len(self.log) > 1:
                    self.log.remove(rng.choice(self.log[:-1]))
            case "acquire":
                sizes = rng.randint(1, 12), rng.randint(1, 12)
                self.acquire(rng.choice(MEMBERS), *sizes, is_strict=rng.random() < 0.4, read_max=rng.randint(1, 5))
            case "held":
                self.acknowledge_held(rng.randint(1, 6), rng.choice((0, 1, 1, 2, 3, 4)))
            case "any":
                self.acknowledge_anything(rng.choice(MEMBERS))
            case "leave":
                self.leave(rng.choice(MEMBERS))
            case "answer":
                self.answer(is_stored=rng.random() < 0.7)
            case "time":
                self.pass_time(rng.choice((1.0, 10.0, 30.0)), is_stored=rng.random() < 0.5)
            case "fail":
                self.lose_leader()
            case "copy":
                self.copy(rng.randint(1, 3), is_stored=rng.random() < 0.7)

    # The log

    def produce(self, sizes: list[int], hole: int) -> None:
        self.log_end += hole
        for size in sizes:
            self.log.append((self.log_end, self.log_end + size - 1))
            self.log_end += size

    def trim(self, by: int) -> None:
        self.log_start = min(self.log_end, self.log_start + by)
        self.log = [each for each in self.log if each[1] >= self.log_start]
        self.share.move_start(self.log_start)
        self.stored_start = max(self.stored_start, self.log_start)
        self.forget_below(self.share.start_offset)

    def forget_below(self, start: int) -> None:
        for offset in [each for each in self.records if each < start]:
            del self.records[offset]

    # Members

    def acquire(self, member: str, records_max: int, batch_size: int, *, is_strict: bool, read_max: int) -> None:
        offset = self.share.next_offset
        read = [each for each in self.log if each[1] >= offset][:read_max]
        if not read:
            return
        before, end_before = self.share.in_flight, self.share.end_offset
        available = [each for each in sorted(self.records) if self.is_available(each)]
        taken = self.share.acquire(
            member,
            FakeBatches(read),
            self.now,
            self.settings,
            records_max=records_max,
            batch_size=batch_size,
            is_strict=is_strict,
        )
        for gone in [each for each in available if each < read[0][0]]:
            self.records[gone].state = ARCHIVED
            available.remove(gone)
        if self.share.end_offset > end_before:
            begun = [each for each in self.records if self.records[each].state not in DONE or self.records[each].change]
            assert end_before - min(begun, default=end_before) < self.settings.record_locks_max
        for hole in range(end_before, self.share.end_offset):
            self.records[hole] = Record(ARCHIVED if hole < read[0][0] else AVAILABLE)
        count = 0
        self.lock += 1
        has_suspect = any(self.records[each].is_suspect for first, last, _ in taken for each in range(first, last + 1))
        for first, last, delivery_count in taken:
            assert last <= read[-1][1]
            for each in range(first, last + 1):
                record = self.records[each]
                assert self.is_available(each), f"{each} was given twice"
                record.state, record.member, record.deadline = ACQUIRED, member, self.now + LOCK_S
                record.lock, record.is_suspect = self.lock, False
                record.count += 1
                assert record.count == delivery_count <= self.settings.delivery_count_limit
                count += 1
        assert count == 1 or not has_suspect, "a suspect did not come alone"
        if is_strict:
            assert count <= records_max
        assert [each[0] for each in taken] == sorted(each[0] for each in taken)
        counts = {each.delivery_count for each in taken}
        if max(counts, default=0) > self.settings.shrinks_from:
            assert len(counts) == 1, "records that were delivered often came with others"
            if self.settings.delivery_count_limit in counts and self.settings.delivery_count_limit > 2:
                assert count == 1, "a last delivery was not alone"
        if available or before < self.settings.record_locks_max:
            readable = [each for each in available if each <= read[-1][1]]
            if readable or read[-1][1] >= end_before:
                assert taken, "there was something to acquire"
        self.forget_below(self.share.start_offset)

    def is_available(self, offset: int) -> bool:
        record = self.records[offset]
        return record.state == AVAILABLE and record.change is None

    def acknowledge_held(self, size: int, kind: int) -> None:
        held = sorted(each for each in self.records if self.records[each].state == ACQUIRED)
        if not held:
            return
        first = last = self.rng.choice(held)
        while last < first + size - 1 and last + 1 in held:
            last += 1
        self.acknowledge(self.records[first].member, first, last, bytes([kind]))

    def acknowledge_anything(self, member: str) -> None:
        first = self.rng.randint(max(0, self.share.start_offset - 3), self.share.end_offset + 2)
        last = self.rng.randint(first, max(first, min(first + 12, self.share.end_offset + 2)))
        size = self.rng.choice((1, last - first + 1))
        self.acknowledge(member, first, last, bytes(self.rng.randint(0, 4) for _ in range(size)))

    def acknowledge(self, member: str, first: int, last: int, kinds: bytes) -> None:
        wanted = [each for each in range(first, last + 1) if each >= self.share.start_offset]
        unsaid = range(self.stored_start, min(self.share.start_offset, self.unsaid_end))
        is_unsaid = any(each in unsaid for each in range(first, last + 1))
        is_held = last < self.share.end_offset and all(
            self.share.ranges.find(each).state == 5  # type: ignore[union-attr]
            or (
                self.records[each].state == ACQUIRED
                and self.records[each].member == member
                and self.records[each].change is None
            )
            for each in wanted
        )
        is_right = not is_unsaid and (last < self.share.start_offset or is_held)
        batch = AcknowledgedBatch(first, last, kinds)
        if not is_right:
            with pytest.raises(RequestError):
                self.share.acknowledge(member, [batch], self.now, self.settings)
            return
        change = self.share.acknowledge(member, [batch], self.now, self.settings)
        self.lock += 1
        for each in wanted:
            record = self.records[each]
            if record.state != ACQUIRED:
                continue
            of_offset = kinds[0] if len(kinds) == 1 else kinds[each - first]
            if of_offset == RENEW:
                record.deadline, record.lock = self.now + LOCK_S, self.lock
            else:
                target = self.settings.undelivered_state if of_offset == REJECT else TARGETS[of_offset]
                self.change(record, target, change)
        if change is not None:
            self.pending.append(change)

    def leave(self, member: str) -> None:
        change = self.share.release(member, self.settings)
        held = [each for each in self.records.values() if each.state == ACQUIRED and each.member == member]
        assert (change is not None) == bool(held)
        for record in held:
            self.change(record, AVAILABLE, change)
        if change is not None:
            self.pending.append(change)

    def change(self, record: Record, state: int, change: StateChange | None) -> None:
        if state == AVAILABLE and record.count >= self.settings.delivery_count_limit:
            state = self.settings.undelivered_state
        record.state, record.change = state, change

    # The share coordinator

    def answer(self, *, is_stored: bool) -> None:
        if not self.pending:
            return
        change = self.pending.pop(0)
        start_offset, _, batches = change.write
        changed = [each for each in self.records if self.records[each].change is change]
        for each in changed:
            self.records[each].change = None
        if is_stored:
            self.store(start_offset, batches)
            self.accepted.update(each for each in changed if self.records[each].state == ACKNOWLEDGED)
            self.share.commit(change)
        else:
            for each in changed:
                self.hold_again(self.records[each])
            self.share.revert(change, self.settings)
        self.forget_below(self.share.start_offset)

    def store(self, start_offset: int, batches: tuple[StateBatch, ...]) -> None:
        for offset, record in self.records.items():
            is_done = record.state in DONE and record.change is None
            assert offset >= start_offset or is_done, f"{offset} is below the stored start offset and was never done"
        self.stored.write(start_offset, batches)
        self.stored_start = max(self.stored_start, start_offset)

    def hold_again(self, record: Record) -> None:
        record.state = ACQUIRED
        if record.deadline <= self.now:
            self.time_out(record)

    def time_out(self, record: Record) -> None:
        is_exhausted = record.count >= self.settings.delivery_count_limit
        record.state = self.settings.undelivered_state if is_exhausted else AVAILABLE

    def pass_time(self, by: float, *, is_stored: bool) -> None:
        self.now += by
        ordered = [record for _, record in sorted(self.records.items())]
        late = [each for each in ordered if each.state == ACQUIRED and each.deadline <= self.now]
        write = self.share.expire(self.now, self.settings)
        assert (write is not None) == bool(late)
        locks = set()
        for record in late:
            self.time_out(record)
            record.is_suspect = record.state == AVAILABLE and record.lock not in locks
            locks.add(record.lock)
        if write is not None and is_stored and not self.pending:
            self.store(write.start_offset, write.batches)
            self.share.on_stored(write)
        else:
            ends = [
                offset + 1
                for offset, each in self.records.items()
                if each.state in DONE and any(each is one for one in late)
            ]
            self.unsaid_end = max(self.unsaid_end, *ends, 0)
        self.forget_below(self.share.start_offset)

    def copy(self, count: int, *, is_stored: bool) -> None:
        """Commit copies of some dead letters, which end them, whether that is stored or not."""
        self.take_dead()
        ended, self.dead = self.dead[:count], self.dead[count:]
        if not ended:
            return
        for each in ended:
            for offset in range(each.first, each.last + 1):
                if offset in self.records:
                    assert self.records[offset].state == ARCHIVING
                    self.records[offset].state = ARCHIVED
        write = self.share.archive([each.archived() for each in ended])
        if is_stored and not self.pending:
            self.store(write.start_offset, write.batches)
            self.share.on_stored(write)
        self.forget_below(self.share.start_offset)

    def take_dead(self) -> None:
        self.dead += self.share.dead
        self.share.dead = []

    def lose_leader(self) -> None:
        """Another broker leads: it has what was stored, and no locks."""
        if self.stored.start_offset == NO_START_OFFSET:
            return
        self.pending.clear()
        start = max(self.stored.start_offset, self.log_start)
        self.share = SharePartition(self.stored.load(), self.stored.start_offset)
        self.stored_start, self.unsaid_end = start, 0
        self.dead = []
        self.share.move_start(self.log_start)
        known = {each: self.stored.records.get(each, (AVAILABLE, 0)) for each in range(start, self.share.end_offset)}
        self.records = {each: Record(state, count) for each, (state, count) in known.items()}
        self.forget_below(self.share.start_offset)

    # What always holds

    def same_as_model(self) -> None:
        share = self.share
        ranges = share.ranges.ranges
        assert share.ranges.firsts == [each.first for each in ranges]
        offset = share.start_offset
        for each in ranges:
            assert each.first == offset, "a hole between ranges"
            offset = each.last + 1
            for within in range(each.first, each.last + 1):
                record = self.records[within]
                state = ARCHIVED if each.state == 5 else each.state
                assert (state, each.count) == (record.state, record.count) or (state in DONE and state == record.state)
                assert each.change is record.change
                assert each.is_suspect == record.is_suspect or state != AVAILABLE
                if state == ACQUIRED:
                    assert each.lock is not None
                    assert (each.lock.member_id, each.lock.deadline) == (record.member, record.deadline)
        assert offset == share.end_offset
        assert len(self.records) == share.in_flight
        assert share.done_count == sum(each.state in DONE for each in self.records.values())
        if ranges:
            assert ranges[0].state not in DONE or ranges[0].change is not None
        available = [each for each in self.records if self.is_available(each)]
        assert share.next_offset == min(available, default=share.end_offset)
        deadlines = [each.deadline for each in self.records.values() if each.state == ACQUIRED]
        if deadlines:
            assert share.locks.next_deadline is not None
            assert share.locks.next_deadline <= min(deadlines)
        self.take_dead()
        dead = [offset for each in self.dead for offset in range(each.first, each.last + 1) if offset in self.records]
        archiving = [each for each, record in self.records.items() if record.state == ARCHIVING and not record.change]
        assert sorted(dead) == sorted(archiving), "a dead letter is forgotten, or comes twice"
        for each in self.accepted:
            assert each < share.start_offset or self.records[each].state == ACKNOWLEDGED, (
                "an accepted record came again"
            )


@pytest.mark.lengthy("random walks beside a model")
@hypothesis_settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_walk_ends_as_the_model_says(seed: int) -> None:
    deliveries = Deliveries(random.Random(seed))
    for _ in range(STEPS):
        deliveries.step()
        deliveries.same_as_model()
