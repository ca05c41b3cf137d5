"""A ring of values at equal steps: what it keeps, what it drops, what it takes."""

from __future__ import annotations

import math
from random import Random

import pytest

from strandline.observability.metric_ring import CHUNK_POINTS, MetricRing, quantile

STEP_MS = 10_000


def ring(points_max: int = 2 * CHUNK_POINTS, series_max: int = 3) -> MetricRing:
    return MetricRing(step_ms=STEP_MS, points_max=points_max, series_max=series_max)


def values(of: MetricRing, now_step: int, name: str = "a", ago_steps: int = 10**6) -> list[float | None]:
    _, found = of.read(now_step * STEP_MS, max(0, now_step - ago_steps) * STEP_MS, [name])
    return [None if math.isnan(each) else each for each in found.get(name, ())]


def test_values_come_back_at_their_steps_with_gaps_between() -> None:
    kept = ring()
    for step, value in ((CHUNK_POINTS - 2, 1.0), (CHUNK_POINTS + 1, 2.0)):
        kept.note(step * STEP_MS, {"a": value})
    first_ms, found = kept.read((CHUNK_POINTS + 2) * STEP_MS, (CHUNK_POINTS - 2) * STEP_MS, None)
    assert first_ms == (CHUNK_POINTS - 2) * STEP_MS
    assert [None if math.isnan(each) else each for each in found["a"]] == [1.0, None, None, 2.0, None]


def test_it_holds_a_full_turn_and_no_more_than_its_bound() -> None:
    kept = ring()
    steps = 10 * CHUNK_POINTS + 17
    for step in range(steps):
        kept.note(step * STEP_MS, {name: float(step) for name in "abcdef"})
        assert kept.size_bytes <= kept.size_bytes_max
    # As in the model: whole chunks are dropped, and never one that is needed.
    found = values(kept, steps - 1)
    assert found == [float(step) for step in range(steps - len(found), steps)]
    assert len(found) >= 2 * CHUNK_POINTS
    assert values(kept, steps - 1, "d") == [], "the fourth series is one too many"


def test_the_oldest_that_is_asked_for_is_the_first() -> None:
    kept = ring()
    for step in range(100):
        kept.note(step * STEP_MS, {"a": float(step)})
    assert values(kept, 99, ago_steps=4) == [95.0, 96.0, 97.0, 98.0, 99.0]
    assert values(kept, 102, ago_steps=4) == [98.0, 99.0, None, None, None]


def test_series_are_chosen_by_the_beginning_of_their_names() -> None:
    kept = ring(series_max=9)
    kept.note(0, {"topic/a/bytes_in": 1.0, "topic/ab/bytes_in": 2.0, "group/a/lag": 3.0})
    assert set(kept.read(0, 0, ["topic/a/"])[1]) == {"topic/a/bytes_in"}
    assert set(kept.read(0, 0, ["topic/a/", "group/"])[1]) == {"topic/a/bytes_in", "group/a/lag"}
    assert set(kept.read(0, 0, [])[1]) == set()
    assert len(kept.read(0, 0, None)[1]) == 3


def test_an_empty_ring_and_a_ring_that_slept() -> None:
    kept = ring()
    assert kept.read(50 * STEP_MS, 0, None)[1] == {}
    assert kept.size_bytes == 0
    kept.note(0, {"a": 1.0})
    kept.note(100 * CHUNK_POINTS * STEP_MS, {"a": 2.0})
    # A laptop was closed: what is older than the ring is asked for, and is not made up.
    found = values(kept, 100 * CHUNK_POINTS, ago_steps=3)
    assert found == [None, None, None, 2.0]


def test_a_quantile_of_buckets_is_within_a_factor_of_two_of_the_true_one() -> None:
    random = Random(3)
    times = sorted(int(random.lognormvariate(13, 1.5)) for _ in range(5_000))
    counts = [0] * 64
    for each in times:
        counts[each.bit_length()] += 1
    for share in (0.01, 0.5, 0.9, 0.99, 1.0):
        true = times[min(len(times) - 1, int(share * len(times)))]
        assert true / 2 <= quantile(counts, share) <= 2 * true
    assert math.isnan(quantile([0] * 64, 0.5))
    assert quantile([0, 0, 0, 4], 1.0) == pytest.approx(8.0)
