"""Tables as they are captured: what the stream says of them, with what only the catalogue knows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from strandline.cdc.expressions import NamePatterns
from strandline.cdc.model import UNKNOWN, CapturedColumn, CapturedTable
from strandline.cdc.postgres.pgoutput import RelationColumn, StreamRelation
from strandline.cdc.postgres.publications import TableId
from strandline.cdc.postgres.settings import PostgresCdcConfig
from strandline.cdc.postgres.types import TypeCatalog, TypeSettings, UnknownLabel, captured_column, source_type
from strandline.cdc.postgres.visibility import wait_until_visible
from strandline.cdc.selection import TableSelection

_COLUMNS: Final = """
    select a.attname::text, a.atttypid::bigint, a.atttypmod, a.attnotnull, pg_get_expr(d.adbin, d.adrelid),
           array_position((p.indkey::int2[])[0:p.indnkeyatts - 1], a.attnum),
           array_position((u.indkey::int2[])[0:u.indnkeyatts - 1], a.attnum),
           coalesce(a.attnum = any((i.indkey::int2[])[0:i.indnkeyatts - 1]), false)
    from pg_attribute a
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum and a.attgenerated = ''
    left join pg_index p on p.indrelid = a.attrelid and p.indisprimary
    left join pg_index i on i.indrelid = a.attrelid and i.indisreplident
    left join lateral (
        select x.indkey, x.indnkeyatts from pg_index x join pg_class c on c.oid = x.indexrelid
        where x.indrelid = a.attrelid and x.indisunique and x.indisvalid and x.indpred is null and not exists (
            select from unnest((x.indkey::int2[])[0:x.indnkeyatts - 1]) k
            left join pg_attribute m on m.attrelid = x.indrelid and m.attnum = k and k > 0
            where not coalesce(m.attnotnull, false)
        )
        order by c.relname limit 1
    ) u on p.indrelid is null
    where a.attrelid = %s and a.attnum > 0 and not a.attisdropped
    order by a.attnum
"""
_RELATION: Final = """
    select c.oid::bigint, c.relreplident, c.relkind from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relname = %s
"""


@dataclass(frozen=True)
class CatalogColumn:
    """What the catalogue knows of a column."""

    name: str
    type_oid: int
    modifier: int
    is_required: bool
    default: str | None
    """The expression of the default."""
    primary_place: int | None
    unique_place: int | None
    """Where it stands in the first unique index of NOT NULL columns, if the table has no primary key."""
    is_identity: bool
    """Whether it is in the index that is the replica identity."""


class StreamedTable:
    """A table of the stream; `table` is None if it is not captured."""

    __slots__ = ("full_name", "is_key", "name", "relation", "required", "schema", "table")

    def __init__(self, relation: StreamRelation, table: CapturedTable | None, required: tuple[int, ...]) -> None:
        self.relation = relation
        self.table = table
        self.is_key = tuple(each.is_key for each in relation.columns)
        self.required = required
        """Places of the columns that are not optional."""
        self.schema = relation.schema
        self.name = relation.name
        self.full_name = f"{relation.schema}.{relation.name}"

    def known_key(self, row: list[Any]) -> list[Any]:
        """Return an old row of which the stream has only the key."""
        return [value if is_key else UNKNOWN for value, is_key in zip(row, self.is_key, strict=True)]

    def is_same(self, other: StreamedTable) -> bool:
        """Return whether both have the same shape, and so the same schemas."""
        one, two = self.table, other.table
        if self.relation != other.relation or self.required != other.required or one is None or two is None:
            return self.relation == other.relation and one is two
        return one.key == two.key and [each and each.schema for each in one.columns] == [
            each and each.schema for each in two.columns
        ]

    def lacks_required(self, row: Sequence[Any]) -> bool:
        """Return whether a row has NULL in a column that the catalogue says to be NOT NULL: it was not at that time."""
        return any(row[at] is None for at in self.required)


class Tables:
    """Makes the captured tables of a connector."""

    def __init__(self, config: PostgresCdcConfig, connection: psycopg.Connection[Any]) -> None:
        self._config = config
        self._connection = connection
        self._selection = TableSelection(config)
        self._schemas = NamePatterns(config.schema_include_list), NamePatterns(config.schema_exclude_list)
        self._types = TypeCatalog.load(connection)
        self._type_settings = TypeSettings(
            decimal=config.decimal_handling_mode,
            time=config.time_precision_mode,
            binary=config.binary_handling_mode,
            interval=config.interval_handling_mode,
            hstore=config.hstore_handling_mode,
            money_digits=config.money_fraction_digits,
            include_unknown=config.include_unknown_datatypes,
            placeholder=config.unavailable_value_placeholder,
        )
        self.signal_table = _signal_table(config)
        self._visible_xid: int | None = None
        """The last transaction of the stream that was waited for."""

    def has(self, table: TableId) -> bool:
        """Return whether a table is captured."""
        schema, name = table
        include, exclude = self._schemas
        if not (include.matches(schema) if include else not exclude.matches(schema)):
            return False
        return self._selection.has_table(f"{schema}.{name}")

    def is_streamed(self, table: TableId) -> bool:
        """Return whether changes of a table are needed: it is captured, or it is the table for signals."""
        return self.has(table) or table == self.signal_table

    def of_stream(self, relation: StreamRelation, optional: frozenset[str] = frozenset()) -> StreamedTable:
        """Return the table of a relation. Columns of `optional` may be NULL, whatever the catalogue says."""
        if not self.has((relation.schema, relation.name)):
            return StreamedTable(relation, None, ())
        return self._made(relation, self._columns_of(self._connection, relation.oid), optional)

    def of_transaction(self, relation: StreamRelation, xid: int, stopping: threading.Event) -> StreamedTable:
        """Return the table of a relation that a transaction describes, as that transaction has left the catalogue."""
        if xid != self._visible_xid and self.has((relation.schema, relation.name)):
            wait_until_visible(self._connection, xid, stopping)
            self._visible_xid = xid
        return self.of_stream(relation)

    def of_catalog(
        self, connection: psycopg.Connection[Any], table: TableId, columns: Sequence[str] | None
    ) -> tuple[StreamedTable, bool] | None:
        """Return a table by the catalogue, and whether it is partitioned; None if it is gone.

        `columns` are those of the publication.
        """
        row = connection.execute(_RELATION, table).fetchone()
        if row is None:
            return None
        oid, identity, kind = row
        found = self._columns_of(connection, oid)
        relation = StreamRelation(
            oid,
            *table,
            identity,
            tuple(
                RelationColumn(each.name, each.type_oid, each.modifier, _is_key(identity, each))
                for each in found.values()
                if columns is None or each.name in columns
            ),
        )
        return self._made(relation, found, frozenset()), kind == "p"

    def unique_key(self, oid: int) -> tuple[str, ...]:
        """Return the columns of a table's primary key, or else of a unique index, in the order of the index."""
        return _unique_key(self._columns_of(self._connection, oid))

    def learn(self, found: UnknownLabel) -> None:
        """Read the types again, because a row has a label that its enum did not have."""
        self._types = TypeCatalog.load(self._connection)
        # An enum may have had it then, and not any more.
        self._types.add_label(found.enum, found.label)

    @staticmethod
    def _columns_of(connection: psycopg.Connection[Any], oid: int) -> dict[str, CatalogColumn]:
        rows = connection.execute(_COLUMNS, (oid,)).fetchall()
        return {row[0]: CatalogColumn(*row) for row in rows}

    def _made(
        self, relation: StreamRelation, catalog: dict[str, CatalogColumn], optional: frozenset[str]
    ) -> StreamedTable:
        full_name = f"{relation.schema}.{relation.name}"
        key = self._key_of(relation, catalog, full_name)
        columns: list[CapturedColumn | None] = []
        required = []
        if any(self._types.may_be_old(each.type_oid) for each in relation.columns):
            self._types = self._types.reloaded(self._connection)
        for at, each in enumerate(relation.columns):
            known = catalog.get(each.name)
            is_key = each.name in key
            is_required = (known is not None and known.is_required) or (known is None and is_key)
            is_required &= each.name not in optional
            made = captured_column(
                each.name,
                each.type_oid,
                each.modifier,
                is_optional=not is_required,
                default=None if known is None else known.default,
                catalog=self._types,
                settings=self._type_settings,
            )
            made = made and self._selection.captured(
                full_name, made, is_key=is_key, length=each.modifier - 4 if each.modifier > 4 else None
            )
            if made is not None:
                of = source_type(each.type_oid, each.modifier, self._types)
                made = self._selection.propagated(full_name, made, of)
            if made is not None and is_required:
                required.append(at)
            columns.append(made)
        present = {each.name for each in columns if each is not None}
        table = CapturedTable(
            self._config.database_dbname,
            relation.schema,
            relation.name,
            tuple(columns),
            tuple(each for each in key if each in present),
            relation.identity == "f",
        )
        return StreamedTable(relation, table, tuple(required))

    def _key_of(self, relation: StreamRelation, catalog: dict[str, CatalogColumn], full_name: str) -> tuple[str, ...]:
        names = tuple(each.name for each in relation.columns)
        chosen = self._selection.key_columns(full_name, names)
        if chosen is not None:
            return chosen
        key = tuple(each for each in _unique_key(catalog) if each in names)
        flagged = tuple(each.name for each in relation.columns if each.is_key)
        if relation.identity in "fn" or not flagged:
            # The flags of the stream name every column, or none.
            return key
        # The catalogue knows the order of the index; the flags are right even if the table was dropped since.
        return key if set(key) == set(flagged) else flagged


def _unique_key(catalog: dict[str, CatalogColumn]) -> tuple[str, ...]:
    places = {
        each.name: each.unique_place if each.primary_place is None else each.primary_place for each in catalog.values()
    }
    return tuple(sorted((name for name, at in places.items() if at is not None), key=lambda name: places[name] or 0))


def _is_key(identity: str, column: CatalogColumn) -> bool:
    return {"d": column.primary_place is not None, "i": column.is_identity, "f": True}.get(identity, False)


def _signal_table(config: PostgresCdcConfig) -> TableId | None:
    """Return the table for signals; its setting may begin with the database."""
    if not config.signal_data_collection:
        return None
    parts = config.signal_data_collection.split(".")
    return parts[-2] if len(parts) > 1 else "public", parts[-1]
