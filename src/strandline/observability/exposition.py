"""Prometheus' text format, line by line, so that the sender decides how many lines fit into a turn of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from strandline.observability.request_meter import cumulative

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

S = TypeVar("S")

Sample = tuple[str, float]
"""The labels as they are written between the braces, and the value."""
Timing = tuple[str, list[int], int]
"""Labels, buckets by bits of nanoseconds, their sum in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Metric(Generic[S]):
    """One family of samples: its name, its meaning, and the function that reads its samples at a scrape."""

    name: str
    kind: str
    help: str
    read: Callable[[S], Iterable[Sample | None]]
    """None is no sample. A reader that counts for long yields it in between."""
    labels: tuple[str, ...] = ()
    public: bool = False
    """Whether `/public_metrics` has it, too: the number of series does not grow with the number of topics."""


@dataclass(frozen=True, slots=True)
class Histogram(Generic[S]):
    """One family of timings, in buckets."""

    name: str
    help: str
    read: Callable[[S], Iterable[Timing]]
    labels: tuple[str, ...] = ()
    public: bool = False
    kind: str = "histogram"


def render(families: Iterable[Metric[S] | Histogram[S]], source: S) -> Iterator[str]:
    """Yield the page line by line, with empty lines where time has passed. Families without samples are left out."""
    for family in families:
        head = f"# HELP {family.name} {escaped_help(family.help)}\n# TYPE {family.name} {family.kind}\n"
        lines = _timings(family, source) if isinstance(family, Histogram) else _samples(family, source)
        for line in lines:
            if head and line:
                yield head
                head = ""
            yield line


def _samples(metric: Metric[S], source: S) -> Iterator[str]:
    name = metric.name
    for sample in metric.read(source):
        if sample is None:
            yield ""
            continue
        labels, value = sample
        yield f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n"


def _timings(histogram: Histogram[S], source: S) -> Iterator[str]:
    name = histogram.name
    for labels, buckets, total_ns in histogram.read(source):
        before = f"{labels}," if labels else ""
        braces = f"{{{labels}}}" if labels else ""
        count = sum(buckets)
        # One piece, because a turn of the loop in between would mix two moments in one histogram.
        yield "".join(
            (
                *(f'{name}_bucket{{{before}le="{bound:.9g}"}} {below}\n' for bound, below in cumulative(buckets)),
                f'{name}_bucket{{{before}le="+Inf"}} {count}\n',
                f"{name}_sum{braces} {total_ns / 1e9!r}\n",
                f"{name}_count{braces} {count}\n",
            )
        )


def label(**values: object) -> str:
    """Format labels as `topic="a",partition="0"`, with the values escaped, because a peer may have chosen them."""
    return ",".join(f'{name}="{escaped(str(value))}"' for name, value in values.items())


def escaped(value: str) -> str:
    if value.isalnum():
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
