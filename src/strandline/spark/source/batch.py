"""`spark.read.format("strandline")`: ranges of offsets are settled once, while Spark plans.

PySpark 4.3 fails on a reader that takes filters unless `spark.sql.python.filterPushdown.enabled` is set, so there are
two classes: only the process in which Spark pushes filters down is given the one that takes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from strandline.client.fetcher import OffsetRange
from strandline.spark.source.columns import arrow_schema
from strandline.spark.source.filters import Bounds, bounds_of, column_of
from strandline.spark.source.planning import Planner
from strandline.spark.source.source_spec import SourceOptions
from strandline.spark.source.splitting import split
from strandline.spark.source.tasks import RangePartition, read_task, task_settings


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._task = task_settings(options, arrow_schema(schema, options.shape))
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        planner = Planner(self._options)
        try:
            ranges = bounded(planner, self._bounds, planner.batch_ranges())
        finally:
            planner.close()
        parts = split(
            ranges,
            partitions_min=self._options.partitions_min,
            records_per_partition_max=self._options.records_per_partition_max,
        )
        return [RangePartition(each) for each in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._task, partition)


class FilteringBatchReader(BatchReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        # Spark 4.3 keeps one plan for all uses of a frame, the last that was made: what one filter leaves out, another
        # that reads the same frame, or none, would lose without a word. So nothing is left out unless the user says so.
        if not self._options.pushes_filters:
            return filters
        # A column of the value may have a name of the record's: what is said of it says nothing about offsets.
        self._bounds = bounds_of(each for each in filters if self._options.shape.is_of_record(column_of(each)))
        # All of them are handed back: what is left out here is left out by Spark too, and it alone is exact.
        return filters


def bounded(planner: Planner, bounds: Bounds, ranges: list[OffsetRange]) -> list[OffsetRange]:
    """What is left of the ranges within the bounds."""
    found = []
    for each in ranges:
        start = max(each.start, bounds.offset_min)
        end = each.end if bounds.offset_end is None else min(each.end, bounds.offset_end)
        if start < end and bounds.takes(each.topic, each.partition):
            found.append(replace(each, start=start, end=end))
    if bounds.timestamp_ms_min is None or not found:
        return found
    # All records before the first that is late enough are too early, in whatever order their times are.
    first = planner.at_time({each.topic_partition: None for each in found}, bounds.timestamp_ms_min)
    late = [replace(each, start=max(each.start, first[each.topic_partition])) for each in found]
    return [each for each in late if first[each.topic_partition] >= 0 and each.start < each.end]
