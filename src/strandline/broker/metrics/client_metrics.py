"""Families about what clients push; what they pushed follows behind the tables, under names of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from strandline.broker.metrics.scrape import Scrape
from strandline.observability.exposition import Metric, Sample

if TYPE_CHECKING:
    from strandline.broker.metrics.telemetry import Telemetry


def _of(read: Callable[[Telemetry], int]) -> Callable[[Scrape], Iterator[Sample]]:
    """Nothing, as long as no client has asked whether it should push."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        telemetry = scrape.node.late.telemetry.loaded
        if telemetry is not None:
            yield "", read(telemetry)

    return samples


FAMILIES: Final[tuple[Metric[Scrape], ...]] = (
    Metric(
        "strandline_client_telemetry_instances",
        "gauge",
        "Client instances that asked what they should push.",
        _of(lambda telemetry: len(telemetry.clients)),
        public=True,
    ),
    Metric(
        "strandline_client_telemetry_pushes_total",
        "counter",
        "Pushes that were read, or were found to be unreadable.",
        _of(lambda telemetry: telemetry.pushes),
        public=True,
    ),
    Metric(
        "strandline_client_telemetry_refused_total",
        "counter",
        "Pushes that were unreadable, too large when inflated, or one too many at a time.",
        _of(lambda telemetry: telemetry.refused),
        public=True,
    ),
    Metric(
        "strandline_client_telemetry_throttled_total",
        "counter",
        "Clients that asked or pushed before their interval was over.",
        _of(lambda telemetry: telemetry.clients.throttled),
        public=True,
    ),
    Metric(
        "strandline_client_telemetry_series",
        "gauge",
        "Series of clients that are on /metrics.",
        _of(lambda telemetry: telemetry.store.series),
        public=True,
    ),
    Metric(
        "strandline_client_telemetry_left_out_total",
        "counter",
        "Points of clients that found no room there.",
        _of(lambda telemetry: telemetry.store.left_out),
        public=True,
    ),
)
