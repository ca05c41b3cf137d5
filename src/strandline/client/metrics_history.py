"""What the nodes of a cluster measured themselves in the last day (MetricsHistory), as series for charts.

Only Strandline's nodes tell it. What is a sum over a cluster (throughput, requests, errors) is added up over its nodes;
of latencies the worst node's counts. The clocks of nodes differ, so values are put into the step that they fall into.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from strandline.client.cluster_client import ClusterClient
from strandline.client.failures import ClusterFailed
from strandline.codec.messages.metrics_history_request import MetricsHistoryRequest
from strandline.codec.messages.metrics_history_response import HistoryRing, MetricsHistoryResponse
from strandline.errors import Disconnected, ErrorCode, TimedOut, UnsupportedVersion, named

_WORST: Final = ("_ms", "/lag", "/seconds")
"""Endings of series whose largest value over the nodes counts; others are added up."""


@dataclass
class ChartSeries:
    """Series with one value for each step; None where nothing was measured."""

    step_ms: int
    first_ms: int
    series: dict[str, list[float | None]] = field(default_factory=dict)

    def as_object(self) -> dict[str, Any]:
        return {
            "step_ms": self.step_ms,
            "first_ms": self.first_ms,
            "series": {
                name: [None if value is None else round(value, 3) for value in values]
                for name, values in sorted(self.series.items())
            },
        }


@dataclass
class ClusterHistory:
    """The charts of a cluster, by their steps, and the brokers that could not be asked."""

    charts: list[ChartSeries]
    silent: dict[int, str] = field(default_factory=dict)

    def as_object(self) -> dict[str, Any]:
        return {
            "charts": [each.as_object() for each in self.charts],
            "silent": {str(broker): reason for broker, reason in self.silent.items()},
        }


def read_history(
    client: ClusterClient, brokers: Sequence[int], ago_ms: int, prefixes: list[str] | None
) -> ClusterHistory | None:
    """Ask each broker; None if they do not know the request. Raise ClusterFailed, in a sentence, if they refuse it."""
    rings: dict[int, list[HistoryRing]] = {}
    silent: dict[int, str] = {}
    for broker in brokers:
        try:
            answer = client.ask_broker(broker, MetricsHistoryRequest(ago_ms, prefixes), MetricsHistoryResponse)
        except UnsupportedVersion:
            continue
        except (Disconnected, TimedOut) as error:
            silent[broker] = str(error)
            continue
        if code := named(answer.error_code):
            right = "; it needs DESCRIBE on the cluster" if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else ""
            raise ClusterFailed(f"broker {broker} does not tell what it measured: {code.name}{right}")
        for ring in answer.rings:
            if ring.step_ms > 0:
                rings.setdefault(ring.step_ms, []).append(ring)
    if not rings and not silent:
        return None
    return ClusterHistory([_merged(step_ms, each) for step_ms, each in sorted(rings.items())], silent)


def _merged(step_ms: int, rings: list[HistoryRing]) -> ChartSeries:
    filled = [ring for ring in rings if ring.series]
    if not filled:
        return ChartSeries(step_ms, 0)
    first = min(ring.first_ms // step_ms for ring in filled)
    found = ChartSeries(step_ms, first * step_ms)
    for ring in filled:
        shift = ring.first_ms // step_ms - first
        for each in ring.series:
            points = array("f", each.values[: len(each.values) // 4 * 4])
            points.byteswap()
            _add(found.series.setdefault(each.name, []), shift, points, is_worst=each.name.endswith(_WORST))
    length = max(len(values) for values in found.series.values())
    for values in found.series.values():
        values += [None] * (length - len(values))
    return found


def _add(values: list[float | None], shift: int, points: array[float], *, is_worst: bool) -> None:
    values += [None] * (shift + len(points) - len(values))
    for at, point in enumerate(points, shift):
        if not math.isnan(point):
            known = values[at]
            values[at] = point if known is None else max(known, point) if is_worst else known + point
