"""Offsets in the target: how far each partition is written, stored with the rows.

    strandline_sink_offsets(connector, topic, partition, offset, epoch)

`offset` is the next one to write, null if there is none yet. A task that gets a partition adds one to its `epoch`, and
writes only while it finds its own: so a task that lost the partition, and has not noticed, writes nothing any more.

    strandline_sink_tables(connector, table_schema, table_name)

names the tables that a connector has written, for verification and rebuilds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from strandline.connect.failures import ConnectFailed, FencedOut
from strandline.connect.records import TopicPosition
from strandline.connect.sinks.sql.columns import ColumnType
from strandline.connect.sinks.sql.database import Database
from strandline.connect.sinks.sql.tables import NewColumn, TableName

OFFSETS: Final = TableName("strandline_sink_offsets")
TABLES: Final = TableName("strandline_sink_tables")
_OFFSETS: Final = (
    NewColumn("connector", ColumnType.TEXT, is_key=True),
    NewColumn("topic", ColumnType.TEXT, is_key=True),
    NewColumn("partition", ColumnType.INTEGER, is_key=True),
    NewColumn("offset", ColumnType.BIGINT),
    NewColumn("epoch", ColumnType.BIGINT),
)
_TABLES: Final = (
    NewColumn("connector", ColumnType.TEXT, is_key=True),
    NewColumn("table_schema", ColumnType.TEXT, is_key=True),
    NewColumn("table_name", ColumnType.TEXT, is_key=True),
)


class StoredOffsets:
    """Offsets of a connector. Methods run in a transaction of the caller, unless they have one of their own."""

    def __init__(self, database: Database, connector: str) -> None:
        self._database = database
        self._connector = connector
        self._epochs: dict[TopicPosition, int] = {}

    def create_tables(self) -> None:
        """Create both tables where they are missing, in a transaction of its own."""
        missing = [each for each in ((OFFSETS, _OFFSETS), (TABLES, _TABLES)) if self._database.shape(each[0]) is None]
        if missing:
            with self._database.changing_tables():
                for name, columns in missing:
                    self._database.create(name, columns)

    def claim(self, partitions: Iterable[TopicPosition]) -> dict[TopicPosition, int]:
        """Take over partitions, in a transaction of its own. Return where to go on in those that were written before.

        This waits for a transaction of the task that had them before, so what that one commits is not missed.
        """
        mark = self._database.mark
        statement = (
            f'insert into {OFFSETS} (connector, topic, "partition", epoch) values ({mark}, {mark}, {mark}, 1)'
            f' on conflict (connector, topic, "partition") do update set epoch = coalesce({OFFSETS}.epoch, 0) + 1'
            ' returning "offset", epoch'
        )
        found, epochs = {}, {}
        with self._database.transaction():
            # In one order everywhere, so that two tasks never wait for each other.
            for each in sorted(partitions):
                ((offset, epochs[each]),) = self._database.run(statement, (self._connector, each.topic, each.partition))
                if offset is not None:
                    found[each] = offset
        self._epochs |= epochs
        return found

    def unclaimed(self, partitions: Iterable[TopicPosition]) -> list[TopicPosition]:
        return [each for each in partitions if each not in self._epochs]

    def lock(self, partitions: Iterable[TopicPosition]) -> dict[TopicPosition, int]:
        """Lock partitions until the transaction ends. Return what is stored of those that were written before.

        Raise FencedOut if another task has taken one over.
        """
        mark = self._database.mark
        statement = (
            f'select "offset", epoch from {OFFSETS} where connector = {mark} and topic = {mark}'
            f' and "partition" = {mark}{self._database.for_update}'
        )
        found = {}
        for each in sorted(partitions):
            rows = self._database.run(statement, (self._connector, each.topic, each.partition))
            if not rows or rows[0][1] != self._epochs[each]:
                raise FencedOut(f"another task of {self._connector} writes {each.topic}-{each.partition} by now")
            if rows[0][0] is not None:
                found[each] = rows[0][0]
        return found

    def store(self, ends: Mapping[TopicPosition, int]) -> None:
        """Store the offsets behind what was written."""
        mark = self._database.mark
        statement = (
            f'update {OFFSETS} set "offset" = {mark}'
            f' where connector = {mark} and topic = {mark} and "partition" = {mark}'
        )
        for each in sorted(ends):
            self._database.run(statement, (ends[each], self._connector, each.topic, each.partition))

    def set(self, offsets: Mapping[TopicPosition, int | None]) -> None:
        """Set offsets, in a transaction of its own, as an administrator wants them."""
        with self._database.transaction():
            for each in sorted(offsets):
                _put(self._database, self._connector, each, offsets[each], 1)

    def forget(self, partitions: Iterable[TopicPosition]) -> None:
        """Forget partitions that were revoked."""
        for each in partitions:
            self._epochs.pop(each, None)


class WrittenTables:
    """The tables of a connector, by a table in the target."""

    def __init__(self, database: Database, connector: str) -> None:
        self._database = database
        self._connector = connector

    def add(self, name: TableName) -> None:
        """Note a table. Raise ConnectFailed if another one of the connector is the same for the database."""
        fold = self._database.fold
        for each in self.all():
            if each != name and fold(str(each)) == fold(str(name)):
                raise ConnectFailed(f"{each} and {name} are one table in {self._database.title}")
        mark = self._database.mark
        self._database.run(
            f"insert into {TABLES} values ({mark}, {mark}, {mark}) on conflict do nothing",
            (self._connector, name.schema or "", name.table),
        )

    def all(self) -> list[TableName]:
        """Return every table, those with a schema last."""
        mark = self._database.mark
        found = self._database.run(
            f"select table_schema, table_name from {TABLES} where connector = {mark} order by 1, 2", (self._connector,)
        )
        return [TableName(table, schema or None) for schema, table in found]

    def clear(self) -> None:
        self._database.run(f"delete from {TABLES} where connector = {self._database.mark}", (self._connector,))


def move_offsets(database: Database, fresh: str, connector: str) -> None:
    """Give the offsets of a fresh target to its connector. Tasks of both are fenced out.

    Raise ConnectFailed if it has not read a partition that the connector has: the group's offset would skip its rows.
    """
    mark = database.mark
    found = database.run(
        f'select topic, "partition", "offset", coalesce(epoch, 0) from {OFFSETS} where connector = {mark}', (fresh,)
    )
    read = {(topic, partition) for topic, partition, offset, _ in found if offset is not None}
    for topic, partition in database.run(
        f'select topic, "partition" from {OFFSETS} where connector = {mark} and "offset" is not null', (connector,)
    ):
        if (topic, partition) not in read:
            raise ConnectFailed(
                f"the fresh target of {connector} lacks {topic}-{partition}, so it cannot replace the old"
            )
    database.run(f"delete from {OFFSETS} where connector = {mark}", (fresh,))
    for topic, partition, offset, epoch in found:
        _put(database, connector, TopicPosition(topic, partition), offset, epoch)


def _put(database: Database, connector: str, place: TopicPosition, offset: int | None, epoch: int) -> None:
    """Store an offset, with an epoch that no task has: the sum of the old one and another."""
    mark = database.mark
    database.run(
        f'insert into {OFFSETS} (connector, topic, "partition", "offset", epoch)'
        f" values ({mark}, {mark}, {mark}, {mark}, {mark})"
        ' on conflict (connector, topic, "partition") do update set "offset" = excluded."offset",'
        f" epoch = coalesce({OFFSETS}.epoch, 0) + excluded.epoch",
        (connector, place.topic, place.partition, offset, epoch),
    )
