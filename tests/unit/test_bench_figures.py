"""Figures of the bench and their verdicts."""

import pytest
from bench.figures import Figure, Verdict, at_most, ratio_at_least, ratio_at_most


@pytest.mark.parametrize(
    ("target", "verdict"),
    [(ratio_at_most(0.5), Verdict.REACHED), (ratio_at_least(0.6), Verdict.MISSED), (None, Verdict.SHOWN)],
)
def test_scenarios_give_target_and_note_by_position(target, verdict):
    figure = Figure("p99 during it", "ms", [1.0, 2.0, 3.0], [4.0], "idle", target, "kafka: 2x")
    assert (figure.verdict, figure.ratio, figure.note) == (verdict, 0.5, "kafka: 2x")
    assert figure.before_ratio != figure.before_ratio  # Not a number: no earlier commit was measured.


def test_target_of_a_ratio_is_unknown_without_the_other_half():
    assert Figure("CPU", "us", [1.0], target=ratio_at_most(1.0)).verdict is Verdict.UNKNOWN
    assert Figure("CPU", "us", [1.0], target=at_most(1.0)).verdict is Verdict.REACHED
