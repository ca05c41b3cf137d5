"""A limit on bytes a second: what may begin when."""

from __future__ import annotations

from tests.simulator.world.loop import SimLoop
from tests.simulator.world.runtime import SimHost, SimRuntime

from strandline.tiers.store.byte_rate import ByteLimit, ByteRate
from strandline.tiers.store.waiting import start

MIB = 1 << 20


def test_transfers_beside_each_other_keep_the_limit_together() -> None:
    loop, passed = SimLoop(1), list[float]()
    runtime = SimRuntime(SimHost(loop, "host"), 1)
    rate = ByteRate(runtime, lambda: ByteLimit(MIB, 10))

    async def transfer() -> None:
        while loop.now < 100.0:
            await rate.wait()
            rate.count(4 * MIB)
            passed.append(loop.now)

    for _ in range(5):
        start(runtime, transfer())
    loop.run_until(101.0)
    assert sum(at == 0.0 for at in passed) == 3, "a window of ten seconds passes at once, the last transfer as a whole"
    # 100 seconds and the window; each waiter may begin one transfer too many at its end.
    assert 100 + 10 <= 4 * len(passed) <= 100 + 10 + 4 * 5


def test_a_limit_that_is_raised_counts_within_a_second() -> None:
    loop, ended = SimLoop(2), list[float]()
    runtime = SimRuntime(SimHost(loop, "host"), 1)
    limits = [ByteLimit(1, 1)]
    rate = ByteRate(runtime, lambda: limits[0])
    rate.count(MIB)
    start(runtime, rate.wait(), lambda *_: ended.append(loop.now))
    loop.run_until(50.0)
    assert not ended
    limits[0] = ByteLimit(1 << 62, 11)
    loop.run_until(52.0)
    assert ended
    assert ended[0] <= 51.1
