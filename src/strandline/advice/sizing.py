"""Figures for a workload, each with its formula and its inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from strandline.advice.description import WorkloadProfile
from strandline.documents.units import byte_rate_words, duration_words, record_rate_words, size_words

WRITE_PER_PARTITION: Final = 10e6
"""Bytes a second that one partition is planned for."""
DISK_FILL: Final = 0.7
"""The share of a disk that may be full."""
REPLICAS: Final = {"business": 3, "derived": 2, "scratch": 1}


@dataclass(frozen=True)
class Input:
    """One number of a formula. `source` is described, measured, assumed or computed."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Figure:
    """A result with its formula; `value` is None if an input is missing, and `lacks` names it."""

    name: str
    value: float | None
    shown: str
    formula: str
    inputs: tuple[Input, ...] = ()
    lacks: tuple[str, ...] = ()


def sizing(workload: WorkloadProfile) -> list[Figure]:
    """Compute partitions, replicas, disk, network and memory."""
    replicas, replicas_figure = _replicas(workload)
    return [
        _partitions(workload),
        replicas_figure,
        _retention(workload),
        _disk(workload, replicas),
        _network(workload, replicas),
        _memory(workload),
    ]


def _source(workload: WorkloadProfile, field: str) -> str:
    return "measured" if field in workload.measured else "described"


def _lacking(name: str, formula: str, *lacks: str) -> Figure:
    return Figure(name, None, "unknown", formula, lacks=lacks)


_PARTITIONS: Final = (
    "max(write rate / 10 MB/s, read rate / the slowest consumer's rate per partition, members of the largest group) "
    "x 1.5 to 2, rounded to a number with many divisors"
)


def _partitions(workload: WorkloadProfile) -> Figure:
    if workload.order == "global":
        why = Input("order", "global", _source(workload, "order"))
        return Figure("partitions", 1, "1", "one global order is one partition", (why,))
    needs: list[tuple[float, Input]] = []
    rate = workload.bytes_per_s
    if rate is not None:
        needs.append(
            (rate / WRITE_PER_PARTITION, Input("write rate", byte_rate_words(rate), _source(workload, "write")))
        )
    if (slowest := _slowest(workload)) is not None:
        needs.append(slowest)
    members = workload.largest_group
    if members is not None:
        needs.append((members, Input("largest group", f"{members:,} members", _source(workload, "readers"))))
    if not needs:
        return _lacking("partitions", _PARTITIONS, "write", "members of readers")
    needed = max(1, math.ceil(max(need for need, _ in needs)))
    chosen = with_many_divisors(math.ceil(needed * 1.5), needed * 2)
    inputs = (*(each for _, each in needs), Input("needed", f"{needed:,}", "computed"))
    return Figure("partitions", chosen, f"{chosen:,}", _PARTITIONS, inputs)


def _slowest(workload: WorkloadProfile) -> tuple[float, Input] | None:
    """Return how many partitions the slowest reader needs to keep up with what is written."""
    found = []
    for reader in workload.readers or ():
        rate = reader.rate_per_partition
        if rate is None:
            continue
        written = workload.bytes_per_s if rate.bytes_per_s is not None else workload.records_per_s
        read = rate.bytes_per_s if rate.bytes_per_s is not None else rate.records_per_s
        if written is None or not read:
            continue
        words = byte_rate_words(read) if rate.bytes_per_s is not None else record_rate_words(read)
        each = Input(f"{reader.name} reads of a partition", words, _source(workload, "readers"))
        found.append((written / read, each))
    return max(found, key=lambda each: each[0], default=None)


def with_many_divisors(low: int, high: int) -> int:
    """Return the number of the range that most numbers divide, so that groups of many sizes share it evenly."""
    return max(range(low, max(low, high) + 1), key=lambda number: (_divisors(number), -number))


def _divisors(number: int) -> int:
    root = math.isqrt(number)
    small = sum(2 for each in range(1, root + 1) if number % each == 0)
    return small - (1 if root * root == number else 0)


def _replicas(workload: WorkloadProfile) -> tuple[int, Figure]:
    formula = "3 for business data, 2 for what can be derived again, 1 for scratch; at most one for each broker"
    if workload.replicas is not None:
        given = Input("replication", str(workload.replicas), _source(workload, "replicas"))
        if "replicas" not in workload.measured or workload.worth is None:
            as_given = Figure("replicas", workload.replicas, str(workload.replicas), "as given", (given,))
            return workload.replicas, as_given
    worth = workload.worth or "business"
    wanted = REPLICAS[worth]
    inputs: tuple[Input, ...] = (Input("worth", worth, "described" if workload.worth else "assumed"),)
    if workload.brokers is not None:
        inputs = (*inputs, Input("brokers", str(workload.brokers), _source(workload, "brokers")))
        wanted = min(wanted, workload.brokers)
    return wanted, Figure("replicas", wanted, str(wanted), formula, inputs)


def _retention(workload: WorkloadProfile) -> Figure:
    formula = "longer than the longest time that a reader may be down, plus the time that a replay needs"
    if workload.retention_ms is None:
        return _lacking("retention", formula, "retention")
    given = Input("retention", duration_words(workload.retention_ms), _source(workload, "retention_ms"))
    return Figure("retention", workload.retention_ms, given.value, formula, (given,))


def _disk(workload: WorkloadProfile, replicas: int) -> Figure:
    formula = "write rate x retention x replicas / 0.7"
    rate, retention_ms = workload.bytes_per_s, workload.retention_ms
    if rate is None or retention_ms is None or retention_ms < 0:
        lacks = [*(["write in bytes (a rate, or record_size)"] if rate is None else [])]
        lacks += ["retention"] if retention_ms is None else []
        lacks += ["a retention that ends: what is kept forever grows without end"] if (retention_ms or 0) < 0 else []
        return _lacking("disk", formula, *lacks)
    needed = rate * retention_ms / 1000 * replicas / DISK_FILL
    inputs = (
        Input("write rate", byte_rate_words(rate), _source(workload, "write")),
        Input("retention", duration_words(retention_ms), _source(workload, "retention_ms")),
        Input("replicas", str(replicas), "computed" if workload.replicas is None else _source(workload, "replicas")),
    )
    return Figure("disk", needed, f"{size_words(needed)} in the cluster", formula, inputs)


def _network(workload: WorkloadProfile, replicas: int) -> Figure:
    formula = "(write rate x (replicas - 1) + write rate x readers) / brokers"
    rate, readers = workload.bytes_per_s, workload.reader_count
    if rate is None or readers is None:
        lacks = [*(["write in bytes"] if rate is None else []), *(["readers"] if readers is None else [])]
        return _lacking("network", formula, *lacks)
    brokers = workload.brokers or replicas
    needed = (rate * (replicas - 1) + rate * readers) / brokers
    inputs = (
        Input("write rate", byte_rate_words(rate), _source(workload, "write")),
        Input("readers", str(readers), _source(workload, "readers")),
        Input("brokers", str(brokers), _source(workload, "brokers") if workload.brokers else "assumed"),
    )
    return Figure("network", needed, f"{byte_rate_words(needed)} a broker sends", formula, inputs)


def _memory(workload: WorkloadProfile) -> Figure:
    formula = "write rate x the longest usual lag"
    rate = workload.bytes_per_s
    lags = [each.lag_ms for each in workload.readers or () if each.lag_ms is not None]
    if rate is None or not lags:
        lacks = [*(["write in bytes"] if rate is None else []), *(["lag of readers"] if not lags else [])]
        return _lacking("memory", formula, *lacks)
    needed = rate * max(lags) / 1000
    inputs = (
        Input("write rate", byte_rate_words(rate), _source(workload, "write")),
        Input("longest lag", duration_words(max(lags)), _source(workload, "readers")),
    )
    return Figure("memory", needed, f"{size_words(needed)} of page cache for the tail", formula, inputs)
