"""The table of figures in README.md, written from one run of one commit.

A row shows one or more figures of a scenario, side by side. Without `--only` and `--all`, the bench runs the scenarios
of these rows and no others. A run that left anything out does not write the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure, Verdict
from bench.report import number

PAGE = Path(__file__).resolve().parent.parent / "README.md"
BEGIN = "<!-- figures: begin -->"
END = "<!-- figures: end -->"
HEAD = "| | Strandline | beside | ratio |\n|---|---|---|---|\n"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: figures of one scenario, found by name, and by note and unit where two share a name."""

    label: str
    scenario: str
    names: tuple[str, ...]
    note: str = ""
    unit: str = ""


_QUIET = "bare sockets"
_BUSY = "bare sockets, beside one busy core"
_CPU = ("CPU per one-record request, plain", "CPU per one-record request, idempotent")
_P50 = ("p50, plain", "p50, idempotent")
_UNDER_WAY = ("produce to consume, p50", "produce to consume, p99", "produce to consume, p99.9")
_DELIVERED = ("CPU per MB delivered to 1 group", "CPU per MB delivered to 100 groups")
_PRODUCER = ("producer p99 beside 1 group", "producer p99 beside 100 groups")
_TO_THREE = ("one record to three, p50, 1 at a time", "one record to three, p99, 1 at a time")
_THREE_CPU = ("CPU of three brokers per MB, 1 KiB",)
_SPARK_READ = ("batch read, 100 B", "batch read, 1 KiB")
_SPARK_VISIBLE = ("append to visible through Spark, p50", "append to visible through Spark, p99")

ROWS = (
    Row("CPU per MB produced, 1 KiB records", "produce-1k", ("broker CPU per MB produced, 1 KiB",)),
    Row("CPU per MB produced, 100 B records, lz4", "produce-100-lz4", ("broker CPU per MB produced, 100 B lz4",)),
    Row("CPU per MB fetched, 1 KiB records", "fetch-1k", ("broker CPU per MB fetched, 1 KiB",)),
    Row("the same beside a bare sendfile loop", "fetch-1k", ("broker CPU per MB fetched, beside a bare loop",)),
    Row("CPU per one-record request, 32 bare connections, plain / idempotent", "one-record", _CPU, _QUIET),
    Row("its p50", "one-record", _P50, _QUIET),
    Row("CPU per one-record request, the same beside one busy core", "one-record", _CPU, _BUSY),
    Row("its p50", "one-record", _P50, _BUSY),
    Row("one record at a time by librdkafka: p50", "librdkafka-one-record", ("p50, one record at a time",)),
    Row("produce to consume at 10,000 records/s: p50 / p99 / p99.9", "end-to-end", _UNDER_WAY),
    Row("CPU per MB delivered live to 1 group / 100 groups", "fanout", _DELIVERED),
    Row("the producer's p99 beside them", "fanout", _PRODUCER),
    Row("every record flushed before its ack: MB/s", "flush-ack", ("produced, flushed before ack",)),
    Row("its p99, 32 writers on one partition", "flush-ack", ("p99, flushed before ack",), "bare sockets, 1 partition"),
    Row("its p99, each on its own", "flush-ack", ("p99, flushed before ack",), "bare sockets, 32 partitions"),
    Row("the same by librdkafka", "librdkafka-one-record", ("p99, flushed before ack",)),
    Row("memory after load", "memory", ("memory after load (RSS)",)),
    Row("memory with 10,000 idle connections", "idle-connections", ("memory (RSS) with 10,000 idle connections",)),
    Row("idle with 4,000 partitions: CPU", "idle-partitions", ("CPU of an idle node with 4,000 partitions",)),
    Row("its memory", "idle-partitions", ("memory of an idle node with 4,000 partitions (RSS)",)),
    Row("start to the first acknowledged record", "startup", ("start to first acknowledged record",)),
    Row("`serve --brokers 2` beside one process, 1 KiB records", "serve-brokers", ("produced by 2 brokers, 1 KiB",)),
    Row("three brokers beside three, RF 3: CPU of all per MB", "cluster-produce-1k", _THREE_CPU),
    Row("MB/s, 1 KiB records", "cluster-produce-1k", ("produced to three, 1 KiB",)),
    Row("one record, 1,000 partitions: p50 / p99", "cluster-latency", _TO_THREE, "librdkafka"),
    Row("read by Spark, beside its own Kafka connector, 100 B / 1 KiB", "spark-read", _SPARK_READ, unit="rec/s"),
    Row("the same per CPU-second of Spark", "spark-read", _SPARK_READ, unit="rec/CPU-s"),
    Row("through Spark, from append to visible, 1,000 records/s: p50 / p99", "spark-latency", _SPARK_VISIBLE),
    Row("first output of a pipeline", "first-output", ("first output of a pipeline of three steps",)),
    Row("output again after kill -9 of its driver", "first-output", ("output again after kill -9 of the driver",)),
)


def scenarios() -> set[str]:
    """Return the names of the scenarios that the table needs."""
    return {row.scenario for row in ROWS}


def reason_to_leave(*, is_whole: bool, broken: Sequence[str], commit: str) -> str:
    """Return why a run must not write the table; empty if it may."""
    if not is_whole:
        return "this run left something out"
    if broken:
        return f"scenarios broke: {', '.join(broken)}"
    if commit == "unknown" or commit.endswith("+changes"):
        return "the run is not of a commit: src or bench has changes, or there is no repository"
    return ""


def block(figures: Mapping[str, Sequence[Figure]], environment: Mapping[str, str], results: str) -> str:
    """Return the table of a run, and before it which run that was."""
    origin = (
        f"Medians of one run of `make bench` at commit {environment['commit']}, {environment['date'][:10]}, on"
        f" {environment['machine']}: `bench/results/{results}.json`. Beside it is a warm Apache Kafka"
        f" {environment['kafka']} unless the cell names something else. What missed its target is **bold**."
    )
    return f"{origin}\n\n{HEAD}{''.join(_line(row, figures) for row in ROWS)}"


def rewritten(page: str, table: str) -> str:
    """Return the page with the table between its two marks; ValueError if it lacks them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n{table}{END}{after}"


def _line(row: Row, figures: Mapping[str, Sequence[Figure]]) -> str:
    found = [_found(row, name, figures) for name in row.names]
    if all(figure is None for figure in found):
        return f"| {row.label} | not measured | | |\n"
    ours, beside, ratios = [], [], []
    for figure in found:
        missed = figure is not None and figure.verdict is Verdict.MISSED
        has_ratio = figure is not None and not math.isnan(figure.ratio)
        ours.append(_bold(number(figure.value), missed and not has_ratio) if figure else "-")
        beside.append(number(figure.beside_value) if figure and figure.beside else "")
        ratios.append(_bold(f"{figure.ratio:.2f}x", missed) if figure and has_ratio else "")
    first = next(figure for figure in found if figure)
    other = f" ({first.beside_name})" if first.beside and first.beside_name != "kafka" else ""
    cells = (row.label, f"{_joined(ours)} {first.unit}", f"{_joined(beside)}{other}", _joined(ratios))
    return f"| {' | '.join(cells)} |\n"


def _found(row: Row, name: str, figures: Mapping[str, Sequence[Figure]]) -> Figure | None:
    for figure in figures.get(row.scenario, ()):
        if figure.name == name and row.note in ("", figure.note) and row.unit in ("", figure.unit):
            return figure
    return None


def _bold(text: str, is_bold: bool) -> str:
    return f"**{text}**" if is_bold else text


def _joined(cells: Sequence[str]) -> str:
    return " / ".join(cell for cell in cells if cell)
