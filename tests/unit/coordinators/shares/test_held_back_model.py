"""Delay, back-off and key order of a share partition beside a naive model: one entry per record, and its whole life.

A walk fails with the name of what went wrong, by which the simulator and the chaos checker call it too: `early-delay`,
`reordered-key`, `stuck-task`, `lost-task`, `double-acquire`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.unit.coordinators.shares.test_share_partition_model import Stored

from strandline.coordinators.shares.delivery.acknowledgements import ACCEPT, REJECT, RELEASE, AcknowledgedBatch
from strandline.coordinators.shares.delivery.due_times import FINE_MS
from strandline.coordinators.shares.delivery.share_partition import SharePartition, StateChange
from strandline.coordinators.shares.delivery.share_settings import ShareSettings
from strandline.coordinators.shares.share_state import NO_START_OFFSET, ShareState

MEMBERS = ("ann", "bob", "cleo")
LOCK_S = 30.0
STEPS = 80
WEIGHTS = (4, 9, 8, 1, 6, 4, 0.7, 0.4)
WALL_MS = 1_700_000_000_000
"""The time of the records when the other clock begins at 0."""


@dataclass
class Task:
    """One record of the model."""

    due_ms: int
    key: int | None
    member: str = ""
    deadline: float = 0.0
    count: int = 0
    backed_off_until: float = 0.0
    change: StateChange | None = None
    target: str = ""
    """What the change leads to."""
    outcome: str = ""
    """"accepted" or "archived" once that is certain."""


class TaskBatches:
    """Batches of a log with due times and keys, read from an offset on."""

    def __init__(self, batches: list[tuple[int, int]], tasks: dict[int, Task]) -> None:
        self.batches = batches
        self.tasks = tasks

    @property
    def first_offset(self) -> int:
        return self.batches[0][0]

    def cover(self, offset: int) -> int:
        return next((last for _, last in self.batches if last >= offset), self.batches[-1][1])

    def bases(self, first: int, last: int) -> list[int]:
        return [base for base, _ in self.batches if first <= base <= last]

    def undue(self, first: int, last: int, now_ms: int) -> list[tuple[int, int, int]]:
        runs: list[tuple[int, int, int]] = []
        for offset in range(first, last + 1):
            due_ms = self.tasks[offset].due_ms if offset in self.tasks else 0
            if due_ms <= now_ms:
                continue
            if runs and runs[-1][1] == offset - 1:
                runs[-1] = runs[-1][0], offset, min(runs[-1][2], due_ms)
            else:
                runs.append((offset, offset, due_ms))
        return runs

    def keys(self, first: int, last: int) -> list[tuple[int, int]]:
        found = ((offset, self.tasks[offset].key) for offset in range(first, last + 1) if offset in self.tasks)
        return [(offset, key) for offset, key in found if key is not None]


class Queue:
    """A share partition, its log, members that work on tasks, and a share coordinator that may fail."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.is_delayed = rng.random() < 0.6
        self.is_keyed = rng.random() < 0.6
        self.settings = ShareSettings(
            delivery_count_limit=rng.choice((2, 3, 5)),
            record_locks_max=rng.choice((5, 40)),
            is_key_ordered=self.is_keyed,
            backoff_ms=rng.choice((0, 0, 500, 20_000)),
            waiting_records_max=rng.choice((4, 1_000_000)),
        )
        self.log: list[tuple[int, int]] = []
        self.log_start = self.log_end = rng.choice((0, 7))
        self.tasks: dict[int, Task] = {}
        """Every record that was ever written."""
        self.now = 0.0
        self.stored = Stored()
        self.share = SharePartition(ShareState(1, NO_START_OFFSET, ()), self.log_start, is_key_ordered=self.is_keyed)
        self.share.is_delayed = self.is_delayed
        self.pending: list[StateChange] = []

    @property
    def now_ms(self) -> int:
        return WALL_MS + int(self.now * 1000)

    def step(self) -> None:
        rng = self.rng
        steps = ("produce", "acquire", "held", "leave", "answer", "time", "trim", "fail")
        match rng.choices(steps, WEIGHTS)[0]:
            case "produce":
                self.produce([rng.randint(1, 5) for _ in range(rng.randint(1, 3))], rng.choice((0, 0, 0, 2)))
            case "acquire":
                self.acquire(rng.choice(MEMBERS), rng.randint(1, 8), is_strict=rng.random() < 0.4)
            case "held":
                self.acknowledge(rng.randint(1, 4), rng.choice((ACCEPT, ACCEPT, RELEASE, REJECT)))
            case "leave":
                self.leave(rng.choice(MEMBERS))
            case "answer":
                self.answer(is_stored=rng.random() < 0.8)
            case "time":
                self.pass_time(rng.choice((0.01, 0.5, 5.0, 30.0)))
            case "trim":
                self.trim(rng.randint(1, 4))
            case "fail":
                self.lose_leader()
        self.check()

    # The log

    def produce(self, sizes: list[int], hole: int) -> None:
        self.log_end += hole
        for size in sizes:
            self.log.append((self.log_end, self.log_end + size - 1))
            for offset in range(self.log_end, self.log_end + size):
                delay_ms = self.rng.choice((0, 0, -5_000, 100, 3_000, 60_000, 100_000))
                key = self.rng.choice((None, 1, 2, 3))
                self.tasks[offset] = Task(
                    self.now_ms + delay_ms if self.is_delayed else 0, key if self.is_keyed else None
                )
            self.log_end += size

    def trim(self, by: int) -> None:
        self.log_start = min(self.log_end, self.log_start + by)
        self.log = [each for each in self.log if each[1] >= self.log_start]
        self.share.move_start(self.log_start)
        for offset, task in self.tasks.items():
            if offset < self.log_start:
                task.member = ""
                task.outcome = task.outcome or "archived"

    # Members

    def acquire(self, member: str, records_max: int, *, is_strict: bool) -> int:
        """Acquire as a fetch does, which goes on while there may be more. Return how many records were acquired."""
        free = self.free()
        for _ in range(100):
            self.ripen()
            offset = self.share.next_offset
            read = [each for each in self.log if each[1] >= offset][: self.rng.randint(1, 5)]
            if not read or not self.share.has_room(self.settings):
                break
            taken = self.share.acquire(
                member,
                TaskBatches(read, self.tasks),
                self.now,
                self.settings,
                records_max=records_max,
                batch_size=records_max,
                is_strict=is_strict,
                now_ms=self.now_ms,
            )
            if taken:
                return self.note(member, taken, records_max, is_strict=is_strict)
        else:
            raise AssertionError("a fetch goes on for ever")
        assert not free, f"stuck-task: {sorted(free)} may be delivered, and were not"
        return 0

    def note(self, member: str, taken: list[tuple[int, int, int]], records_max: int, *, is_strict: bool) -> int:
        count = 0
        keys: set[int] = set()
        for first, last, delivery_count in taken:
            for offset in range(first, last + 1):
                count += 1
                task = self.tasks.get(offset)
                if task is None:
                    continue  # The log has a hole there.
                assert not task.outcome, f"double-acquire: {offset} came again, though it is {task.outcome}"
                assert not task.member, f"double-acquire: {task.member} holds {offset}"
                assert task.change is None, f"double-acquire: {offset} while a change is not stored"
                assert task.due_ms <= self.now_ms or task.count, f"early-delay: {offset}, due at {task.due_ms}"
                assert task.backed_off_until <= self.now, f"early-delay: {offset} is backed off"
                if task.key is not None:
                    assert task.key not in keys, f"reordered-key: two of key {task.key} at once"
                    keys.add(task.key)
                    assert not self.before(offset), f"reordered-key: {offset} before {self.before(offset)}"
                task.count += 1
                assert task.count == delivery_count <= self.settings.delivery_count_limit
                task.member, task.deadline = member, self.now + LOCK_S
        assert not is_strict or count <= records_max
        return count

    def before(self, offset: int) -> list[int]:
        """Return records of the same key before one that are not done."""
        key = self.tasks[offset].key
        return [each for each in self.tasks if each < offset and self.tasks[each].key == key and self.is_open(each)]

    def is_open(self, offset: int) -> bool:
        return offset >= self.log_start and not self.tasks[offset].outcome

    def free(self) -> set[int]:
        """Return records that a member should get now, if it asks for any: those that cannot be refused for room."""
        return {
            offset
            for offset, task in self.tasks.items()
            if self.is_open(offset)
            and offset < self.share.end_offset
            and not task.member
            and task.change is None
            and (task.due_ms + FINE_MS <= self.now_ms or task.count)
            and task.backed_off_until + FINE_MS / 1000 <= self.now
            and (task.key is None or not self.before(offset))
        }

    def acknowledge(self, size: int, kind: int) -> None:
        held = [offset for offset, task in self.tasks.items() if task.member and task.change is None]
        if not held:
            return
        first = last = self.rng.choice(held)
        member = self.tasks[first].member
        while last < first + size - 1 and last + 1 in held and self.tasks[last + 1].member == member:
            last += 1
        change = self.share.acknowledge(
            member, [AcknowledgedBatch(first, last, bytes([kind]))], self.now, self.settings
        )
        assert change is not None
        self.pending.append(change)
        for offset in range(first, last + 1):
            task = self.tasks[offset]
            task.change, task.target = change, {ACCEPT: "accepted", RELEASE: "", REJECT: "archived"}[kind]
            if kind == RELEASE:
                self.release(task, self.now)

    def release(self, task: Task, at: float | None) -> None:
        """Work out where a release leads to; without a time there is no back-off."""
        if task.count >= self.settings.delivery_count_limit:
            task.target = "archived"
        elif at is not None:
            task.backed_off_until = at + self.settings.backoff_after_ms(task.count) / 1000

    def leave(self, member: str) -> None:
        change = self.share.release(member, self.settings)
        for task in self.tasks.values():
            if task.member == member and task.change is None:
                assert change is not None
                task.change, task.target = change, ""
                self.release(task, None)
        if change is not None:
            self.pending.append(change)

    # The share coordinator, and time

    def answer(self, *, is_stored: bool) -> None:
        if not self.pending:
            return
        change = self.pending.pop(0)
        changed = [task for task in self.tasks.values() if task.change is change]
        if is_stored:
            self.stored.write(change.write.start_offset, change.write.batches)
            self.share.commit(change)
        else:
            self.share.revert(change, self.settings)
        for task in changed:
            task.change = None
            if is_stored:
                task.member, task.outcome = "", task.outcome or task.target
            else:
                task.backed_off_until = 0.0
                if task.deadline <= self.now:
                    self.time_out(task)

    def time_out(self, task: Task) -> None:
        task.member, task.target = "", ""
        self.release(task, task.deadline)
        task.outcome = task.outcome or task.target

    def pass_time(self, by: float) -> None:
        self.now += by
        write = self.share.expire(self.now, self.settings)
        for task in self.tasks.values():
            if task.member and task.change is None and task.deadline <= self.now:
                self.time_out(task)
        if write is not None and not self.pending:
            self.stored.write(write.start_offset, write.batches)
            self.share.on_stored(write)

    def ripen(self) -> None:
        if self.share.held.is_timed:
            self.share.held.ripen(self.now_ms, int(self.now * 1000))

    def lose_leader(self) -> None:
        """Another broker leads: it has what was stored, and neither locks nor back-offs."""
        if self.stored.start_offset == NO_START_OFFSET:
            return
        self.pending.clear()
        self.share = SharePartition(self.stored.load(), self.stored.start_offset, is_key_ordered=self.is_keyed)
        self.share.is_delayed = self.is_delayed
        self.share.move_start(self.log_start)
        for offset, task in self.tasks.items():
            task.member, task.change, task.backed_off_until = "", None, 0.0
            state, count = self.stored.records.get(offset, (0, 0))
            if offset >= max(self.stored.start_offset, self.log_start):
                if not state:
                    # What was archived by a time-out may come again, if that was not stored.
                    task.outcome = "" if task.outcome == "archived" else task.outcome
                    task.count = count
                assert task.outcome != "accepted" or state, f"{offset} was accepted, and that is not stored"
                task.outcome = {0: task.outcome, 2: "accepted", 4: "archived"}[state]

    # What always holds

    def check(self) -> None:
        share = self.share
        assert share.held.count == sum(len(each) for each in share.ranges.ranges if each.held)
        for each in share.ranges.ranges:
            assert not each.held or (each.state == 0 and each.change is None)
        for offset, task in self.tasks.items():
            if offset < share.start_offset:
                assert task.outcome, f"lost-task: {offset} is below the start offset, and was never done"

    def drain(self) -> None:
        """At the end every record is delivered and accepted, if only time passes and one member works."""
        while self.pending:
            self.answer(is_stored=True)
        for _ in range(2_000):
            if self.share.start_offset >= self.log_end or not any(map(self.is_open, self.tasks)):
                break
            for member in MEMBERS:
                self.leave(member)
            while self.pending:
                self.answer(is_stored=True)
            self.acquire("ann", 8, is_strict=False)
            for first, last in [(each.first, each.last) for each in self.share.ranges.ranges if each.lock is not None]:
                change = self.share.acknowledge(
                    "ann", [AcknowledgedBatch(first, last, b"\x01")], self.now, self.settings
                )
                for offset in range(first, last + 1):
                    if offset in self.tasks:
                        self.tasks[offset].change, self.tasks[offset].target = change, "accepted"
                assert change is not None
                self.pending.append(change)
            while self.pending:
                self.answer(is_stored=True)
            self.check()
            self.pass_time(5.0)
        stuck = [offset for offset in self.tasks if self.is_open(offset)]
        assert not stuck, f"stuck-task: {stuck} were never delivered"


@pytest.mark.lengthy("random walks beside a model")
@hypothesis_settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_walk_holds_to_due_times_back_off_and_order(seed: int) -> None:
    queue = Queue(random.Random(seed))
    for _ in range(STEPS):
        queue.step()
    queue.drain()


@pytest.mark.parametrize("seed", range(20))
def test_too_many_ranges_hold_records_back_and_lose_none(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.coordinators.shares.delivery.held_back.RANGES_MAX", 6)
    rng = random.Random(seed)
    queue = Queue(rng)
    queue.is_delayed = queue.share.is_delayed = True
    monkeypatch.setattr(queue, "free", lambda: set())  # They may be late then.
    for _ in range(STEPS):
        queue.step()
    queue.drain()


def test_far_dates_do_not_stop_the_others() -> None:
    """More records that are due in a week than may be in flight, and behind them more than may wait."""
    queue = Queue(random.Random(1))
    queue.settings = ShareSettings(record_locks_max=5, waiting_records_max=20)
    queue.is_delayed, queue.is_keyed = True, False
    queue.share = SharePartition(ShareState(1, 0, ()), 0)
    queue.share.is_delayed = True
    queue.log, queue.log_start, queue.log_end = [(each, each) for each in range(200)], 0, 200
    week_ms = 7 * 24 * 3_600_000
    queue.tasks = {each: Task(queue.now_ms + (0 if each >= 10 else week_ms), None) for each in range(200)}
    got = 0
    while taken := queue.acquire("ann", 3, is_strict=True):
        got += taken
        for offset, task in queue.tasks.items():
            if task.member:
                change = queue.share.acknowledge(
                    "ann", [AcknowledgedBatch(offset, offset, bytes([ACCEPT]))], queue.now, queue.settings
                )
                assert change is not None
                queue.stored.write(change.write.start_offset, change.write.batches)
                queue.share.commit(change)
                task.member, task.outcome = "", "accepted"
    assert got == 190, "stuck-task"
    assert len(queue.share.ranges) == 2
    queue.now += week_ms / 1000
    assert queue.acquire("ann", 3, is_strict=True)
