"""Families about what becomes of files: what retention deletes, what the cleaner compacts, what the scrubber finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from strandline.broker.metrics.scrape import Scrape
from strandline.ids import TopicPartition
from strandline.observability.exposition import Metric, Sample


def _one(read: Callable[[Scrape], float]) -> Callable[[Scrape], list[Sample]]:
    return lambda scrape: [("", read(scrape))]


def _dirty_ratios(scrape: Scrape) -> Iterator[Sample]:
    """A line for each compacted log. Topic names need no escaping."""
    cleaner, now_ms = scrape.node.late.cleaner.get(), scrape.node.runtime.now_ms()
    for each in scrape.partitions:
        if each.config.cleans_locally and each.log.failure is None and each.log.segments:
            yield f'topic="{each.topic}",partition="{each.index}"', cleaner.outlook(each, now_ms).dirty_ratio


def _uncleanable_bytes(scrape: Scrape) -> float:
    offsets = scrape.node.directory.cleaner_offsets
    total = 0
    for partition in scrape.node.late.cleaner.get().set_aside:
        clean_up_to = offsets.get(TopicPartition(partition.topic, partition.index), 0)
        segments = zip(partition.log.base_offsets, partition.log.segments, strict=True)
        total += sum(segment.size_bytes for base_offset, segment in segments if base_offset >= clean_up_to)
    return total


def _since_last_look(scrape: Scrape) -> Iterator[Sample]:
    """Nothing where the cleaner is off."""
    cleaner = scrape.node.late.cleaner.get()
    if cleaner.is_enabled:
        yield "", scrape.node.runtime.monotonic() - cleaner.looked_at


FAMILIES: Final[tuple[Metric[Scrape], ...]] = (
    Metric(
        "strandline_retention_deleted_segments_total",
        "counter",
        "Segments that retention deleted since the start.",
        _one(lambda scrape: scrape.node.late.retention.get().deleted_segments),
        public=True,
    ),
    Metric(
        "strandline_retention_deleted_bytes_total",
        "counter",
        "Bytes of those segments.",
        _one(lambda scrape: scrape.node.late.retention.get().deleted_bytes),
        public=True,
    ),
    Metric(
        "strandline_retention_looks_total",
        "counter",
        "Looks at all logs for what is past retention; one each log.retention.check.interval.ms.",
        _one(lambda scrape: scrape.node.late.retention.get().looks),
        public=True,
    ),
    Metric(
        "kafka_log_logcleanermanager_uncleanable_partitions",
        "gauge",
        "Compacted logs that the cleaner set aside; `strandline doctor` says why.",
        _one(lambda scrape: len(scrape.node.late.cleaner.get().set_aside)),
        public=True,
    ),
    Metric(
        "kafka_log_logcleanermanager_uncleanable_bytes",
        "gauge",
        "Bytes of those logs that are not clean.",
        _one(_uncleanable_bytes),
        public=True,
    ),
    Metric(
        "kafka_log_logcleanermanager_max_dirty_percent",
        "gauge",
        "How much of the dirtiest log could be cleaned and is not, at the cleaner's last look.",
        _one(lambda scrape: round(100 * scrape.node.late.cleaner.get().dirty_ratio_max)),
        public=True,
    ),
    Metric(
        "kafka_log_logcleanermanager_time_since_last_run_seconds",
        "gauge",
        "How long ago the cleaner last looked at all logs.",
        _since_last_look,
        public=True,
    ),
    Metric(
        "strandline_log_cleaner_running",
        "gauge",
        "Logs that are being compacted now.",
        _one(lambda scrape: len(scrape.node.late.cleaner.get().running)),
        public=True,
    ),
    Metric(
        "strandline_log_cleaner_cleanings_total",
        "counter",
        "Cleanings of single logs that came to their end since the start.",
        _one(lambda scrape: scrape.node.late.cleaner.get().cleanings),
        public=True,
    ),
    Metric(
        "strandline_log_cleaner_read_bytes_total",
        "counter",
        "Bytes that those cleanings read, to find the last records of keys and to copy them.",
        _one(lambda scrape: scrape.node.late.cleaner.get().bytes_read),
        public=True,
    ),
    Metric(
        "strandline_log_cleaner_written_bytes_total",
        "counter",
        "Bytes that they wrote: what was left.",
        _one(lambda scrape: scrape.node.late.cleaner.get().bytes_written),
        public=True,
    ),
    Metric(
        "strandline_log_dirty_ratio",
        "gauge",
        "How much of a compacted log could be cleaned and is not, from 0 to 1.",
        _dirty_ratios,
        ("topic", "partition"),
    ),
    Metric(
        "strandline_log_scrubbed_bytes_total",
        "counter",
        "Bytes of files that were read again to see whether they are what was written.",
        _one(lambda scrape: scrape.node.late.scrubber.get().bytes_read),
        public=True,
    ),
    Metric(
        "strandline_log_scrubs_total",
        "counter",
        "Logs that were read through since the start.",
        _one(lambda scrape: scrape.node.late.scrubber.get().scrubs),
        public=True,
    ),
    Metric(
        "strandline_log_damaged_segments",
        "gauge",
        "Segments with damage that is not mended: what is damaged is not served.",
        _one(lambda scrape: len(scrape.node.late.scrubber.get().corruption)),
        public=True,
    ),
    Metric(
        "strandline_log_damages_found_total",
        "counter",
        "Segments in which damage was found since the start.",
        _one(lambda scrape: scrape.node.late.scrubber.get().corruption.found),
        public=True,
    ),
    Metric(
        "strandline_log_repairs_total",
        "counter",
        "Damaged segments that were fetched again from a leader.",
        _one(lambda scrape: scrape.node.late.scrubber.get().corruption.repaired),
        public=True,
    ),
    Metric(
        "strandline_log_resignations_total",
        "counter",
        "Leaderships that were handed on because of damage.",
        _one(lambda scrape: scrape.node.late.scrubber.get().corruption.resigned),
        public=True,
    ),
)
