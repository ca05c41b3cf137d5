"""Families about tiered topics: what is copied to the object store, read from it and deleted there. Else empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from strandline.broker.metrics.scrape import Scrape
from strandline.observability.exposition import Metric, Sample

if TYPE_CHECKING:
    from strandline.broker.tiering.tiered_storage import TieredStorage


def _one(read: Callable[[TieredStorage], float]) -> Callable[[Scrape], Iterator[Sample]]:
    """Return a family that has no sample on a node without tiered storage."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        tiering = scrape.node.late.tiering.loaded
        if tiering is not None:
            yield "", read(tiering)

    return samples


FAMILIES: Final[tuple[Metric[Scrape], ...]] = (
    Metric(
        "strandline_remote_copied_segments_total",
        "counter",
        "Segments that this node copied to the object store since its start.",
        _one(lambda tiering: tiering.copier.copied_segments),
    ),
    Metric(
        "strandline_remote_copied_bytes_total",
        "counter",
        "Bytes of those segments.",
        _one(lambda tiering: tiering.copier.copied_bytes),
    ),
    Metric(
        "strandline_remote_copy_failures_total",
        "counter",
        "Copies of segments that failed; they are tried again.",
        _one(lambda tiering: tiering.copier.failures),
    ),
    Metric(
        "strandline_remote_copy_lag_segments",
        "gauge",
        "Sealed segments of partitions led here that the store lacks.",
        _one(lambda tiering: tiering.copy_lag()[0]),
    ),
    Metric(
        "strandline_remote_copy_lag_bytes",
        "gauge",
        "Bytes of those segments.",
        _one(lambda tiering: tiering.copy_lag()[1]),
    ),
    Metric(
        "strandline_remote_log_size_bytes",
        "gauge",
        "Bytes in the store of partitions that are led here.",
        _one(lambda tiering: tiering.size_bytes()),
    ),
    Metric(
        "strandline_remote_deleted_segments_total",
        "counter",
        "Segments that this node deleted in the store since its start.",
        _one(lambda tiering: tiering.deleted_segments),
    ),
    Metric(
        "strandline_remote_read_bytes_total",
        "counter",
        "Bytes that were read from the store since the start.",
        _one(lambda tiering: tiering.cache.read_bytes),
    ),
    Metric(
        "strandline_remote_read_failures_total",
        "counter",
        "Reads of the store that failed, or found damage.",
        _one(lambda tiering: tiering.cache.failures),
    ),
    Metric(
        "strandline_remote_cache_hits_total",
        "counter",
        "Blocks and indexes of the store that were in memory.",
        _one(lambda tiering: tiering.cache.hits),
    ),
    Metric(
        "strandline_remote_cache_misses_total",
        "counter",
        "Blocks and indexes that had to be read from the store.",
        _one(lambda tiering: tiering.cache.misses),
    ),
    Metric(
        "strandline_remote_pending_reads",
        "gauge",
        "Fetches of partitions that wait for the store.",
        _one(lambda tiering: tiering.pending),
    ),
)
