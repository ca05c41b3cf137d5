"""Where to begin reading, as a person says it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from strandline.cli.common.positions import (
    AtOffset,
    BeforeEnd,
    Earliest,
    Latest,
    Position,
    TimePosition,
    parse_position,
    start_offset,
)

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Earliest()),
        ("Latest", Latest()),
        ("0", AtOffset(0)),
        ("1234", AtOffset(1234)),
        ("-10", BeforeEnd(10)),
        ("@1772366400000", TimePosition(1_772_366_400_000)),
        ("10m", TimePosition(NOW_MS - 600_000)),
        ("10m ago", TimePosition(NOW_MS - 600_000)),
        ("10m-ago", TimePosition(NOW_MS - 600_000)),
        ("2h30m", TimePosition(NOW_MS - 9_000_000)),
        ("1.5s", TimePosition(NOW_MS - 1_500)),
        ("250ms", TimePosition(NOW_MS - 250)),
        ("2026-03-01T12:00:00Z", TimePosition(1_772_366_400_000)),
        ("2026-03-01T13:00:00+01:00", TimePosition(1_772_366_400_000)),
        ("2026-03-01", TimePosition(int(datetime(2026, 3, 1).timestamp() * 1000))),
        ("2026-03-01T12:00:00.123Z", TimePosition(int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1000) + 123)),
    ],
)
def test_says_where(text: str, position: Position) -> None:
    assert parse_position(text, now_ms=NOW_MS) == position


@pytest.mark.parametrize("text", ["", "soon", "1x", "--1", "@", "@x", "2026-13-01", "m10", "10 m"])
def test_says_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="no position"):
        parse_position(text, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("position", "at_time", "start"),
    [
        (Earliest(), None, 100),
        (Latest(), None, 200),
        (AtOffset(150), None, 150),
        (AtOffset(7), None, 100),
        (AtOffset(900), None, 200),
        (BeforeEnd(10), None, 190),
        (BeforeEnd(1000), None, 100),
        (TimePosition(5), 130, 130),
        (TimePosition(5), None, 200),
    ],
)
def test_begins_within_the_log(position: Position, at_time: int | None, start: int) -> None:
    assert start_offset(position, log_start_offset=100, end_offset=200, offset_at_time=at_time) == start
