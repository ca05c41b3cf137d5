"""What a scenario returns: figures, each with what it is held against and the target it should reach."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from bench.measure import median


class Verdict(StrEnum):
    REACHED = "reached"
    MISSED = "missed"
    SHOWN = "shown"
    """There is no target: the figure is there to be seen beside the others."""
    UNKNOWN = "not measured"
    """A target without the other half of its ratio, for example because Kafka could not be started."""


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on the figure itself, or on its ratio to what stands beside it."""

    bound: float
    at_most: bool
    of_ratio: bool

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        return f"{sign} {self.bound:g}{'x' if self.of_ratio else ''}"

    def holds(self, number: float) -> bool:
        return number <= self.bound if self.at_most else number >= self.bound


def ratio_at_most(bound: float) -> Target:
    return Target(bound, at_most=True, of_ratio=True)


def ratio_at_least(bound: float) -> Target:
    return Target(bound, at_most=False, of_ratio=True)


def at_most(bound: float) -> Target:
    return Target(bound, at_most=True, of_ratio=False)


def at_least(bound: float) -> Target:
    return Target(bound, at_most=False, of_ratio=False)


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the report: a sample per round for us, and a sample per round for what stands beside us."""

    name: str
    unit: str
    samples: Sequence[float]
    beside: Sequence[float] = ()
    beside_name: str = "kafka"
    target: Target | None = None
    note: str = ""
    """What a reader must know to trust the figure: which client, which part failed."""
    before: Sequence[float] = ()
    """Samples of an earlier commit in the same run (`--before`)."""

    @property
    def value(self) -> float:
        return median(self.samples)

    @property
    def beside_value(self) -> float:
        return median(self.beside)

    @property
    def ratio(self) -> float:
        return _ratio(self.samples, self.beside)

    @property
    def before_ratio(self) -> float:
        """The ratio to the earlier commit: above 1 is more than before."""
        return _ratio(self.samples, self.before)

    @property
    def ratio_spread(self) -> tuple[float, float]:
        """The smallest and largest ratio of a single round: how far noise alone moves the figure."""
        ratios = [ours / theirs for ours, theirs in zip(self.samples, self.beside, strict=False) if theirs]
        return (min(ratios), max(ratios)) if ratios else (math.nan, math.nan)

    @property
    def verdict(self) -> Verdict:
        if self.target is None:
            return Verdict.SHOWN
        number = self.ratio if self.target.of_ratio else self.value
        if math.isnan(number):
            return Verdict.UNKNOWN
        return Verdict.REACHED if self.target.holds(number) else Verdict.MISSED


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    if not ours or not theirs or median(theirs) == 0:
        return math.nan
    return median(ours) / median(theirs)


@dataclass(slots=True)
class Samples:
    """Per broker and metric, one number per measured round."""

    by_broker: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, broker: str, measured: dict[str, float]) -> None:
        metrics = self.by_broker.setdefault(broker, {})
        for metric, number in measured.items():
            metrics.setdefault(metric, []).append(number)

    def of(self, broker: str, metric: str) -> list[float]:
        return self.by_broker.get(broker, {}).get(metric, [])
