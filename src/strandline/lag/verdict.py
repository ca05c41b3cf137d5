"""Judges a position in a word and a sentence, in the manner of Burrow.

The trend of the lag counts, not its size. A busy reader is never quite at the end, so a lag alone is no problem; one
that only grows, or that no member works off, is. A verdict that needs time to be certain is not given before that time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from strandline.lag.figures import NEVER, Figures

RECENT_S: Final = 10.0
"""A reader whose next record is younger keeps up, because clients commit every five seconds by default."""
TREND_SPAN_MS: Final = 30_000
"""How long a lag must grow before it counts as falling behind."""
STALLED_AFTER_MS: Final = 60_000
"""How long a position may stand still with records unread before its reader counts as stalled."""
LOSS_NEAR_S: Final = 86_400.0
"""A loss that is nearer than this becomes the verdict; a later one is only a figure."""


class LagVerdict(StrEnum):
    """The state of a position, from good to bad in the order of `worst`."""

    OK = "ok"
    NO_POSITION = "no position"
    CATCHING_UP = "catching up"
    BEHIND = "behind"
    FALLING_BEHIND = "falling behind"
    STALLED = "stalled"
    STOPPED = "stopped"
    BEYOND_END = "beyond the end"
    WILL_LOSE_DATA = "will lose data"
    LOST_DATA = "lost data"

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS: Final = {verdict: rank for rank, verdict in enumerate(LagVerdict)}


@dataclass(frozen=True, slots=True)
class LagJudgement:
    """A verdict with its reason."""

    verdict: LagVerdict
    why: str
    """One sentence without a full stop, for people."""


def judge(seen: Figures, *, is_read: bool | None) -> LagJudgement:
    """Judge a position. `is_read` says whether a member of the group owns the partition; None means not known."""
    if seen.committed is None:
        return LagJudgement(LagVerdict.NO_POSITION, "nothing was committed yet")
    if seen.lost:
        return LagJudgement(LagVerdict.LOST_DATA, f"already lost {_records(seen.lost)}: deleted before they were read")
    if seen.beyond:
        return LagJudgement(
            LagVerdict.BEYOND_END,
            f"the position lies {_records(seen.beyond)} beyond the end: the log was truncated or created again since",
        )
    trend = _trend(seen, is_read)
    loss_s = seen.time_to_loss_s
    is_in_trouble = trend.verdict.rank >= LagVerdict.BEHIND.rank
    if is_in_trouble and loss_s is not None and loss_s < LOSS_NEAR_S:
        when = "any moment" if loss_s < 1 else f"in {span(loss_s)}"
        return LagJudgement(
            LagVerdict.WILL_LOSE_DATA, f"{trend.why}; retention deletes unread records {when} if it goes on like this"
        )
    return trend


def _trend(seen: Figures, is_read: bool | None) -> LagJudgement:
    """Judge the trend of the lag."""
    assert seen.lag is not None
    if seen.lag == 0:
        return LagJudgement(LagVerdict.OK, "caught up" + _undecided(seen, " with what is decided"))
    behind = f"{_records(seen.lag)} unread" + _undecided(seen)
    if is_read is False and not seen.consumed_per_s:
        # A client that commits without being a member moves the position, too.
        return LagJudgement(LagVerdict.STOPPED, f"{behind}, and no member reads the partition")
    if seen.waiting_ms >= STALLED_AFTER_MS:
        return LagJudgement(
            LagVerdict.STALLED, f"{behind}, and nothing was committed for {span(seen.waiting_ms / 1000)} or longer"
        )
    behind_s = _behind_s(seen)
    if behind_s is not None and behind_s <= RECENT_S:
        return LagJudgement(LagVerdict.OK, f"{span(behind_s)} behind, which commits now and then explain")
    if seen.lag_trend < 0:
        return LagJudgement(LagVerdict.CATCHING_UP, f"{behind}, and fewer than before{_rates(seen)}")
    if seen.trend_ms >= TREND_SPAN_MS and seen.lag_trend > 0:
        return LagJudgement(LagVerdict.FALLING_BEHIND, f"{behind}, and more all the time{_rates(seen)}")
    return LagJudgement(LagVerdict.BEHIND, behind + _rates(seen))


def _behind_s(seen: Figures) -> float | None:
    """Return the age of the next record. If it is unknown or in the future, return how long the lag took to write."""
    assert seen.lag is not None
    if not seen.lag_s and seen.produced_per_s:
        return seen.lag / seen.produced_per_s
    return seen.lag_s


def _rates(seen: Figures) -> str:
    if seen.consumed_per_s is None or seen.produced_per_s is None:
        return ""
    return f": {rate(seen.consumed_per_s)} read, {rate(seen.produced_per_s)} written"


def _undecided(seen: Figures, before: str = "") -> str:
    """Describe records that a read_committed reader cannot get before their transactions end."""
    if not seen.undecided:
        return ""
    return (
        f"{before}, and {_records(seen.undecided)} {'waits' if seen.undecided == 1 else 'wait'} for open transactions"
    )


def _records(number: int) -> str:
    return f"{number:,} record{'' if number == 1 else 's'}"


def worst(verdicts: Iterable[LagVerdict]) -> LagVerdict:
    return max(verdicts, key=lambda verdict: verdict.rank, default=LagVerdict.OK)


def rate(per_s: float) -> str:
    """Format `1234.5` as `1,234/s`, and slow rates by the minute or the hour, so that they do not show as zero."""
    for factor, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if abs(per_s) * factor >= 1 or not per_s or unit == "h":
            number = per_s * factor
            return f"{number:,.0f}/{unit}" if abs(number) >= 10 or number == int(number) else f"{number:.1f}/{unit}"
    raise AssertionError("the last unit takes everything")


def span(seconds: float) -> str:
    """Format a duration by its two largest units."""
    if seconds == NEVER:
        return "never"
    if seconds < 10:
        return f"{seconds:.1f} s" if seconds % 1 else f"{seconds:.0f} s"
    left = round(seconds)
    parts = []
    for size, unit in ((604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number:,} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)
