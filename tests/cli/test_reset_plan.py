"""Where a reset leads, and what it costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cli.group.reset_plan import (
    FromFile,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    parse_csv,
    parse_duration,
    parse_selection,
    plan_lines,
    planned,
)
from strandline.cli.group.state import partitions_words

PLACE = ("t", 0)
OFFSETS = st.integers(0, 50)
TARGETS = st.one_of(
    st.just(ToEarliest()),
    st.just(ToLatest()),
    st.builds(ToOffset, st.integers(0, 80)),
    st.builds(ToTime, st.just(0)),
    st.builds(ShiftBy, st.integers(-80, 80)),
    st.builds(FromFile, st.fixed_dictionaries({PLACE: st.integers(0, 80)})),
)


@given(TARGETS, OFFSETS, OFFSETS, st.none() | st.integers(0, 120), st.none() | OFFSETS)
def test_a_move_stays_within_the_log_and_counts_what_it_costs(
    target: Target, start: int, size: int, before: int | None, at_time: int | None
) -> None:
    end = start + size
    move = planned(target, PLACE, before=before, log_start_offset=start, end_offset=end, offset_at_time=at_time)
    if move is None:
        assert isinstance(target, ShiftBy)
        assert before is None
        return
    assert start <= move.after <= end
    if before is None:
        assert (move.reread, move.skipped) == (0, 0)
        return
    # What the group would still have read, and what it reads now, among the records that are there.
    there = set(range(start, end))
    now, then = {o for o in there if o >= before}, {o for o in there if o >= move.after}
    assert move.skipped == len(now - then)
    assert move.reread == len(then - now)


def test_the_plan_in_words() -> None:
    moves = [
        planned(ToOffset(2), ("t", number), before=before, log_start_offset=1, end_offset=9)
        for number, before in enumerate([5, None, 2, 1])
    ]
    assert plan_lines("g", [move for move in moves if move is not None], is_new=False) == [
        "move group g in 4 partitions: up to 3 records will be read again and 1 record will be skipped",
        "  t-0: 5 -> 2, 3 records will be read again",
        "  t-1: no position -> 2, 7 records to read from there on",
        "  t-2: 2 -> 2, stays where it is",
        "  t-3: 1 -> 2, 1 record will be skipped",
    ]


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT2H30M", 9_000_000),
        ("P1D", 86_400_000),
        ("p7dt1s", 604_801_000),
        ("PT1.5S", 1_500),
        ("2h30m", 9_000_000),
        ("90s", 90_000),
        ("P", None),
        ("PT", None),
        ("PT2X", None),
        ("soon", None),
        ("", None),
    ],
)
def test_durations(text: str, milliseconds: int | None) -> None:
    assert parse_duration(text) == milliseconds


def test_files() -> None:
    lines = ["t,0,5", "", '"t",1,6', "g,u,2,7", "other,u,2,8"]
    assert parse_csv(lines, "g") == {("t", 0): 5, ("t", 1): 6, ("u", 2): 7}
    for wrong in ("t,0", "t,x,5", "t,0,-5", ",0,5", "a,b,c,d,e"):
        with pytest.raises(ValueError, match="line 2"):
            parse_csv(["t,9,9", wrong], "g")
    with pytest.raises(ValueError, match="twice"):
        parse_csv(["t,9,9", "t,9,8"], "g")


def test_selections() -> None:
    assert parse_selection("orders") == ("orders", None)
    assert parse_selection("orders:2,0,2") == ("orders", [0, 2])
    for wrong in ("orders:", ":1", "orders:a", "orders:1,", "orders:-1"):
        with pytest.raises(ValueError, match="is not TOPIC"):
            parse_selection(wrong)


def test_partitions_in_words() -> None:
    places = [("t", 2), ("t", 0), ("t", 1), ("t", 5), ("a", 7)]
    assert partitions_words(places) == "a-7, t-0..2, t-5"
    assert partitions_words([]) == "nothing"
    assert partitions_words(None) == "unknown"
