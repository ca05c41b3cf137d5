"""How far a group is behind, in a sentence and as plain data, for `group lag` and the console."""

from __future__ import annotations

import time
from typing import Any

from strandline.cli.common.plain_words import count
from strandline.cli.group.lag_reading import GroupLag, PositionLag
from strandline.lag.figures import NEVER
from strandline.lag.verdict import LagVerdict


def verdict_words(group: GroupLag) -> str:
    at = group.worst_position
    if at is None:
        leaderless = [each.name for each in group.positions]
        return f"unknown: {', '.join(leaderless)} without a leader" if leaderless else "no positions: nothing was read"
    assert at.judgement is not None
    if group.verdict is LagVerdict.OK:
        undecided = f", {count(group.undecided, 'record')} undecided" if group.undecided else ""
        return (f"ok: {count(group.lag, 'record')} unread" if group.lag else "ok: caught up") + undecided
    return f"{group.verdict}: {at.name}: {at.judgement.why}"


def furthest_behind_s(group: GroupLag) -> float | None:
    """Return the age of the oldest record that is unread; None if no age is known."""
    ages = (each.figures.lag_s for each in group.positions if each.figures is not None)
    return max((age for age in ages if age is not None), default=None)


def soonest_loss_s(group: GroupLag) -> float | None:
    """Return the time until retention deletes an unread record; None if it is unknown everywhere."""
    losses = (each.figures.time_to_loss_s for each in group.positions if each.figures is not None)
    return min((loss for loss in losses if loss is not None), default=None)


def position_object(group: GroupLag, position: PositionLag) -> dict[str, Any]:
    seen, judgement, reader = position.figures, position.judgement, position.reader
    told: dict[str, Any] = {
        "time_ms": int(time.time() * 1000),
        "group": group.group_id,
        "state": group.group.state,
        "topic": position.topic,
        "partition": position.partition,
        "member_id": None if reader is None else reader.member_id,
        "client_id": None if reader is None else reader.client_id,
        "host": None if reader is None else reader.host.removeprefix("/"),
    }
    if seen is None or judgement is None:
        return told | {"error": "the partition has no leader"}
    if position.objective is not None:
        told |= {
            "objective_seconds": None if position.objective.limit_ms is None else position.objective.limit_ms / 1000,
            "objective_records": position.objective.limit_records,
            "objective_met": position.objective.is_met(seen),
        }
    return told | {
        "committed_offset": seen.committed,
        "log_start_offset": seen.log_start,
        "high_watermark": seen.end,
        "lag": seen.lag,
        "lag_is_exact": position.is_exact,
        "undecided": seen.undecided,
        "lag_seconds": _rounded(seen.lag_s),
        "consumed_per_second": _rounded(seen.consumed_per_s),
        "produced_per_second": _rounded(seen.produced_per_s),
        "window_seconds": seen.span_ms / 1000,
        # JSON has no infinity: null means never if `loses_data` is false, and unknown if that is null.
        "loses_data": None if seen.time_to_loss_s is None else seen.time_to_loss_s != NEVER,
        "seconds_to_loss": None if seen.time_to_loss_s in (None, NEVER) else _rounded(seen.time_to_loss_s),
        "lost_records": seen.lost,
        "verdict": str(judgement.verdict),
        "why": judgement.why,
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)
