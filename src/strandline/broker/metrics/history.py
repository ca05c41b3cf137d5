"""What the node measured in the last day: throughput, latency, errors, and the lag of the groups that it coordinates.

Two rings: the node every ten seconds, its busiest topics and the groups every minute. Nothing is written to disk, so a
restart begins again. The work is done in slices of a millisecond between requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from strandline.observability.metric_ring import MetricRing, quantile
from strandline.observability.request_meter import BUCKETS
from strandline.runtime.time_slicing import slowly

if TYPE_CHECKING:
    from strandline.broker.coordinating.group_driver import GroupDriver
    from strandline.broker.coordinating.lag_sampler import LagSampler
    from strandline.broker.lazy import Lazy
    from strandline.broker.replicas.replicas import Replicas
    from strandline.handlers.support.context import ApiRange
    from strandline.partition.partition import Partition
    from strandline.runtime.runtime import Runtime, TimerHandle

STEP_S: Final = 10
MINUTE_S: Final = 60
_DAY_S: Final = 86_400
NODE_SERIES_MAX: Final = 24
TOPICS_MAX: Final = 50
"""The busiest of the last minute have series of their own."""
GROUPS_MAX: Final = 100
"""Those that are furthest behind have series of their own."""
_PRODUCE, _FETCH = 0, 1

Totals = tuple[int, int, int]
"""Bytes in, bytes out, records in."""


class MetricsHistory:
    """The rings of a node, and what fills them."""

    def __init__(
        self,
        runtime: Runtime,
        replicas: Replicas,
        routes: Mapping[int, ApiRange],
        groups: Lazy[GroupDriver],
        lag: Lazy[LagSampler],
    ) -> None:
        self._runtime = runtime
        self._replicas = replicas
        self._routes = routes
        self._groups = groups
        self._lag = lag
        self.node = MetricRing(step_ms=STEP_S * 1000, points_max=_DAY_S // STEP_S, series_max=NODE_SERIES_MAX)
        self.items = MetricRing(
            step_ms=MINUTE_S * 1000, points_max=_DAY_S // MINUTE_S, series_max=3 * TOPICS_MAX + 2 * GROUPS_MAX
        )
        self._timer: TimerHandle | None = None
        self._is_looking = False
        self._looked_ms = self._items_ms = 0
        self._totals: Totals = (0, 0, 0)
        self._topics: dict[str, Totals] = {}
        self._requests = self._errors = 0
        self._produce, self._fetch = [0] * BUCKETS, [0] * BUCKETS

    def start(self) -> None:
        if self._timer is None:
            self._timer = self._runtime.call_later(STEP_S, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def read(self, ring: MetricRing, ago_ms: int, prefixes: Sequence[str] | None) -> tuple[int, dict[str, bytes]]:
        """Return the time of the first step by the wall clock, and the values of each series, big-endian."""
        now_ms = self._now_ms()
        first_ms, found = ring.read(now_ms, now_ms - ago_ms, prefixes)
        values: dict[str, bytes] = {}
        for name, points in found.items():
            points.byteswap()
            values[name] = points.tobytes()
        return self._runtime.now_ms() - (now_ms - first_ms), values

    def _now_ms(self) -> int:
        return int(self._runtime.monotonic() * 1000)

    def _look(self) -> None:
        self._timer = self._runtime.call_later(STEP_S, self._look)
        if not self._is_looking:
            self._is_looking = True
            slowly(self._runtime, self._measure(), self._end_look)

    def _end_look(self) -> None:
        self._is_looking = False

    def _measure(self) -> Iterator[None]:
        topics: dict[str, Totals] = {}
        for partition in list(self._replicas.all()):
            topics[partition.topic] = _sum(topics.get(partition.topic, (0, 0, 0)), _totals(partition))
            yield
        departed = self._replicas.departed
        totals: Totals = (departed.bytes_in, departed.bytes_out, departed.records_in)
        for each in topics.values():
            totals = _sum(totals, each)
        now_ms = self._now_ms()
        seconds = (now_ms - self._looked_ms) / 1000
        is_first, self._looked_ms = not self._looked_ms, now_ms
        values = self._request_values(seconds)
        values |= zip(("bytes_in", "bytes_out", "records_in"), _rates(totals, self._totals, seconds), strict=True)
        self._totals = totals
        if not is_first:
            # The first look only has the counters since the start, and no span that they belong to.
            self.node.note(now_ms, values)
        yield
        if now_ms - self._items_ms >= MINUTE_S * 1000 or is_first:
            yield from self._note_items(now_ms, topics, is_first=is_first)

    def _request_values(self, seconds: float) -> dict[str, float]:
        routes = list(self._routes.values())
        requests = sum(route.requests for route in routes)
        errors = sum(sum(route.meter.errors.values()) for route in routes if route.meter is not None)
        values = {"requests": (requests - self._requests) / seconds, "errors": (errors - self._errors) / seconds}
        self._requests, self._errors = requests, errors
        produce, fetch = self._routes[_PRODUCE].meter, self._routes[_FETCH].meter
        if produce is not None:
            # A Produce waits for the disk and the followers, which is its latency. A Fetch waits for records to come,
            # which is none: only those that were answered at once are looked at.
            counts = [one + other for one, other in zip(produce.at_once, produce.waited, strict=True)]
            values |= _latencies("produce", counts, self._produce)
            self._produce = counts
        if fetch is not None:
            values |= _latencies("fetch", fetch.at_once, self._fetch)
            self._fetch = list(fetch.at_once)
        return values

    def _note_items(self, now_ms: int, topics: dict[str, Totals], *, is_first: bool) -> Iterator[None]:
        seconds = (now_ms - self._items_ms) / 1000
        before, self._topics, self._items_ms = self._topics, topics, now_ms
        values: dict[str, float] = {}
        if not is_first:
            # A topic that was not there a minute ago has been written to since.
            rates = {name: _rates(totals, before.get(name, (0, 0, 0)), seconds) for name, totals in topics.items()}
            busy = sorted((name for name in rates if any(rates[name])), key=lambda name: -sum(rates[name][:2]))
            for name in busy[:TOPICS_MAX]:
                for series, value in zip(("bytes_in", "bytes_out", "records_in"), rates[name], strict=True):
                    values[f"topic/{name}/{series}"] = value
            yield
        lags: dict[str, tuple[int, int]] = {}
        groups, lag = self._groups.loaded, self._lag.loaded
        for shard in groups.loaded_shards() if groups is not None and lag is not None else ():
            for group_id in list(shard.groups):
                assert lag is not None
                windows = lag.windows_of(group_id)
                if windows:
                    lags[group_id] = (
                        sum(window.last.lag for _, window in windows),
                        max(window.last.age_ms for _, window in windows),
                    )
                yield
        for group_id in sorted(lags, key=lambda each: -lags[each][0])[:GROUPS_MAX]:
            behind, age_ms = lags[group_id]
            values[f"group/{group_id}/lag"] = behind
            if age_ms >= 0:
                values[f"group/{group_id}/seconds"] = age_ms / 1000
        self.items.note(now_ms, values)


def _totals(partition: Partition) -> Totals:
    return partition.bytes_in, partition.bytes_out, partition.records_in


def _sum(one: Totals, other: Totals) -> Totals:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _rates(now: Totals, before: Totals, seconds: float) -> tuple[float, float, float]:
    """Return the three per second. A log that was opened again counts from 0, which is no negative rate."""
    first, second, third = (max(0, one - other) / seconds for one, other in zip(now, before, strict=True))
    return first, second, third


def _latencies(name: str, counts: Sequence[int], before: Sequence[int]) -> dict[str, float]:
    since = [one - other for one, other in zip(counts, before, strict=True)]
    if not any(since):
        return {}
    return {f"{name}_p50_ms": quantile(since, 0.5) / 1e6, f"{name}_p99_ms": quantile(since, 0.99) / 1e6}
