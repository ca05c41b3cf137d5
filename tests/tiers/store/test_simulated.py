"""Stores under faults in the simulator: no event loop, no real clock, and the same again from the same seed."""

from __future__ import annotations

import json
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.simulator.world.loop import SimLoop
from tests.simulator.world.runtime import SimHost, SimRuntime
from tests.tiers.store.faulty_store import FaultyStore, StoreFaults

from strandline.tiers.store.budget import BudgetedStore, RequestBudget
from strandline.tiers.store.counters import CountedStore, StoreCounters
from strandline.tiers.store.memory_store import MemoryStore
from strandline.tiers.store.object_store import (
    GuardedStore,
    ObjectMissing,
    ObjectStore,
    RetryRules,
    StoreFailed,
    StoreFull,
    StoreUnavailable,
    StoreUnsure,
    claim,
    probe,
)
from strandline.tiers.store.retries import RetryingStore
from strandline.tiers.store.waiting import Signal, pause, start, together

BAD = StoreFaults(delay_s=0.5, unavailable=0.1, conflict=0.1, lost=0.15, cut=0.1, short_range=0.1, late_list_s=3.0)


class World:
    """Hosts around one bucket. Each has a way of its own to it, with faults of its own."""

    def __init__(self, seed: int) -> None:
        self.loop = SimLoop(seed)
        self.bucket = MemoryStore()
        self.hosts = 0

    def runtime(self) -> SimRuntime:
        self.hosts += 1
        return SimRuntime(SimHost(self.loop, f"host-{self.hosts}"), 1)

    def store(self, runtime: SimRuntime, faults: StoreFaults = BAD) -> ObjectStore:
        faulty = FaultyStore(self.bucket, runtime, self.loop.derive(f"faults {self.hosts}"), faults)
        return GuardedStore(faulty, runtime)

    def run(self, runtime: SimRuntime, coroutine: Coroutine[Any, Any, Any], *, within_s: float = 36_000.0) -> Any:
        started = start(runtime, coroutine)
        assert self.loop.run_while(lambda: not started.outcome.done(), within_s=within_s), "it never ends"
        return started.outcome.result()


async def write_manifests(store: ObjectStore, name: str, rounds: int, won: list[tuple[int, str]]) -> None:
    """Append to a chain of numbered manifests; one that exists is adopted, and the next number is tried."""
    for number in range(rounds):
        key, nonce = f"manifest/{number:020}", f"{name}-{number:08}"
        body = json.dumps({"writer": name, "nonce": nonce}).encode()
        while True:
            try:
                is_mine = await store.create(key, body, nonce=nonce, deadline_s=5.0)
            except StoreUnsure:
                continue
            break
        if is_mine:
            won.append((number, name))
        else:
            while True:
                try:
                    found = json.loads(await store.read_whole(key, deadline_s=5.0))
                except StoreUnavailable:
                    continue
                break
            assert found["writer"] != name


def storm(seed: int) -> tuple[int, list[tuple[int, str]]]:
    world, won = World(seed), list[tuple[int, str]]()
    started = []
    for each in range(12):
        runtime = world.runtime()
        started.append(start(runtime, write_manifests(world.store(runtime), f"writer-{each}", 8, won)))
    assert world.loop.run_while(lambda: not all(each.outcome.done() for each in started), within_s=36_000.0)
    for one in started:
        one.outcome.result()
    for number in range(8):
        owner = json.loads(world.bucket.objects[f"manifest/{number:020}"])["writer"]
        assert [name for at, name in won if at == number] == [owner], f"seed {seed}, round {number}"
    return world.loop.trace, won


@pytest.mark.parametrize("seed", range(12))
def test_a_storm_of_creates_has_one_winner_a_round(seed: int) -> None:
    storm(seed)


def test_a_seed_repeats() -> None:
    assert storm(7) == storm(7)
    assert storm(7) != storm(8)


def test_an_outage_ends_in_a_clean_failure_and_is_over_without_a_restart() -> None:
    world, faults = World(1), StoreFaults(unavailable=1.0)
    runtime = world.runtime()
    store = world.store(runtime, faults)

    async def work() -> None:
        begun = runtime.monotonic()
        with pytest.raises(StoreUnavailable, match="503"):
            await store.put("k", b"x", deadline_s=300.0)
        assert 250.0 < runtime.monotonic() - begun <= 300.0
        with pytest.raises(StoreUnsure):
            await store.create("n", b"12345678", nonce="12345678", deadline_s=30.0)
        with pytest.raises(StoreUnavailable):
            [each async for each in store.list("")]
        faults.unavailable = 0.0
        await store.put("k", b"x", deadline_s=1.0)

    world.run(runtime, work())
    assert world.bucket.objects == {"k": b"x"}
    # Between 15 and 90 attempts: pauses grow, and no store is hammered.
    assert 15 < store.counters.calls["put"] < 90  # type: ignore[attr-defined]


def test_slow_answers_stay_within_the_deadline() -> None:
    world = World(2)
    runtime = world.runtime()
    store = world.store(runtime, StoreFaults(delay_s=60.0))

    async def work() -> None:
        for each in range(20):
            begun = runtime.monotonic()
            try:
                await store.put(f"k{each}", b"x", deadline_s=20.0)
            except StoreUnavailable as error:
                late.append(str(error))
            assert runtime.monotonic() - begun < 20.1

    late: list[str] = []
    world.run(runtime, work())
    assert 0 < len(late) < 20


def test_probe_and_claim_work_without_an_event_loop() -> None:
    for seed in range(5):
        world = World(seed)
        runtime = world.runtime()
        store = world.store(runtime)

        async def work(store: ObjectStore = store, runtime: SimRuntime = runtime) -> None:
            await probe(store, runtime=runtime)
            await claim(store, "cluster-a", runtime=runtime)

        world.run(runtime, work())
        assert "strandline-cluster.json" in world.bucket.objects


def test_a_killed_host_takes_no_step_more_and_a_cancelled_call_ends() -> None:
    world = World(3)
    runtime = world.runtime()
    store = world.store(runtime, StoreFaults(delay_s=1.0))

    async def work() -> None:
        for each in range(100):
            await store.put(f"k{each:03}", b"x", deadline_s=30.0)

    started = start(runtime, work())
    world.loop.run_until(5.0)
    written = len(world.bucket.objects)
    assert 5 < written < 100
    started.cancel()
    world.loop.run_until(6.0)
    assert started.outcome.done()
    assert len(world.bucket.objects) <= written + 1
    again = start(runtime, work())
    runtime.actor.kill()
    world.loop.run_until(60.0)
    assert not again.outcome.done()
    assert len(world.bucket.objects) <= written + 1


def test_objects_survive_all_faults_as_they_were_written() -> None:
    """A model beside the store: what was acknowledged is there, and only that or what was cut."""
    for seed in range(15):
        world = World(seed)
        runtime = world.runtime()
        store = world.store(runtime)
        chance = random.Random(seed)
        known: dict[str, set[bytes | None]] = {}

        async def work(
            seed: int = seed,
            store: ObjectStore = store,
            chance: random.Random = chance,
            known: dict[str, set[bytes | None]] = known,
        ) -> None:
            for step in range(60):
                key = f"{chance.randrange(3)}/{chance.randrange(4)}"
                before = known.get(key, {None})
                deadline_s = chance.choice([0.3, 3.0, 30.0])
                if chance.random() < 0.6:
                    body: bytes | None = f"{step}".encode() * chance.randint(1, 9)
                    call: Any = store.put(key, body or b"", deadline_s=deadline_s)
                else:
                    body, call = None, store.delete([key], deadline_s=deadline_s)
                try:
                    await call
                    known[key] = {body}
                except StoreUnavailable:
                    known[key] = before | {body}
                try:
                    found: bytes | None = await store.read_whole(key, deadline_s=30.0)
                except ObjectMissing:
                    found = None
                assert found in known[key], f"seed {seed}, step {step}"
                known[key] = {found}

        world.run(runtime, work())


# The budget


def test_the_budget_keeps_its_rate_its_places_and_its_order() -> None:
    world = World(4)
    runtime = world.runtime()
    counters = StoreCounters()
    budget = RequestBudget(runtime, requests_per_s=10.0, in_flight_max=3)
    slow = FaultyStore(world.bucket, runtime, random.Random(4), StoreFaults(delay_s=0.2))
    most = 0

    class Watched(FaultyStore):
        async def put(self, *args: Any, **named: Any) -> Any:
            nonlocal most
            most = max(most, budget.in_flight)
            return await slow.put(*args, **named)

    watched = Watched(world.bucket, runtime, random.Random(4), StoreFaults())
    store = BudgetedStore(CountedStore(watched, runtime, counters), runtime, budget)
    order: list[int] = []

    async def one(number: int) -> None:
        await store.put(f"k{number}", b"x", deadline_s=60.0)
        order.append(number)

    async def work() -> None:
        begun = runtime.monotonic()
        await together(runtime, [one(each) for each in range(60)])
        # Ten at once, then ten a second.
        assert 4.9 < runtime.monotonic() - begun < 6.5

    world.run(runtime, work())
    assert most == 3
    assert budget.in_flight == budget.waiting == 0
    assert sorted(order) == list(range(60))
    assert max(abs(at - number) for at, number in enumerate(order)) <= 3
    assert counters.calls["put"] == counters.requests["put"] == 60


def test_a_budget_that_is_used_up_is_said_and_leaks_no_place() -> None:
    world = World(5)
    runtime = world.runtime()
    budget = RequestBudget(runtime, requests_per_s=1.0, in_flight_max=1, waiting_max=4)
    store = BudgetedStore(world.bucket, runtime, budget)

    async def work() -> None:
        outcomes = await together(runtime, [store.put(f"k{each}", b"x", deadline_s=2.5) for each in range(9)])
        assert sum(not isinstance(each, BaseException) for each in outcomes) == 3
        assert all("budget of 1 requests a second" in str(each) for each in outcomes if isinstance(each, Exception))
        many = start(runtime, store.delete([f"k{each}" for each in range(5000)], deadline_s=60.0))
        await pause(runtime, 1.5)
        many.cancel()
        await pause(runtime, 0.1)
        assert many.outcome.done()
        await store.put("after", b"x", deadline_s=10.0)

    world.run(runtime, work())
    assert budget.in_flight == budget.waiting == 0


def test_counters_tell_requests_bytes_failures_and_latency(tmp_path: Path) -> None:
    world = World(6)
    runtime = world.runtime()
    faulty = FaultyStore(world.bucket, runtime, random.Random(6), StoreFaults())
    store = GuardedStore(faulty, runtime)

    async def work() -> None:
        await store.put("a", bytes(100), deadline_s=9.0)
        await store.put("large", bytes(33 << 20), deadline_s=9.0)
        assert await store.create("c", b"12345678", nonce="12345678", deadline_s=9.0)
        assert not await store.create("c", b"87654321", nonce="87654321", deadline_s=9.0)
        await store.read("a", 10, 20, deadline_s=9.0)
        await store.head("a", deadline_s=9.0)
        await store.delete([f"k{each}" for each in range(2500)], deadline_s=9.0)
        for each in range(1500):
            await world.bucket.put(f"l/{each:04}", b"", deadline_s=9.0)
        assert len([each async for each in store.list("l")]) == 1500
        faulty.faults = StoreFaults(delay_s=0.2, lost=1.0)
        with pytest.raises(StoreFailed):
            await store.head("a", deadline_s=1.0)

    world.run(runtime, work())
    counters = store.counters
    assert counters.requests["put"] == 1 + 3 + 2
    assert (counters.calls["create"], counters.requests["create"]) == (2, 2)
    assert counters.requests["read"] == 1 + 2
    assert counters.requests["delete"] == 3
    assert counters.requests["list"] == 2
    assert counters.written_bytes == 100 + (33 << 20) + 8
    assert counters.read_bytes == 20
    assert counters.failures["StoreUnavailable"] == counters.retries + 1 == counters.calls["head"] - 1
    assert 0 < counters.latency_ns["head"] < 1_000_000_000


def test_what_a_retry_cannot_cure_is_told_at_once() -> None:
    world = World(7)
    runtime = world.runtime()
    world.bucket.bytes_max = 10
    store = RetryingStore(world.bucket, runtime, RetryRules())

    async def work() -> None:
        await store.put("a", bytes(8), deadline_s=9.0)
        await store.put("a", bytes(9), deadline_s=9.0)
        with pytest.raises(StoreFull, match="room"):
            await store.put("b", bytes(2), deadline_s=9.0)
        await store.delete(["a"], deadline_s=9.0)
        await store.put("b", bytes(2), deadline_s=9.0)
        with pytest.raises(ObjectMissing):
            await store.read("a", 0, 1, deadline_s=9.0)

    world.run(runtime, work())
    assert store.counters.retries == 0
    assert world.loop.now < 0.1


def test_signals_are_for_many_waiters_and_count_once() -> None:
    world = World(8)
    runtime = world.runtime()
    signal: Signal[int] = Signal(runtime)

    async def wait() -> int:
        return await signal

    async def work() -> None:
        runtime.call_later(1.0, signal.set, 7)
        assert await together(runtime, [wait() for _ in range(3)]) == [7, 7, 7]
        signal.fail(ValueError())
        assert not signal.cancel()
        assert await signal == 7

    world.run(runtime, work())


def test_nodes_that_failed_together_do_not_come_back_together() -> None:
    world = World(9)
    seen: list[float] = []

    class Down(MemoryStore):
        async def head(self, key: str, *, deadline_s: float) -> Any:
            seen.append(world.loop.now)
            raise StoreUnavailable("503")

    for _ in range(50):
        runtime = world.runtime()
        start(runtime, RetryingStore(Down(), runtime, RetryRules(pause_s=1.0)).head("k", deadline_s=60.0))
    world.loop.run_until(1.1)
    second = sorted(seen[50:100])
    assert len(second) == 50
    assert second[-1] - second[0] > 0.5
