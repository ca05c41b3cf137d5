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
        "strandline_remote_compactions_total",
        "counter",
        "Compactions of partitions in the object store that came to their end.",
        _one(lambda tiering: tiering.compactor.compactions),
    ),
    Metric(
        "strandline_remote_compaction_failures_total",
        "counter",
        "Compactions in the object store that failed; they are tried again.",
        _one(lambda tiering: tiering.compactor.failures),
    ),
    Metric(
        "strandline_remote_compaction_source_bytes_total",
        "counter",
        "Bytes of the objects that compactions cleaned, each counted once a compaction.",
        _one(lambda tiering: tiering.compactor.source_bytes),
    ),
    Metric(
        "strandline_remote_compaction_read_bytes_total",
        "counter",
        "Bytes that compactions read from the object store.",
        _one(lambda tiering: tiering.compactor.read_bytes),
    ),
    Metric(
        "strandline_remote_compaction_written_bytes_total",
        "counter",
        "Bytes that compactions wrote to the object store.",
        _one(lambda tiering: tiering.compactor.written_bytes),
    ),
    Metric(
        "strandline_remote_replaced_segments_total",
        "counter",
        "Segments that compactions of this node replaced.",
        _one(lambda tiering: tiering.compactor.replaced_segments),
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
        "strandline_remote_recalled_segments_total",
        "counter",
        "Segments that this node brought back from the store to its disk since its start.",
        _one(lambda tiering: tiering.recall.segments),
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
        "strandline_remote_checkpoint_age_seconds",
        "gauge",
        "For how long the newest checkpoint in the store may have been behind (RPO); 0 if no tiered partition is led.",
        _one(lambda tiering: tiering.checkpoints.age_s() or 0.0),
    ),
    Metric(
        "strandline_remote_checkpoints_total",
        "counter",
        "Checkpoints that this node wrote to the store since its start.",
        _one(lambda tiering: tiering.checkpoints.written),
    ),
    Metric(
        "strandline_remote_pending_reads",
        "gauge",
        "Fetches of partitions that wait for the store.",
        _one(lambda tiering: tiering.pending),
    ),
)
