"""`spark.readStream.format("strandline")`: offsets of each batch, in the form of Spark's own Kafka source.

One reader lives in a planning process beside the driver for as long as the query runs; copies of it read in the
workers. The checkpoint alone says where a query is. What lies in it is checked against the log before a batch is
planned: a log that ends before it, partitions that are gone, or a topic that was created again are data loss. The ids
of the topics lie beside the offsets, so a topic that was created again while no query ran is known as well.

Spark keeps the end of each batch, and asks again where a query started if its first batch is not committed. A query
that starts with the next record would then start later than it did and lose what came between. So such a query starts
with no offsets at all, and its first batch, which is empty, ends where it starts: from then on the checkpoint knows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from strandline.client.fetcher import OffsetRange
from strandline.ids import TopicPartition
from strandline.spark.source.columns import arrow_schema
from strandline.spark.source.offset_json import Offset, as_json, from_json, topic_ids_of
from strandline.spark.source.planning import Planner
from strandline.spark.source.source_spec import SourceOptions
from strandline.spark.source.splitting import Positions, limited, split
from strandline.spark.source.tasks import RangePartition, read_task, task_settings


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._task = task_settings(options, arrow_schema(schema, options.shape))
        self._planner: Planner | None = None
        self._latest: Positions = {}
        self._target: Positions | None = None
        """Where a query with AvailableNow ends."""
        self._topic_ids: dict[str, UUID] = {}
        """As the cluster told them last."""
        self._found_nothing = False
        """No topic was there to start with: the first that comes is read from its first record on."""
        self._triggered_at: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Workers get what a task needs; sockets and what was seen stay here.
        return vars(self) | {"_planner": None, "_latest": {}, "_target": None, "_topic_ids": {}}

    # What Spark asks in the planning process

    def initialOffset(self) -> Offset:
        partitions = self._partitions(must_exist=True)
        if self._options.starts_with_the_next_record:
            return {}
        return as_json(self._planning().starting(partitions), {**self._topic_ids, **self._options.start_ids})

    def getDefaultReadLimit(self) -> ReadLimit:
        """Any limit but "all" lets `latestOffset` know that the options count; Spark has none for several at once."""
        limits = self._options.limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        partitions = self._partitions()
        if self._options.stop_at is None:
            self._target = self._planning().latest(partitions)
            return
        # What was read once is there still, or it is lost.
        wanted = {each: offset for each, offset in self._options.stop_at.items() if self._is_mine(each, partitions)}
        self._check_none_gone(wanted, partitions)
        self._target = self._planning().not_behind(wanted, {each: None for each in wanted if each in partitions})

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        planner = self._planning()
        partitions = self._partitions()
        if self._has_not_started(start):
            return self._written(self._started(partitions))
        begin = self._same_topics(start, from_json(start))
        self._check_none_gone(begin, partitions)
        latest = planner.not_behind(begin, partitions)
        if self._target is not None:
            latest = {each: min(self._target[each], offset) for each, offset in latest.items() if each in self._target}
        if self._options.stop_at is not None:
            latest = _up_to(self._options.stop_at, begin, latest)
        self._latest = latest
        if isinstance(limit, ReadAllAvailable) or not self._options.limits.are_set:
            return self._written(latest)
        # New partitions are read from their first record on.
        begin |= planner.earliest({each: None for each in latest if each not in begin})
        return self._written(self._limited(begin, latest))

    def reportLatestOffset(self) -> Offset | None:
        return self._written(self._latest) if self._latest else None

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        planner = self._planning()
        if self._has_not_started(start):
            return []
        existing = self._partitions()
        first = from_json(start)
        begin, behind = self._same_topics(start, first), self._same_topics(end, first)
        self._check_none_gone(behind, existing)
        behind = {each: offset for each, offset in behind.items() if each in existing}
        added = planner.earliest({each: None for each in behind if each not in begin})
        for partition, earliest in added.items():
            if earliest > 0:
                planner.lose(partition, 0, earliest, f"the partition is new and its log begins at {earliest}")
        begin |= added
        ranges = [OffsetRange(*each, begin[each], behind[each], existing[each]) for each in sorted(behind)]
        parts = split(
            ranges,
            partitions_min=self._options.partitions_min,
            records_per_partition_max=self._options.records_per_partition_max,
        )
        return [RangePartition(each) for each in parts]

    def commit(self, end: Offset) -> None:
        """Nothing: Spark calls it only when the next batch is planned. Positions are committed by a listener."""

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    # What Spark asks in the workers

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._task, partition)

    # Where it starts

    def _has_not_started(self, start: Offset) -> bool:
        return not start and self._options.starts_with_the_next_record

    def _started(self, partitions: dict[TopicPartition, UUID]) -> Positions:
        if not partitions:
            self._found_nothing = True
            return {}
        planner = self._planning()
        started = planner.earliest(partitions) if self._found_nothing else planner.starting(partitions)
        target = self._target or {}
        self._latest = {each: min(offset, target.get(each, offset)) for each, offset in started.items()}
        return self._latest

    def _is_mine(self, partition: TopicPartition, partitions: dict[TopicPartition, UUID]) -> bool:
        """Of a topic that this source reads: a query has one `stopAt` for all its sources."""
        wanted = self._options.subscription
        return partition in partitions or partition.topic in wanted.topics or partition in wanted.assigned

    # Partitions come and go

    def _planning(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner

    def _partitions(self, *, must_exist: bool = False) -> dict[TopicPartition, UUID]:
        partitions = self._planning().partitions(must_exist=must_exist)
        self._topic_ids = {topic: topic_id for (topic, _), topic_id in partitions.items()}
        return partitions

    def _written(self, positions: Positions) -> Offset:
        return as_json(positions, self._topic_ids)

    def _same_topics(self, offset: Offset, first: Positions) -> Positions:
        """Return the positions of an offset without those in topics that were created again since: these are data loss.

        What is lost begins at `first`. If the user does not mind that, the new topic is read as one that came later:
        from its first record on.
        """
        known = topic_ids_of(offset)
        found = {}
        for partition, position in from_json(offset).items():
            now = self._topic_ids.get(partition.topic)
            if now is None or known.get(partition.topic, now) == now:
                found[partition] = position
            else:
                self._planning().lose(partition, first.get(partition, 0), None, "the topic was deleted and made again")
        return found

    def _check_none_gone(self, begin: Positions, partitions: dict[TopicPartition, UUID]) -> None:
        for partition, offset in begin.items():
            if partition not in partitions:
                self._planning().lose(partition, offset, None, "the topic is gone, or is no longer subscribed to")

    # Limits

    def _limited(self, begin: Positions, latest: Positions) -> Positions:
        limits = self._options.limits
        if limits.offsets_min is not None and self._target is None and self._waits(begin, latest):
            return {each: begin[each] for each in latest}
        end = latest
        if limits.offsets_max is not None:
            end = limited(begin, end, limits.offsets_max)
        if limits.bytes_max is not None:
            cost = self._planning().bytes_per_offset(begin, end)
            end = limited(begin, end, limits.bytes_max, cost=cost)
        return end

    def _waits(self, begin: Positions, latest: Positions) -> bool:
        """Too little is there, and it was not waited for long; with AvailableNow nothing more would come."""
        now = time.monotonic()
        limits = self._options.limits
        waited_ms = (now - self._triggered_at) * 1000 if self._triggered_at is not None else limits.delay_ms_max
        available = sum(offset - begin[each] for each, offset in latest.items())
        if waited_ms < limits.delay_ms_max and available < (limits.offsets_min or 0):
            return True
        self._triggered_at = now
        return False


def _up_to(stop_at: Mapping[TopicPartition, int], begin: Positions, latest: Positions) -> Positions:
    """No further than that, and never back: Spark asks for more until nothing moves."""
    ends = {each: min(stop_at.get(each, begin.get(each, 0)), offset) for each, offset in latest.items()}
    return {each: max(offset, begin.get(each, 0)) for each, offset in ends.items() if each in stop_at or each in begin}
