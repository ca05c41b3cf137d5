"""Lag, rates, and the time until retention reaches a position."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.lag.series import DAY_MS, seen, story, window_of

from strandline.lag.figures import NEVER, TopicRetention, figures
from strandline.lag.samples import NO_POSITION, UNKNOWN, Sample, Window


def test_one_look_tells_the_lag_and_no_rates() -> None:
    result = seen(window_of([Sample(0, 40, 10, 100, 2_500)]))
    assert (result.committed, result.lag, result.lag_s) == (40, 60, 2.5)
    assert result.consumed_per_s is None
    assert result.produced_per_s is None


def test_rates_are_those_of_the_window() -> None:
    result = seen(story(seconds=60, written_per_s=120, read_per_s=90, lag=500))
    assert result.consumed_per_s == pytest.approx(90)
    assert result.produced_per_s == pytest.approx(120)


def test_nothing_unread_is_zero_behind_and_lost_never() -> None:
    result = seen(window_of([Sample(0, 100, 0, 100, UNKNOWN)]), TopicRetention(DAY_MS, 1000))
    assert (result.lag, result.lag_s, result.time_to_loss_s) == (0, 0.0, NEVER)


def test_without_a_position_nothing_is_claimed() -> None:
    result = seen(window_of([Sample(0, NO_POSITION, 0, 100)]), TopicRetention(DAY_MS))
    assert (result.committed, result.lag, result.lag_s, result.time_to_loss_s, result.lost) == (
        None,
        None,
        None,
        None,
        0,
    )


def test_a_position_below_the_log_start_has_lost_what_lies_between() -> None:
    result = seen(window_of([Sample(0, 40, 70, 100)]), TopicRetention(DAY_MS))
    assert (result.lost, result.lag, result.time_to_loss_s) == (30, 30, 0.0)


def test_a_position_beyond_the_end() -> None:
    result = seen(window_of([Sample(0, 140, 0, 100)]))
    assert (result.beyond, result.lag) == (40, 0)


def test_who_stands_still_loses_when_the_record_is_too_old() -> None:
    retention = TopicRetention(time_ms=DAY_MS)
    one_look = seen(window_of([Sample(0, 40, 0, 100, 3_600_000)]), retention)
    assert one_look.time_to_loss_s == pytest.approx(23 * 3600)
    watched = seen(story(seconds=60, written_per_s=5, lag=100, age_s=3600), retention)
    assert watched.time_to_loss_s == pytest.approx(23 * 3600 - 60)


def test_who_reads_too_slowly_loses_later() -> None:
    """Two records are written for each one read: the next unread one ages by half a second each second."""
    result = seen(story(seconds=60, written_per_s=100, read_per_s=50, lag=1_000), TopicRetention(time_ms=DAY_MS))
    assert result.lag_s is not None
    assert result.time_to_loss_s == pytest.approx((86_400 - result.lag_s) / 0.5, rel=0.01)


def test_who_gains_on_the_end_never_loses() -> None:
    result = seen(story(seconds=60, written_per_s=50, read_per_s=100, lag=9_000), TopicRetention(time_ms=DAY_MS))
    assert result.time_to_loss_s == NEVER


def test_who_keeps_up_but_for_the_rhythm_of_commits_never_loses() -> None:
    window = story(seconds=100, written_per_s=1_000, read_per_s=995, lag=4_000)
    assert seen(window, TopicRetention(DAY_MS, 10_000_000)).time_to_loss_s == NEVER


def test_by_size_the_bytes_behind_the_position_count() -> None:
    result = seen(story(seconds=60, written_per_s=10, lag=100), TopicRetention(size_bytes=1_000_000))
    # 700 records of 100 bytes are unread by now, and a thousand bytes more each second.
    assert result.time_to_loss_s == pytest.approx((1_000_000 - 70_000) / 1_000)


def test_the_nearer_limit_counts() -> None:
    window = story(seconds=60, written_per_s=10, lag=100, age_s=100)
    by_time = seen(window, TopicRetention(time_ms=DAY_MS)).time_to_loss_s
    by_size = seen(window, TopicRetention(size_bytes=1_000_000)).time_to_loss_s
    assert by_time is not None
    assert by_size is not None
    assert by_size < by_time
    assert seen(window, TopicRetention(DAY_MS, 1_000_000)).time_to_loss_s == by_size


def test_a_limit_of_which_nobody_knows_when_it_strikes_is_not_never() -> None:
    window = window_of([Sample(0, 40, 0, 100, UNKNOWN)])
    assert seen(window, TopicRetention(time_ms=DAY_MS)).time_to_loss_s is None
    assert seen(window, TopicRetention()).time_to_loss_s == NEVER


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("delete", TopicRetention(1000, 2000)),
        ("compact,delete", TopicRetention(1000, 2000)),
        ("delete, compact", TopicRetention(1000, 2000)),
        ("compact", TopicRetention()),
        ("", TopicRetention()),
    ],
)
def test_only_delete_deletes(policy: str, expected: TopicRetention) -> None:
    assert TopicRetention.of(cleanup_policy=policy, retention_ms=1000, retention_bytes=2000) == expected


def test_no_limit_is_minus_one() -> None:
    assert TopicRetention.of(cleanup_policy="delete", retention_ms=-1, retention_bytes=-1) == TopicRetention(None, None)


samples = st.lists(
    st.tuples(
        st.integers(0, 60_000),
        st.integers(NO_POSITION, 100),
        st.integers(0, 50),
        st.integers(0, 100),
        st.integers(UNKNOWN, 100_000),
        st.integers(UNKNOWN, 10_000),
    ),
    min_size=1,
    max_size=40,
)
limits = st.none() | st.integers(0, 200_000)


def any_window(looks: list[tuple[int, int, int, int, int, int]]) -> Window:
    window, at_ms = Window(), 0
    for step_ms, committed, start, length, age_ms, size_bytes in looks:
        at_ms += step_ms
        window.add(Sample(at_ms, committed, start, start + length, age_ms, size_bytes))
    return window


@given(samples, limits, limits)
def test_figures_are_never_absurd(
    looks: list[tuple[int, int, int, int, int, int]], time_ms: int | None, size_bytes: int | None
) -> None:
    window = any_window(looks)
    result = figures(window, TopicRetention(time_ms, size_bytes))
    assert result.lost >= 0
    assert result.beyond >= 0
    assert not (result.lost and result.beyond)
    for figure in (result.lag, result.lag_s, result.time_to_loss_s, result.consumed_per_s, result.produced_per_s):
        # A reset and a log that was created again begin a new window, so no rate is negative.
        assert figure is None or (figure >= 0 and not math.isnan(figure))
    if result.lag is not None:
        assert result.lag <= result.end - result.log_start
    if result.lag == 0 and not result.lost:
        assert result.lag_s == 0
        assert result.time_to_loss_s == NEVER
    if time_ms is None and size_bytes is None and result.committed is not None and not result.lost:
        assert result.time_to_loss_s == NEVER


@given(samples, st.integers(0, 100_000), st.integers(0, 100_000))
def test_a_longer_retention_never_loses_sooner(
    looks: list[tuple[int, int, int, int, int, int]], time_ms: int, longer_ms: int
) -> None:
    window = any_window(looks)
    short = figures(window, TopicRetention(time_ms)).time_to_loss_s
    long = figures(window, TopicRetention(time_ms + longer_ms)).time_to_loss_s
    assert (short is None) == (long is None)
    if short is not None and long is not None:
        assert long >= short
