"""What the sinks of Iceberg and Delta have in common: rows are collected, then committed with their offsets.

A commit changes the table's rows and the offsets of this connector at once, so after a crash the table itself tells
where to go on. Each commit expects the offsets that the task saw last. If they have moved, another task has the
partition: this one stops, and what it holds is not written.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from typing import Any, Final, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc

from strandline.connect.config import Config, Long, option
from strandline.connect.failures import ConnectFailed, FencedOut, InvalidConnectorConfig, RecordFailed
from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.sink import Sink, SinkBatch
from strandline.connect.sinks.lake.digests import row_digest, row_key, table_digests
from strandline.connect.sinks.lake.evolution import Widening
from strandline.connect.sinks.lake.lake_table import (
    COMMIT_ATTEMPTS,
    CommitConflict,
    LakeTable,
    always_changed,
    back_off,
    change,
)
from strandline.connect.sinks.lake.rebuilding import drop_old_tables, swap_tables
from strandline.connect.sinks.lake.table_rows import DELETED, HIDDEN_MARK, ArrowRows
from strandline.connect.sinks.verifiable import ExpectedRow, TargetKey
from strandline.runtime.fault_points import fault_point

_ROW: Final = "__row"
_GROUP_ID: Final = "consumer.override.group.id"


class TableSinkConfig(Config):
    """Settings that all sinks for tables have."""

    table: str | None = option("Table of all records.", default=None, importance="HIGH")
    table_name_format: str = option("Table of a record, if there is no `table`.", default="${topic}")
    auto_create: bool = option("Whether a table that is missing is made.", default=True)
    auto_evolve: bool = option("Whether columns that are missing are added.", default=True)
    upsert: bool = option(
        "Whether a row replaces the one with the same key, and a tombstone deletes it.", default=False
    )
    key_fields: list[str] = option("Columns of the key, taken from the value or from the record's key.", default=[])
    commit_interval_ms: Long = option("Time between two commits.", default=60_000, low=0)
    buffer_bytes_max: Long = option("Bytes of collected rows after which they are committed.", default=128 << 20, low=1)
    include_metadata: bool = option(
        "Whether rows have columns for key, topic, partition, offset, timestamp and headers.", default=False
    )
    behavior_on_null_values: Literal["ignore", "write", "fail"] = option(
        "What to do with a record that has no value, if not `upsert`; `write` adds a column __deleted.",
        default="ignore",
    )

    engine: Literal["local", "spark"] = option(
        "What reads topics and writes files: the worker's own task, or Spark for large flows.", default="local"
    )
    spark_master: str = option("Where Spark runs: local[*], spark://host:7077, yarn, k8s://…", default="local[*]")
    spark_driver_memory: str | None = option(
        "Memory of Spark's driver, with a local master of all of it.", default=None
    )
    spark_executor_memory: str | None = option("Memory of an executor of Spark.", default=None)
    spark_cores_max: int | None = option("Cores that Spark takes of its cluster.", default=None, low=1)
    spark_batch_records_max: Long = option("Records of one commit of Spark.", default=5_000_000, low=1)

    def check_all(self) -> Sequence[tuple[str, str]]:
        if self.engine == "spark":
            wrong = refused_by_spark(self.properties, is_upsert=self.upsert)
            if wrong is not None:
                return [("engine", wrong)]
        if self.upsert and not self.key_fields:
            return [("key.fields", "upsert needs at least one field of the key")]
        if self.table is None and "${topic}" not in self.table_name_format and self.table_name_format:
            return [("table.name.format", "it has no ${topic}: use `table` for one table of all topics")]
        return ()


@dataclass
class _Target:
    """A table with what was collected for it."""

    table: LakeTable
    maker: ArrowRows
    rows: dict[TopicPosition, list[pa.Table]] = field(default_factory=dict)
    expected: dict[TopicPosition, int | None] = field(default_factory=dict)
    """The offsets that the table had when the task saw it last."""
    sent: dict[TopicPosition, tuple[int, int]] = field(default_factory=dict)
    """The offset of a commit whose answer was lost, and how many of `rows` it had."""

    @property
    def size_bytes(self) -> int:
        return sum(each.nbytes for rows in self.rows.values() for each in rows)


class TableSink(Sink):
    """Base of sinks for tables."""

    Config = TableSinkConfig
    config: TableSinkConfig
    keeps_offsets = True
    widening = Widening.NONE
    has_times = True
    """Whether tables have a type for the time of day."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        for name, message in self.config.check_all():
            raise InvalidConnectorConfig(f"{name}: {message}")
        self.now: Callable[[], float] = time.monotonic
        self._targets: dict[str, _Target] = {}
        self._ends: dict[TopicPosition, int] = {}
        """The offset behind what `write` has taken."""
        self._committed: dict[TopicPosition, int] = {}
        self._collecting_since: float | None = None
        self._read: dict[str, tuple[int | None, dict[TargetKey, bytes]]] = {}
        """The rows of tables as digests, by the version that was read."""
        self._suffix = ""
        """What the names of a fresh target's tables end with."""
        self._places: set[TopicPosition] = set()
        """Partitions that this sink has had."""

    @property
    def connector(self) -> str:
        return self.config.properties.get("name") or "sink"

    @abstractmethod
    def _table(self, name: str) -> LakeTable:
        """Return a table by its name, read again."""

    def table_named(self, name: str) -> LakeTable:
        """Return a table, read again. The sink has to be open."""
        return self._table(name)

    @property
    def process_module(self) -> str | None:
        return "strandline.spark.lake.connector_process" if self.config.engine == "spark" else None

    @classmethod
    def tasks(cls, config: Any, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return super().tasks(config, 1 if config.engine == "spark" else tasks_max)

    def resume(self, partitions: Sequence[TopicPosition]) -> Mapping[TopicPosition, int]:
        self.revoked(partitions)
        self._places.update(partitions)
        found = {}
        for name in {self.name_of(each.topic) for each in partitions}:
            table = self._table(name)
            for each in partitions:
                offset = table.offset(each) if self.name_of(each.topic) == name else None
                if offset is not None:
                    found[each] = offset
        return found

    def set_offsets(self, offsets: Mapping[TopicPosition, int | None]) -> None:
        """Set where to go on, None for what the group's offset says, which also holds if there is no table yet.

        Tables that transforms send records to keep their offsets: what they have is not written to them again.
        """
        for name in {self.name_of(each.topic) for each in offsets}:
            table = self._table(name)
            if table.columns() is not None:
                wanted = {each: offset for each, offset in offsets.items() if self.name_of(each.topic) == name}
                change(table, partial(table.set_offsets, wanted))

    def write(self, batch: SinkBatch) -> None:
        grouped: dict[str, dict[TopicPosition, list[SinkRecord]]] = {}
        for record in batch:
            position = TopicPosition(record.original_topic, record.original_partition)
            if self._is_wanted(record, position):
                grouped.setdefault(self.name_of(record.topic), {}).setdefault(position, []).append(record)
        # All rows are made before the first is kept, so a bad record changes nothing.
        made: list[tuple[_Target, TopicPosition, list[pa.Table]]] = []
        for name, parts in grouped.items():
            target = self._target(name)
            for position, records in parts.items():
                stored = self._expected(target, position) or 0
                fresh = [each for each in records if each.offset >= stored]
                if fresh:
                    made.append((target, position, target.maker.make(fresh)))
        for target, position, rows in made:
            target.rows.setdefault(position, []).extend(rows)
        for position, end in batch.ends.items():
            self._ends[position] = max(end, self._ends.get(position, 0))
        if made and self._collecting_since is None:
            self._collecting_since = self.now()
        if sum(each.size_bytes for each in self._targets.values()) >= self.config.buffer_bytes_max:
            self._commit_all()

    def flush(self) -> Mapping[TopicPosition, int]:
        """Commit what was collected, if it is time. Return the offsets behind what tables hold."""
        since = self._collecting_since
        if since is not None and (self.now() - since) * 1000 >= self.config.commit_interval_ms:
            self._commit_all()
        waiting = {position for target in self._targets.values() for position in target.rows}
        for position, end in self._ends.items():
            if position not in waiting:
                self._committed[position] = end
        return dict(self._committed)

    def revoked(self, partitions: Sequence[TopicPosition]) -> None:
        for position in partitions:
            self._ends.pop(position, None)
            self._committed.pop(position, None)
            for target in self._targets.values():
                target.rows.pop(position, None)
                target.expected.pop(position, None)

    def expected(self, record: SinkRecord) -> ExpectedRow:
        """Return where a record's row is, and its digest."""
        maker = self.maker(self._target(self._keyed(record.topic)).table)
        (row,) = maker.whole(maker.make([record])).to_pylist()
        is_deleted = row.pop(HIDDEN_MARK)
        key = row_key(self.name_of(record.topic), row, self.config.key_fields)
        return ExpectedRow(key, None if is_deleted else row_digest(row))

    def digests(self, keys: Collection[TargetKey]) -> Mapping[TargetKey, bytes]:
        """Return the digests of rows by their keys. A table is read again when it has changed."""
        found: dict[TargetKey, bytes] = {}
        for place in {each.place for each in keys}:
            table = self._table(place)
            version, rows = self._read.get(place, (None, {}))
            if place not in self._read or version != table.version():
                rows = dict(table_digests(place, table.read(), self.config.key_fields))
                self._read[place] = table.version(), rows
            found |= {each: rows[each] for each in keys if each in rows}
        return found

    def scan(self) -> Iterator[tuple[TargetKey, bytes]]:
        """Yield every row of the tables of the connector's topics."""
        for place in self._names():
            yield from table_digests(place, self._table(place).read(), self.config.key_fields)

    def fresh_target(self, suffix: str = "rebuild") -> Self:
        """Return a sink for tables whose names end with `__<suffix>`. It commits with each flush."""
        self._keyed("")
        if not self._names():
            raise InvalidConnectorConfig("topics.regex does not tell which tables to build again: use topics or table")
        fresh = type(self)(self.Config(self.config.properties | {"commit.interval.ms": "0"}))
        fresh.paths = self.paths
        fresh._suffix = f"__{suffix}"
        return fresh

    def swap(self) -> None:
        """Put the fresh tables in the place of the old ones, each in one commit; copies of the old ones are kept."""
        swap_tables(self._table, self._fresh_names(), self._suffix, self._places)

    def discard(self) -> None:
        for name in self._fresh_names():
            table = self._table(name)
            if table.columns() is not None:
                table.drop()

    def drop_old(self) -> None:
        drop_old_tables(self._table, self._names())

    def _names(self) -> list[str]:
        """Return the tables of the connector's topics, and those that records were sent to."""
        topics = [each.strip() for each in self.config.properties.get("topics", "").split(",") if each.strip()]
        of_topics = [self.name_of("")] if self.config.table else [self.name_of(each) for each in topics]
        return list(dict.fromkeys([*of_topics, *self._targets]))

    def _fresh_names(self) -> list[str]:
        if not self._suffix:
            raise ConnectFailed("this is no fresh target")
        return self._names()

    def _keyed(self, topic: str) -> str:
        """Return the table of a topic, if its rows have keys."""
        if not self.config.upsert:
            raise ConnectFailed("only a table with upsert=true can be compared with its topic: other rows have no key")
        return self.name_of(topic)

    def _is_wanted(self, record: SinkRecord, position: TopicPosition) -> bool:
        return record.offset >= self._ends.get(position, 0) and self.is_row(record)

    def is_row(self, record: SinkRecord) -> bool:
        """Return whether a record becomes a row, or an upsert. Raise RecordFailed for a tombstone that must not be."""
        if record.value is not None or self.config.upsert:
            return True
        if self.config.behavior_on_null_values == "fail":
            raise RecordFailed(f"the record of {record.place} has no value", record)
        return self.config.behavior_on_null_values == "write"

    def name_of(self, topic: str) -> str:
        """Return the table of a topic's records."""
        return (self.config.table or self.config.table_name_format.replace("${topic}", topic)) + self._suffix

    def _target(self, name: str) -> _Target:
        found = self._targets.get(name)
        if found is None:
            table = self._table(name)
            found = self._targets[name] = _Target(table, self.maker(table))
        return found

    def maker(self, table: LakeTable) -> ArrowRows:
        """Return what makes rows for a table, as it is now."""
        config = self.config
        columns = table.columns()
        if columns is None and not config.auto_create:
            raise ConnectFailed(f"the table {table.name} is missing, and auto.create is false")
        return ArrowRows(
            table.name,
            columns,
            widening=self.widening,
            key_fields=config.key_fields,
            may_evolve=config.auto_evolve,
            has_metadata=config.include_metadata,
            delete_mark=HIDDEN_MARK
            if config.upsert
            else DELETED
            if config.behavior_on_null_values == "write"
            else None,
            has_times=self.has_times,
        )

    def _expected(self, target: _Target, position: TopicPosition) -> int | None:
        if position not in target.expected:
            target.table.refresh()
            target.expected[position] = target.table.offset(position)
        return target.expected[position]

    def _commit_all(self) -> None:
        """Commit to every table, the one that `resume` reads last."""
        names = [name for name, target in self._targets.items() if target.rows]
        after: dict[str, set[str]] = {name: set() for name in names}
        for name in names:
            for position in self._targets[name].rows:
                home = self.name_of(position.topic)
                if home != name and home in after:
                    after[home].add(name)
        try:
            ordered = list(TopologicalSorter(after).static_order())
        except CycleError:
            raise ConnectFailed(
                f"transforms send records of one topic to the tables of another and back ({', '.join(names)}): "
                "use one connector for each table"
            ) from None
        for name in ordered:
            self._commit(self._targets[name])
        self._collecting_since = None

    def _commit(self, target: _Target) -> None:
        table = target.table
        for attempt in range(COMMIT_ATTEMPTS):
            table.refresh()
            self._drop_landed(target)
            ends = {position: self._ends[position] for position in target.rows}
            if not ends:
                return
            self._check_fence(target, ends)
            target.sent = {position: (end, len(target.rows[position])) for position, end in ends.items()}
            try:
                self._commit_once(target, ends)
                break
            except CommitConflict:
                target.sent = {}
                back_off(attempt)
        else:
            raise always_changed(table)
        target.expected |= ends
        target.rows, target.sent = {}, {}
        target.maker = self.maker(table)

    def _drop_landed(self, target: _Target) -> None:
        """Forget rows of an attempt that was committed, although its answer was lost."""
        sent, target.sent = target.sent, {}
        if not sent or any(target.table.offset(each) != end for each, (end, _) in sent.items()):
            return
        for position, (end, count) in sent.items():
            target.expected[position] = end
            left = target.rows.get(position, [])[count:]
            if left:
                target.rows[position] = left
            else:
                target.rows.pop(position, None)
        if not target.rows:
            target.maker = self.maker(target.table)

    def _check_fence(self, target: _Target, ends: Mapping[TopicPosition, int]) -> None:
        for each in ends:
            found, expected = target.table.offset(each), target.expected[each]
            if found != expected:
                raise FencedOut(
                    f"another task writes {each.topic}-{each.partition} to {target.table.name}: the table holds offset "
                    f"{found} where this task had {expected}"
                )

    def _commit_once(self, target: _Target, ends: Mapping[TopicPosition, int]) -> None:
        fault_point("before-commit")
        rows = target.maker.whole([each for rows in target.rows.values() for each in rows])
        deleted = None
        if self.config.upsert:
            rows, deleted = _last_by_key(rows, self.config.key_fields)
        if target.table.columns() is None:
            target.table.create(rows.schema)
            fault_point("commit-sent")
        target.table.commit(rows, deleted, ends)
        fault_point("after-commit")


def refused_by_spark(properties: Mapping[str, str], *, is_upsert: bool) -> str | None:
    """Return why engine=spark cannot run a config; None if it can."""
    overrides = [each for each in properties if each.startswith("consumer.override.") and each != _GROUP_ID]
    if is_upsert:
        return "engine=spark only adds rows, and upsert=true replaces some: leave out one of both"
    if properties.get("errors.tolerance", "none") != "none" or properties.get("errors.deadletterqueue.topic.name"):
        return "engine=spark leaves out no record: errors.tolerance and dead letters need engine=local"
    limits = [each for each in properties if each.startswith("rate.limit.")]
    if limits:
        return f"engine=spark has no {limits[0]}: spark.batch.records.max says how much it takes at once"
    if overrides:
        return f"engine=spark has a reader of its own, which has no {overrides[0]}: leave it out"
    if find_spec("pyspark") is None:
        return "engine=spark needs the package pyspark: pip install 'strandline[spark]'"
    return None


def _last_by_key(rows: pa.Table, key_fields: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Return the last row of each key, and the keys whose last row is a tombstone."""
    names = list(key_fields)
    numbered = rows.select(names).append_column(_ROW, pa.array(range(len(rows)), pa.int64()))
    last = numbered.group_by(names).aggregate([(_ROW, "max")]).column(f"{_ROW}_max")
    kept = rows.take(last.take(pc.sort_indices(last)))
    is_deleted = kept.column(HIDDEN_MARK)
    written = kept.filter(pc.invert(is_deleted)).drop_columns([HIDDEN_MARK])
    return written, kept.filter(is_deleted).select(names)
