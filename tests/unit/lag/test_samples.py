"""The window of a position: what it keeps, what it forgets, and that idle positions cost nothing to keep."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.lag.series import window_of

from strandline.lag.samples import SAMPLES_MAX, WINDOW_MS, Sample, Window


def test_a_position_at_which_nothing_happens_is_kept_as_two_samples() -> None:
    window = window_of(Sample(at, 5, 0, 9, at) for at in range(0, 100_000, 1_000))
    assert [sample.at_ms for sample in window.samples] == [0, 99_000]
    assert window.waiting_ms() == 99_000


def test_the_window_is_covered_whole_and_not_more() -> None:
    window = window_of(Sample(at, at, 0, at + 10, 1) for at in range(0, 10 * WINDOW_MS, 10_000))
    assert WINDOW_MS <= window.span_ms < WINDOW_MS + 10_000


def test_who_looks_often_sees_a_shorter_window() -> None:
    window = window_of(Sample(at, at, 0, at + 10, 1) for at in range(10 * SAMPLES_MAX))
    assert len(window.samples) == SAMPLES_MAX


def test_a_reset_begins_a_new_story() -> None:
    window = window_of([Sample(0, 50, 0, 100), Sample(10_000, 60, 0, 100), Sample(20_000, 10, 0, 100)])
    assert [sample.committed for sample in window.samples] == [10]


def test_a_topic_that_was_made_anew_begins_a_new_story() -> None:
    window = window_of([Sample(0, 50, 0, 100), Sample(10_000, 50, 0, 60)])
    assert len(window.samples) == 1


def test_a_clock_that_was_set_back_begins_a_new_story() -> None:
    window = window_of([Sample(50_000, 50, 0, 100), Sample(10_000, 50, 0, 100)])
    assert window.span_ms == 0


def test_waiting_begins_when_there_is_something_to_read() -> None:
    window = window_of([Sample(0, 50, 0, 50), Sample(60_000, 50, 0, 50), Sample(70_000, 50, 0, 51)])
    assert window.waiting_ms() == 0
    window.add(Sample(90_000, 50, 0, 51))
    assert window.waiting_ms() == 20_000
    window.add(Sample(100_000, 51, 0, 51))
    assert window.waiting_ms() == 0


def test_waiting_begins_anew_with_each_commit() -> None:
    window = window_of([Sample(0, 50, 0, 100), Sample(60_000, 51, 0, 100), Sample(70_000, 51, 0, 100)])
    assert window.waiting_ms() == 10_000


def test_when_the_end_passed_an_offset() -> None:
    window = window_of([Sample(0, 0, 0, 100), Sample(10_000, 0, 0, 200), Sample(20_000, 0, 0, 200)])
    assert window.passed_at_ms(150) == 5_000
    assert window.passed_at_ms(100) == 0
    assert window.passed_at_ms(99) is None
    assert window.passed_at_ms(200) is None


offsets = st.integers(0, 50)


@given(st.lists(st.tuples(st.integers(0, 40_000), offsets, offsets, offsets), min_size=1, max_size=100))
def test_whatever_comes_the_last_sample_stays_and_times_go_up(looks: list[tuple[int, int, int, int]]) -> None:
    window = Window()
    at_ms = 0
    for step_ms, committed, start, end in looks:
        at_ms += step_ms
        window.add(Sample(at_ms, committed, start, max(start, end)))
        assert window.last.at_ms == at_ms
        assert window.last.committed == committed
        times = [sample.at_ms for sample in window.samples]
        assert times == sorted(times)
        assert len(times) <= SAMPLES_MAX
        assert 0 <= window.waiting_ms() <= at_ms
        if len(times) > 2:
            assert times[1] > at_ms - WINDOW_MS
