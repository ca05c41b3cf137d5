"""Random histories of sinks: tasks, copies of tasks, drivers that ask twice, late or in pairs, and coordinators that
come and go at every record of the log, compacted or not. Each batch is in the output once, as one driver wrote it.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from tests.unit.coordinators.test_sinks import last_of_each
from tests.unit.coordinators.transaction_story import P0, P1, P2, TIMEOUT_MS, Story

from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.transactions import batches
from strandline.coordinators.transactions.sink_records import is_of_sink
from strandline.coordinators.transactions.transaction import UNFINISHED
from strandline.coordinators.transactions.transaction_shard import TransactionShard
from strandline.errors import ErrorCode
from strandline.ids import sink_key

SINKS = ("s", "r")
STEPS = 120


@dataclass(eq=False)
class Attempt:
    """What one task of one driver wrote in one transaction."""

    sink: str
    batch_id: int
    transactional_id: str
    producer: tuple[int, int]
    fate: bool | None = None
    """Whether the markers that ended it said commit."""


@dataclass(eq=False)
class Driver:
    sink: str
    batch_id: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    """Of the present batch, those that count."""


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.version = self.random.choice((0, 2))
        self.story = Story(transaction_version=self.random.choice((0, 1, 2)))
        self.drivers = [Driver(sink) for sink in SINKS for _ in range(2)]
        self.open: dict[str, Attempt] = {}
        """The last of each transactional id."""
        self.attempts: list[Attempt] = []
        self.pool: dict[str, list[str]] = {sink: [] for sink in SINKS}
        self.thrown_away: dict[str, list[str]] = {sink: [] for sink in SINKS}
        self.producers: dict[str, tuple[int, int]] = {}
        self.decisions: list[tuple[str, int, list[Attempt]]] = []
        """What drivers were told is committed by them."""

    def act(self) -> None:
        driver = self.random.choice(self.drivers)
        match self.random.randrange(12):
            case 0 | 1 | 2 | 3:
                self.write(driver)
            case 4 | 5 | 6:
                self.commit(driver)
            case 7:
                self.repeat()
            case 8 | 9:
                self.end_markers()
            case 10:
                self.story.pass_ms(self.random.choice((0, 1, 1_000, TIMEOUT_MS)))
            case 11:
                self.lose_coordinator()
        self.note_markers()

    # ---- drivers and tasks

    def write(self, driver: Driver) -> None:
        """Write in a task and leave it open; some are copies that do not count."""
        transactional_id = self.take_producer(driver.sink)
        if transactional_id is None:
            return
        producer = self.producers[transactional_id]
        places = self.random.sample((P0, P1, P2), self.random.randint(1, 3))
        if self.story.add(producer, *places, name=transactional_id) is ErrorCode.NONE:
            attempt = Attempt(driver.sink, driver.batch_id, transactional_id, producer)
            self.open[transactional_id] = attempt
            self.attempts.append(attempt)
            # One that it counted on, and whose id was taken over, was a task that is done again.
            driver.attempts = [each for each in driver.attempts if each.transactional_id != transactional_id]
            if self.random.random() < 0.8:
                driver.attempts.append(attempt)

    def take_producer(self, sink: str) -> str | None:
        """One of the pool that is free by its own EndTxn, or a new one."""
        for transactional_id in list(self.pool[sink]):
            ended = self.story.end(self.producers[transactional_id], name=transactional_id, version=self.version)
            if ended is ErrorCode.CONCURRENT_TRANSACTIONS:
                continue
            self.pool[sink].remove(transactional_id)
            if isinstance(ended, tuple):
                # It hears that its transaction is committed, and nothing less.
                assert self.open[transactional_id].fate is True
                if self.version == 2:
                    self.producers[transactional_id] = ended
                self.pool[sink].append(transactional_id)
                return transactional_id
            self.thrown_away[sink].append(transactional_id)
        return self.begin(sink)

    def begin(self, sink: str) -> str | None:
        """With an id of its own, or with one that another gave up; a driver may still count on what that one wrote."""
        transactional_id = f"{sink_key(sink)}{len(self.producers)}"
        if self.thrown_away[sink] and self.random.random() < 0.7:
            transactional_id = self.thrown_away[sink].pop()
        found = self.story.init(transactional_id)
        if found is ErrorCode.CONCURRENT_TRANSACTIONS:
            self.thrown_away[sink].append(transactional_id)
            return None
        assert isinstance(found, tuple)
        self.producers[transactional_id] = found
        self.pool[sink].append(transactional_id)
        return transactional_id

    def commit(self, driver: Driver) -> None:
        before = len(self.story.log)
        members = {each.transactional_id: each.producer for each in driver.attempts}
        answer = self.story.commit_batch(driver.batch_id, members, sink=driver.sink, note=b"%d" % driver.batch_id)
        decided = [record for record in self.story.log[before:] if is_of_sink(record.key)]
        match ErrorCode(answer.error_code):
            case ErrorCode.NONE if answer.already_committed:
                assert not decided
            case ErrorCode.NONE:
                assert len(decided) == 1
                open_still = [each for each in self.open.values() if each.sink == driver.sink and self.is_open(each)]
                assert not open_still
                self.decisions.append((driver.sink, driver.batch_id, list(driver.attempts)))
            case ErrorCode.CONCURRENT_TRANSACTIONS:
                assert not decided
                return
            case ErrorCode.PRODUCER_FENCED | ErrorCode.INVALID_TXN_STATE:
                assert len(self.story.log) == before
                # Restarted, from the checkpoint of the faster driver.
                driver.batch_id = max(driver.batch_id, answer.last_batch_id + 1)
                driver.attempts = []
                return
            case code:
                raise AssertionError(code.name)
        driver.batch_id += 1
        driver.attempts = []

    def is_open(self, attempt: Attempt) -> bool:
        return self.story.state(attempt.transactional_id) == "Ongoing"

    def repeat(self) -> None:
        """A CommitBatch comes once more, or from a driver that was restored from long ago."""
        if not self.decisions:
            return
        sink, batch_id, attempts = self.random.choice(self.decisions)
        before = len(self.story.log)
        open_before = [each for each in self.open.values() if self.is_open(each)]
        members = {each.transactional_id: each.producer for each in attempts}
        answer = self.story.commit_batch(batch_id, members, sink=sink)
        assert all(map(self.is_open, open_before)), "a copy of what was decided aborts nothing"
        last = max(each for of, each, _ in self.decisions if of == sink)
        assert answer.last_batch_id == last
        if batch_id < last:
            assert answer.error_code == ErrorCode.PRODUCER_FENCED
            assert len(self.story.log) == before
        else:
            assert answer.already_committed

    # ---- markers

    def note_markers(self) -> None:
        """Check that each transaction has one end, however often it is sent."""
        for markers in self.story.markers:
            attempt = self.open[markers.transactional_id]
            assert attempt.fate in (None, markers.is_commit), f"both ends: {attempt}"
            attempt.fate = markers.is_commit

    def end_markers(self) -> None:
        self.note_markers()
        self.story.write_markers()
        self.note_markers()

    def lose_coordinator(self) -> None:
        whole = self.story.log
        self.story.log = last_of_each(whole) if self.random.random() < 0.5 else whole
        self.story.restart()

    # ---- the end

    def settle(self) -> None:
        self.end_markers()
        while any(each.status in UNFINISHED for each in self.story.shard.transactions.values()):
            self.story.pass_ms(TIMEOUT_MS)
            self.end_markers()

    def judge(self) -> None:
        committed = Counter((sink, batch_id) for sink, batch_id, _ in self.decisions)
        assert all(count == 1 for count in committed.values()), committed
        counted = {id(each) for _, _, attempts in self.decisions for each in attempts}
        for attempt in self.attempts:
            assert attempt.fate is (id(attempt) in counted), attempt


@pytest.mark.parametrize("seed", range(40))
def test_each_batch_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "ROLLED_PER_STEP_MAX", 2)
    world = World(seed)
    for _ in range(STEPS):
        world.act()
    world.settle()
    world.judge()
    assert len(world.decisions) > 3


@pytest.mark.parametrize(
    "seed",
    [
        *range(2),
        *(pytest.param(seed, marks=pytest.mark.lengthy("random walks beside a model")) for seed in range(2, 10)),
    ],
)
def test_every_part_of_the_log_says_the_same_compacted_or_not(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator may be lost at any record, and compaction may have come as far as any other before it."""
    monkeypatch.setattr(batches, "ROLLED_PER_STEP_MAX", 2)
    world = World(1_000 + seed)
    world.lose_coordinator = world.story.restart  # type: ignore[method-assign]
    for _ in range(STEPS // 2):
        world.act()
    log = world.story.log
    for end in range(len(log) + 1):
        expected = loaded(world.story, log[:end])
        for clean in range(end % 7, end, 7):
            assert loaded(world.story, [*last_of_each(log[:clean]), *log[clean:end]]) == expected, (clean, end)


def loaded(story: Story, log: list[CoordinatorRecord]) -> tuple[object, ...]:
    shard = TransactionShard(story.config, coordinator_epoch=1)
    shard.load(log)
    sinks = {name: (sink.last_batch_id, sink.note, set(sink.transactional_ids)) for name, sink in shard.sinks.items()}
    assert all(note == (b"%d" % last if last >= 0 else b"") for last, note, _ in sinks.values())
    return shard.transactions, sinks
