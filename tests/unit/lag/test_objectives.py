"""Lag objectives: the setting, there and back, and whether a position meets one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.config.topic_config import TopicConfig
from strandline.lag.figures import Figures, TopicRetention, figures
from strandline.lag.objectives import LagObjective, objectives_of, objectives_text
from strandline.lag.samples import Sample, Window

GROUPS = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters=","), min_size=1, max_size=30
).filter(lambda name: name == name.strip())
OBJECTIVES = st.builds(LagObjective, GROUPS, st.integers(0, 10**12)) | st.builds(
    LagObjective, GROUPS, st.none(), st.integers(0, 10**12)
)


@given(st.lists(OBJECTIVES, unique_by=lambda each: each.group, max_size=5))
def test_the_setting_comes_back(objectives: list[LagObjective]) -> None:
    text = objectives_text(objectives)
    assert sorted(objectives_of(text), key=str) == sorted(objectives, key=str)
    assert TopicConfig().with_overrides({"strandline.lag.objectives": text}).lag_objectives == tuple(
        each for each in text.split(",") if each
    )


def seen(lag_s: float | None, lag: int = 10) -> Figures:
    window = Window()
    window.add(Sample(0, 90, 0, 100, 5_000))
    return replace(figures(window, TopicRetention()), lag=lag, lag_s=lag_s)


@pytest.mark.parametrize(
    ("objective", "figures_seen", "is_met"),
    [
        (LagObjective("g", 5_000), seen(5.0), True),
        (LagObjective("g", 5_000), seen(5.1), False),
        (LagObjective("g", 5_000), seen(None), None),
        (LagObjective("g", 5_000), seen(None, lag=0), True),
        (LagObjective("g", None, 10), seen(99.0), True),
        (LagObjective("g", None, 9), seen(0.0), False),
        (LagObjective("g", None, 10), replace(seen(0.0), lost=1), False),
        (LagObjective("g", None, 10), replace(seen(0.0), lag=None), None),
    ],
)
def test_whether_it_is_met(objective: LagObjective, figures_seen: Figures, is_met: bool | None) -> None:
    assert objective.is_met(figures_seen) is is_met


def test_words_of_another_form_are_left_out() -> None:
    assert objectives_of("a=1,b,=3,c=2h") == [LagObjective("a", None, 1)]
