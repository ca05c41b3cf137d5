"""Verdicts over stories: what a person who watches would say of each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.lag.series import DAY_MS, judged, story, window_of
from tests.unit.lag.test_figures import any_window, samples

from strandline.lag.figures import NEVER, TopicRetention, figures
from strandline.lag.samples import NO_POSITION, UNKNOWN, Sample
from strandline.lag.verdict import LagVerdict, judge, rate, span, worst


def test_caught_up_is_ok() -> None:
    assert judged(story(seconds=60)).verdict is LagVerdict.OK


def test_caught_up_is_ok_though_nobody_reads() -> None:
    assert judged(story(seconds=60), is_read=False).verdict is LagVerdict.OK


def test_markers_of_transactions_are_nothing_to_read() -> None:
    looks = [Sample(at * 10_000, 50, 0, 51, 0, 0, records=0) for at in range(20)]
    judgement = judged(window_of(looks), is_read=False)
    assert (judgement.verdict, judgement.why) == (LagVerdict.OK, "caught up")
    looks.append(Sample(200_000, 50, 0, 52, 1_000))
    assert judged(window_of(looks)).verdict is LagVerdict.OK, "it waits since now, not since the marker came"


def test_what_a_commit_every_five_seconds_leaves_unread_is_ok() -> None:
    assert judged(story(seconds=60, written_per_s=1_000, read_per_s=1_000, lag=5_000)).verdict is LagVerdict.OK


def test_a_lag_that_only_grows_is_falling_behind() -> None:
    judgement = judged(story(seconds=60, written_per_s=100, read_per_s=60, lag=2_000))
    assert judgement.verdict is LagVerdict.FALLING_BEHIND
    assert judgement.why == "4,400 records unread, and more all the time: 60/s read, 100/s written"


def test_times_that_lie_ahead_deceive_nobody() -> None:
    looks = [Sample(at * 10_000, at * 100, 0, at * 10_000, 0) for at in range(1, 10)]
    assert judged(window_of(looks)).verdict is LagVerdict.FALLING_BEHIND


def test_where_no_time_is_known_the_rate_tells() -> None:
    looks = [Sample(at * 10_000, at * 10_000 - 4_000, 0, at * 10_000, UNKNOWN) for at in range(1, 10)]
    assert judged(window_of(looks)).verdict is LagVerdict.OK


def test_a_lag_that_grew_for_a_moment_is_only_behind() -> None:
    assert judged(story(seconds=20, written_per_s=100, read_per_s=60, lag=2_000)).verdict is LagVerdict.BEHIND


def test_who_was_caught_up_at_first_falls_behind_from_then_on() -> None:
    looks = [Sample(0, 0, 0, 0, 0), Sample(10_000, 0, 0, 0, 0)]
    looks += [Sample(at * 10_000, at * 100, 0, at * 1_000, at * 9_000) for at in range(2, 5)]
    assert judged(window_of(looks)).verdict is LagVerdict.BEHIND, "that was twenty seconds"
    looks += [Sample(50_000, 500, 0, 5_000, 45_000)]
    assert judged(window_of(looks)).verdict is LagVerdict.FALLING_BEHIND


def test_commits_in_steps_do_not_hide_that_it_falls_behind() -> None:
    unread = [1_000, 1_400, 1_200, 1_600, 1_300, 1_800]
    looks = [Sample(at * 10_000, at * 500, 0, at * 500 + lag, 60_000) for at, lag in enumerate(unread)]
    assert judged(window_of(looks)).verdict is LagVerdict.FALLING_BEHIND


def test_a_lag_that_shrank_in_between_is_not_falling_behind() -> None:
    committed = [0, 500, 5_000, 5_100, 5_200, 5_300]
    looks = [Sample(at * 10_000, at_offset, 0, 5_000 + at * 1_100, 60_000) for at, at_offset in enumerate(committed)]
    assert judged(window_of(looks)).verdict is LagVerdict.BEHIND


def test_a_lag_that_shrinks_is_catching_up() -> None:
    judgement = judged(story(seconds=60, written_per_s=10, read_per_s=100, lag=20_000))
    assert judgement.verdict is LagVerdict.CATCHING_UP
    assert "100/s read, 10/s written" in judgement.why


def test_a_member_that_commits_nothing_is_stalled() -> None:
    judgement = judged(story(seconds=60, written_per_s=10, lag=50, age_s=90))
    assert judgement.verdict is LagVerdict.STALLED
    assert judgement.why == "650 records unread, and nothing was committed for 1 min or longer"


def test_stalled_is_not_said_too_early() -> None:
    assert judged(story(seconds=50, written_per_s=10, lag=50, age_s=90)).verdict is not LagVerdict.STALLED


def test_a_record_after_a_long_silence_is_no_stall() -> None:
    looks = [Sample(0, 50, 0, 50, 0), Sample(3_600_000, 50, 0, 50, 0), Sample(3_610_000, 50, 0, 51, 4_000)]
    assert judged(window_of(looks)).verdict is LagVerdict.OK


def test_unread_and_nobody_reads_is_stopped_at_the_first_look() -> None:
    judgement = judged(window_of([Sample(0, 40, 0, 100, 1_000)]), is_read=False)
    assert judgement.verdict is LagVerdict.STOPPED
    assert judgement.why == "60 records unread, and no member reads the partition"


def test_who_commits_without_being_a_member_has_not_stopped() -> None:
    assert judged(story(seconds=60, written_per_s=10, read_per_s=100, lag=20_000), is_read=False).verdict is (
        LagVerdict.CATCHING_UP
    )


def test_while_it_is_not_known_who_reads_nobody_has_stopped() -> None:
    assert judged(window_of([Sample(0, 40, 0, 100, 60_000)]), is_read=None).verdict is LagVerdict.BEHIND


def test_a_loss_that_is_near_is_the_verdict() -> None:
    looks = [Sample(0, 40, 0, 100, DAY_MS - 3_600_000)]
    judgement = judged(window_of(looks), is_read=False, retention=TopicRetention(DAY_MS))
    assert judgement.verdict is LagVerdict.WILL_LOSE_DATA
    assert judgement.why == (
        "60 records unread, and no member reads the partition; "
        "retention deletes unread records in 1 h if it goes on like this"
    )


def test_a_loss_that_is_far_is_only_a_figure() -> None:
    looks = [Sample(0, 40, 0, 100, 3_600_000)]
    assert judged(window_of(looks), is_read=False, retention=TopicRetention(7 * DAY_MS)).verdict is LagVerdict.STOPPED


def test_who_keeps_up_is_not_told_of_a_short_retention() -> None:
    window = story(seconds=60, written_per_s=1_000, read_per_s=1_000, lag=5_000)
    assert judged(window, retention=TopicRetention(time_ms=60_000)).verdict is LagVerdict.OK
    one_look = window_of([Sample(0, 50, 0, 52, 5_000)])
    assert judged(one_look, retention=TopicRetention(time_ms=60_000)).verdict is LagVerdict.OK


def test_what_is_lost_is_said_first() -> None:
    judgement = judged(window_of([Sample(0, 40, 70, 100)]))
    assert judgement.verdict is LagVerdict.LOST_DATA
    assert judgement.why == "already lost 30 records: deleted before they were read"


def test_a_position_beyond_the_end() -> None:
    assert judged(window_of([Sample(0, 101, 0, 100)])).verdict is LagVerdict.BEYOND_END


def test_no_position() -> None:
    assert judged(window_of([Sample(0, NO_POSITION, 0, 100)])).verdict is LagVerdict.NO_POSITION


def test_a_group_is_as_its_worst_partition() -> None:
    assert worst([LagVerdict.OK, LagVerdict.STALLED, LagVerdict.BEHIND]) is LagVerdict.STALLED
    assert worst([]) is LagVerdict.OK


@given(samples, st.sampled_from([True, False, None]), st.none() | st.integers(0, 10**9))
def test_every_position_gets_a_verdict_and_a_sentence(
    looks: list[tuple[int, int, int, int, int, int]], is_read: bool | None, time_ms: int | None
) -> None:
    seen = figures(any_window(looks), TopicRetention(time_ms))
    judgement = judge(seen, is_read=is_read)
    assert judgement.why
    if judgement.verdict is LagVerdict.OK:
        assert not seen.lost
        assert not seen.beyond
        assert seen.lag == 0 or seen.lag_s is None or seen.lag_s <= 10
    if judgement.verdict is LagVerdict.WILL_LOSE_DATA:
        assert seen.time_to_loss_s is not None
        assert seen.time_to_loss_s < 86_400
    if is_read:
        assert judgement.verdict is not LagVerdict.STOPPED


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.25, "0.2 s"),
        (4.5, "4.5 s"),
        (59.6, "1 min"),
        (90, "1 min 30 s"),
        (3600, "1 h"),
        (3601, "1 h"),
        (90_000, "1 d 1 h"),
        (8 * 86_400, "1 w 1 d"),
        (NEVER, "never"),
    ],
)
def test_spans_in_words(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("per_s", "words"),
    [(0, "0/s"), (1234.5, "1,234/s"), (1.5, "1.5/s"), (0.5, "30/min"), (0.001, "3.6/h"), (2, "2/s")],
)
def test_rates_in_words(per_s: float, words: str) -> None:
    assert rate(per_s) == words
