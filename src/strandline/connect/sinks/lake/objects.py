"""Objects in S3, Google Cloud Storage, Azure or a directory, each record in exactly one of them.

    <store.url>/<topics.dir>/<topic>/<directory of the partitioner>/<topic>+<partition>+<first offset>.parquet

The records alone decide where an object ends (`chunks`), and its name is that of its first record. So a task that
writes again what it had written before a crash replaces objects with equal ones. Cuts by the clock are not repeated
like that: with `rotate.schedule.interval.ms` the store also holds an offset for each partition. It moves after each
chunk, so at most one chunk is written again, and each of its objects is replaced.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self
from zoneinfo import ZoneInfo

from obstore.store import ObjectStore

from strandline.connect.config import Long, option
from strandline.connect.failures import ConnectFailed, FencedOut, InvalidConnectorConfig, RecordFailed
from strandline.connect.object_store import StoreConfig, open_store
from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.sink import Sink, SinkBatch
from strandline.connect.sinks.counted_rows import CountedRows
from strandline.connect.sinks.lake.chunks import CutRules, ObjectChunk
from strandline.connect.sinks.lake.digests import plain_row
from strandline.connect.sinks.lake.generations import FoundObject, ObjectGenerations
from strandline.connect.sinks.lake.object_format import (
    Compression,
    JsonObjects,
    ObjectFormat,
    ParquetObjects,
    read_rows,
)
from strandline.connect.sinks.lake.paths import by_fields, by_time, pattern_problem, zone_problem
from strandline.connect.sinks.verifiable import ExpectedRow, TargetKey
from strandline.runtime.fault_points import fault_point

OFFSET_DIGITS: Final = 20
_BYTES_MAX: Final = 2**30
"""Arrow's columns of text and bytes end at 2 GiB."""


class ObjectSinkConfig(StoreConfig):
    """Settings of the object sink."""

    topics_dir: str = option("Directory of all topics.", default="topics")
    format: Literal["parquet", "json"] = option("What an object holds.", default="parquet", importance="HIGH")
    compression: Compression | None = option(
        "Compression; snappy for Parquet and none for JSON by default.", default=None
    )
    partitioner: Literal["none", "time", "field"] = option("What names the directories in a topic.", default="none")
    path_format: str = option(
        "Directory of a time, as strftime has it.",
        default="year=%Y/month=%m/day=%d/hour=%H",
        check=pattern_problem,
    )
    timezone: str = option("Time zone of path.format.", default="UTC", check=zone_problem)
    timestamp_field: str | None = option("Field that holds the time; without one the record's timestamp.", default=None)
    partition_fields: list[str] = option("Fields that name the directories.", default=[])
    flush_size: int = option("Records of a partition after which its objects are written.", default=100_000, low=1)
    buffer_bytes_max: Long = option(
        "Bytes of a partition's values after which its objects are written.", default=64 << 20, low=1, high=_BYTES_MAX
    )
    rotate_interval_ms: Long | None = option(
        "Record time after which the objects of a partition are written, when a later record comes.",
        default=None,
        low=1,
    )
    rotate_schedule_interval_ms: Long | None = option(
        "Time of the clock after which the objects of a partition are written.", default=None, low=1
    )
    include_metadata: bool = option(
        "Whether objects have columns for key, topic, partition, offset, timestamp and headers.", default=False
    )
    behavior_on_null_values: Literal["ignore", "write", "fail"] = option(
        "What to do with a record that has no value.", default="ignore"
    )

    def check_all(self) -> Sequence[tuple[str, str]]:
        wrong = []
        if self.format == "json" and self.compression == "snappy":
            wrong.append(("compression", "JSON is compressed with gzip or zstd, not with snappy"))
        if self.partitioner == "field" and not self.partition_fields:
            wrong.append(("partition.fields", "the partitioner field needs at least one field"))
        return wrong


@dataclass
class _Sealed:
    """A chunk that is complete; `objects` are those that are still to be written."""

    position: TopicPosition
    end: int
    objects: list[tuple[str, Any]]


class ObjectSink(Sink):
    """Writes records into objects of Parquet or JSON."""

    Config = ObjectSinkConfig
    config: ObjectSinkConfig

    def __init__(self, config: ObjectSinkConfig) -> None:
        super().__init__(config)
        for name, message in config.check_all():
            raise InvalidConnectorConfig(f"{name}: {message}")
        self.store: ObjectStore | None = None
        self.now = time.monotonic
        self._rules = CutRules(config.flush_size, config.buffer_bytes_max, config.rotate_interval_ms)
        self._format = _format_of(config)
        self._open: dict[TopicPosition, ObjectChunk] = {}
        self._sealed: list[_Sealed] = []
        self._next: dict[TopicPosition, int] = {}
        """The offset behind what `write` has taken; a batch that is written again begins before it."""
        self._done: dict[TopicPosition, int] = {}
        self._is_fresh = False
        self._generation = 0
        self._rows: CountedRows | None = None
        self._counted: dict[str, FoundObject] = {}
        """The objects whose rows are counted."""
        self._is_stale = True
        self._path: Callable[[SinkRecord], str] | None
        match config.partitioner:
            case "time":
                self._path = by_time(config.path_format, ZoneInfo(config.timezone), config.timestamp_field)
            case "field":
                self._path = by_fields(config.partition_fields)
            case _:
                self._path = None

    def open(self) -> None:
        if self.store is None:
            self.store = open_store(self.config, self.paths, makes_directory=True)
        self._generation = self._objects.current() + self._is_fresh

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()
            self._rows = None

    def resume(self, partitions: Sequence[TopicPosition]) -> Mapping[TopicPosition, int]:
        self.revoked(partitions)
        if not self._keeps_offsets:
            return {}
        found = {}
        for each in partitions:
            offset = self._stored(each)
            if offset is not None:
                found[each] = offset
        return found

    def write(self, batch: SinkBatch) -> None:
        self._upload()
        parts = self._fresh(batch)
        # Every record is converted before the first is taken, so a bad one changes nothing.
        prepared = [
            (position, self._format.prepare(records), self._paths(records)) for position, records in parts.items()
        ]
        for position, records, paths in prepared:
            self._take(position, records, paths)
        for position, end in batch.ends.items():
            self._next[position] = max(end, self._next.get(position, 0))
            if position not in self._open:
                # Records that are not written, for example tombstones, are done with what is before them.
                self._done[position] = self._next[position]

    def flush(self) -> Mapping[TopicPosition, int]:
        """Write what is due. Return the offsets behind complete objects: what is only kept is read again."""
        every_ms = self.config.rotate_schedule_interval_ms
        if every_ms is not None:
            for position, chunk in list(self._open.items()):
                if (self.now() - chunk.opened_at) * 1000 >= every_ms:
                    self._seal(position)
        if self._is_fresh:
            # The last records, too: the offsets of a fresh target say where to go on.
            for position in list(self._open):
                self._seal(position)
        self._upload()
        return dict(self._done)

    def revoked(self, partitions: Sequence[TopicPosition]) -> None:
        gone = set(partitions)
        self._sealed = [each for each in self._sealed if each.position not in gone]
        for each in gone:
            for kept in (self._open, self._next, self._done):
                kept.pop(each, None)

    def expected(self, record: SinkRecord) -> ExpectedRow:
        """Return the row of a record, and how often it is expected by now."""
        if record.value is None and self.config.behavior_on_null_values != "write":
            raise RecordFailed(f"the record of {record.place} has no value", record)
        (path,) = self._paths([record])
        row = plain_row(self._format.row(record))
        return self._counts().expect(record, f"{path}/{record.original_topic}+{record.original_partition}", row)

    def digests(self, keys: Collection[TargetKey]) -> Mapping[TargetKey, bytes]:
        """Return how often the objects have rows. They are listed once for each time that all rows are asked for."""
        if self._is_stale:
            self._count_rows()
        return self._counts().digests(keys)

    def scan(self) -> Iterator[tuple[TargetKey, bytes]]:
        """Yield every row of every object."""
        self._count_rows()
        yield from self._counts().scan()
        self._is_stale = True

    def fresh_target(self, suffix: str = "rebuild") -> Self:
        """Return a sink that writes the next generation. Generations have numbers, so the suffix names nothing."""
        fresh = type(self)(self.config)
        fresh.paths, fresh.store, fresh._is_fresh = self.paths, self.store, True
        return fresh

    def swap(self) -> None:
        """Have the fresh generation count. A task that writes the old one is fenced out at its next object."""
        self.flush()
        if not self._is_fresh or not any(self._objects.objects(self._generation)):
            raise ConnectFailed("there are no fresh objects: they were never written, or are swapped already")
        fault_point("before-commit")
        self._objects.point_at(self._generation)
        fault_point("after-commit")

    def discard(self) -> None:
        if not self._is_fresh:
            raise ConnectFailed("these objects are no fresh ones")
        self._objects.remove(self._generation)

    def drop_old(self) -> None:
        for generation in range(self._generation):
            self._objects.remove(generation)

    def _counts(self) -> CountedRows:
        if self._rows is None:
            self._rows = CountedRows()
        return self._rows

    def _count_rows(self) -> None:
        """Count the rows of objects that are new, and forget those that were replaced."""
        found = {each.path: each for each in self._objects.objects(self._generation)}
        for path, known in list(self._counted.items()):
            if found.get(path) != known:
                self._counts().forget(known.place, path)
                del self._counted[path]
        for path, each in found.items():
            if path not in self._counted and (content := self._objects.read(path)) is not None:
                self._counts().add(each.place, path, (plain_row(row) for row in read_rows(path, content)))
                self._counted[path] = each
        self._is_stale = False

    def _fresh(self, batch: SinkBatch) -> dict[TopicPosition, list[SinkRecord]]:
        """Return the records of each partition that are written, without those that a batch before had."""
        on_null = self.config.behavior_on_null_values
        found: dict[TopicPosition, list[SinkRecord]] = {}
        topic, partition, after, records = "", -1, 0, []
        for record in batch:
            if record.original_partition != partition or record.original_topic != topic:
                topic, partition = record.original_topic, record.original_partition
                position = TopicPosition(topic, partition)
                after, records = self._next.get(position, 0), found.setdefault(position, [])
            if record.offset < after:
                continue
            if record.value is None and on_null != "write":
                if on_null == "fail":
                    raise RecordFailed(f"the record of {record.place} has no value", record)
                continue
            records.append(record)
        return found

    def _paths(self, records: Sequence[SinkRecord]) -> Sequence[str]:
        """Return the directory of each record's object."""
        if self._path is None:
            return [each.topic for each in records]
        return [f"{each.topic}/{self._path(each)}" for each in records]

    def _take(self, position: TopicPosition, records: Sequence[SinkRecord], paths: Sequence[str]) -> None:
        """Add records of one partition to its chunks, and write those that are complete."""
        at = 0
        while at < len(records):
            chunk = self._open.get(position)
            if chunk is None:
                chunk = self._open[position] = ObjectChunk(self.now())
            at += chunk.take(records, paths, at, self._rules)
            self._next[position] = chunk.end
            if at < len(records) or chunk.is_full(self._rules):
                self._seal(position)

    def _seal(self, position: TopicPosition) -> None:
        """Complete the open chunk of a partition, and write its objects."""
        chunk = self._open.pop(position)
        objects = []
        for path, records in chunk.groups.items():
            for first, content in self._format.encode(records, chunk.shape):
                name = f"{position.topic}+{position.partition}+{first.offset:0{OFFSET_DIGITS}}{self._format.suffix}"
                objects.append((f"{self._directory}/{path}/{name}".lstrip("/"), content))
        self._sealed.append(_Sealed(position, chunk.end, objects))
        self._upload()

    def _upload(self) -> None:
        """Write the objects of complete chunks in order. What fails stays, and is tried again with the next batch."""
        while self._sealed:
            if not self._is_fresh and self._objects.current() != self._generation:
                raise FencedOut("a rebuild has put other objects in the place of those that this task writes")
            sealed = self._sealed[0]
            while sealed.objects:
                path, content = sealed.objects[0]
                fault_point("before-produce")
                self._objects.put(path, content)
                fault_point("after-produce")
                del sealed.objects[0]
            fault_point("before-commit")
            if self._keeps_offsets:
                stored = json.dumps({"offset": sealed.end}).encode()
                self._objects.put(self._offset_path(sealed.position), stored)
            fault_point("after-commit")
            self._done[sealed.position] = sealed.end
            del self._sealed[0]

    def _stored(self, position: TopicPosition) -> int | None:
        path = self._offset_path(position)
        found = self._objects.read_json(path)
        try:
            return None if found is None else int(found["offset"])
        except (KeyError, TypeError, ValueError) as error:
            raise ConnectFailed(f"the object {path} holds no offset: {error}") from None

    def _offset_path(self, position: TopicPosition) -> str:
        return self._objects.control_path(self._directory, f"{position.topic}+{position.partition}.json")

    @property
    def _keeps_offsets(self) -> bool:
        """Whether the store has the offsets: the group's do not fit objects that a clock or a rebuild has cut."""
        return self.config.rotate_schedule_interval_ms is not None or self._generation > 0

    @property
    def _directory(self) -> str:
        return self._objects.directory(self._generation)

    @property
    def _objects(self) -> ObjectGenerations:
        assert self.store is not None
        return ObjectGenerations(self.store, self.config.topics_dir, self.config.properties)


def _format_of(config: ObjectSinkConfig) -> ObjectFormat:
    if config.format == "json":
        return JsonObjects(config.compression or "none", has_metadata=config.include_metadata)
    return ParquetObjects(config.compression or "snappy", has_metadata=config.include_metadata)
