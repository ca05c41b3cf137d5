"""Families about object topics: what is written to the object store, committed and merged. Else empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from strandline.broker.metrics.scrape import Scrape
from strandline.observability.exposition import Metric, Sample

if TYPE_CHECKING:
    from strandline.broker.tiering.objects.object_topics import ObjectTopics


def _one(read: Callable[[ObjectTopics], float]) -> Callable[[Scrape], Iterator[Sample]]:
    """Return a family that has no sample on a node without object topics."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        topics = scrape.node.late.object_topics.loaded
        if topics is not None:
            yield "", read(topics)

    return samples


FAMILIES: Final[tuple[Metric[Scrape], ...]] = (
    Metric(
        "strandline_object_writes_total",
        "counter",
        "Objects that this node wrote for object topics since its start.",
        _one(lambda topics: topics.writer.objects),
    ),
    Metric(
        "strandline_object_written_bytes_total",
        "counter",
        "Bytes of those objects.",
        _one(lambda topics: topics.writer.object_bytes),
    ),
    Metric(
        "strandline_object_write_failures_total",
        "counter",
        "Objects that could not be written; their batches are written again.",
        _one(lambda topics: topics.writer.failures),
    ),
    Metric(
        "strandline_object_buffered_bytes",
        "gauge",
        "Bytes of object topics that are not committed yet, and so not acknowledged.",
        _one(lambda topics: topics.writer.buffered_bytes),
    ),
    Metric(
        "strandline_object_rejected_ranges_total",
        "counter",
        "Ranges of this node that the commit log rejected, because another leader had claimed the partition.",
        _one(lambda topics: topics.writer.rejected),
    ),
    Metric(
        "strandline_object_unmerged_ranges",
        "gauge",
        "Ranges of partitions in objects that no segment holds yet, in the cluster.",
        _one(lambda topics: sum(len(each.ranges) for each in topics.commits.fold.partitions.values())),
    ),
    Metric(
        "strandline_object_merged_ranges_total",
        "counter",
        "Ranges that this node merged into segments since its start.",
        _one(lambda topics: topics.merger.merged_ranges),
    ),
    Metric(
        "strandline_object_live_objects",
        "gauge",
        "Objects with ranges that no segment holds yet, in the cluster.",
        _one(lambda topics: len(topics.commits.fold.objects)),
    ),
    Metric(
        "strandline_object_deleted_objects_total",
        "counter",
        "Objects that this node deleted since its start, because nothing needs them.",
        _one(lambda topics: topics.sweeper.deleted),
    ),
    Metric(
        "strandline_object_unnamed_objects",
        "gauge",
        "Objects that no commit names, and that this node watches before it deletes them.",
        _one(lambda topics: topics.sweeper.unnamed),
    ),
)
