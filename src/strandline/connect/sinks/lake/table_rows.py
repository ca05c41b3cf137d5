"""Records as rows of a table: typed by the table where it has the column, by schema or value where it has not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from strandline.connect.failures import RecordFailed
from strandline.connect.records import SinkRecord
from strandline.connect.schema import ConnectType, Schema
from strandline.connect.sinks.lake.columns import (
    METADATA,
    NOT_CONVERTED,
    VALUE,
    Shape,
    array_of,
    arrow_type,
    first_that_fails,
    is_same_shape,
    metadata_of,
    shape_of,
    typed,
)
from strandline.connect.sinks.lake.evolution import Widening, fitted, merged_type

DELETED: Final = "__deleted"
"""The column that tells tombstones from other rows, if they are rows at all."""
HIDDEN_MARK: Final = "__strandline_deleted"
"""The same on the way to an upsert; the table has no such column."""


class ArrowRows:
    """Makes rows for one table. `columns` are those that the table will have."""

    def __init__(
        self,
        table: str,
        columns: Mapping[str, pa.DataType] | None,
        *,
        widening: Widening,
        key_fields: Sequence[str] = (),
        may_evolve: bool = True,
        has_metadata: bool = False,
        delete_mark: str | None = None,
        has_times: bool = True,
    ) -> None:
        self._table = table
        self._stored = dict(columns or {})
        self.columns = dict(columns or {})
        self._widening = widening
        self._key_fields = key_fields
        self._may_evolve = may_evolve or columns is None
        self._has_metadata = has_metadata
        self._delete_mark = delete_mark
        self._has_times = has_times
        if delete_mark == HIDDEN_MARK:
            self.columns[HIDDEN_MARK] = pa.bool_()

    def make(self, records: Sequence[SinkRecord]) -> list[pa.Table]:
        """Return the rows of records, a table for each run of one schema. Raise RecordFailed for one that has none.

        The columns grow only if all records fit.
        """
        before = dict(self.columns)
        try:
            return [self._rows(run, shape) for run, shape in _runs(records)]
        except RecordFailed:
            self.columns = before
            raise

    def whole(self, rows: Sequence[pa.Table]) -> pa.Table:
        """Return rows as one table that has all columns, in their order."""
        schema = pa.schema(list(self.columns.items()))
        made = []
        for each in rows:
            arrays = [
                fitted(each.column(name), kind) if name in each.column_names else pa.nulls(len(each), kind)
                for name, kind in self.columns.items()
            ]
            made.append(pa.Table.from_arrays(arrays, schema=schema))
        return pa.concat_tables(made).combine_chunks() if made else schema.empty_table()

    def _rows(self, records: Sequence[SinkRecord], shape: Shape | None) -> pa.Table:
        made: dict[str, pa.Array | pa.ChunkedArray] = {}
        for name, (values, kind) in self._values(records, shape).items():
            column = self._column(name, values, kind, records)
            if column is not None:
                made[name] = column
        if self._delete_mark is not None:
            flags = pa.array([each.value is None for each in records])
            made[self._delete_mark] = self._known(self._delete_mark, flags, records)
        if self._has_metadata:
            for field, column in zip(METADATA, self._metadata(records).columns, strict=True):
                made[field.name] = self._known(field.name, column, records)
        if not made:
            # A table without columns would forget how many rows it has.
            made[VALUE] = self._known(VALUE, pa.nulls(len(records), pa.binary()), records)
        return pa.table(made)

    def _values(
        self, records: Sequence[SinkRecord], shape: Shape | None
    ) -> dict[str, tuple[list[Any], pa.DataType | Shape | None]]:
        """Return the values of each column, with its type where the records have one."""
        made: dict[str, tuple[list[Any], pa.DataType | Shape | None]] = {}
        if isinstance(shape, Schema) and shape.kind is ConnectType.STRUCT:
            for each in shape.fields:
                made[each.name] = ([_field(record, each.name) for record in records], arrow_type(each.schema))
        elif shape == "struct":
            names = dict.fromkeys(name for record in records if record.value is not None for name in record.value)
            for name in names:
                if not isinstance(name, str):
                    bad = next(each for each in records if each.value is not None and name in each.value)
                    raise RecordFailed(f"the record of {bad.place} has a field that is no text: {name!r}", bad)
                made[name] = ([_field(record, name) for record in records], None)
        elif shape is not None:
            made[VALUE] = ([record.value for record in records], shape)
        for name in self._key_fields:
            kind = made[name][1] if name in made else None
            made[name] = ([self._key(record, name) for record in records], kind or _key_type(records, name))
        return made

    def _key(self, record: SinkRecord, name: str) -> Any:
        if isinstance(record.value, dict) and name in record.value:
            found = record.value[name]
        elif isinstance(record.key, dict):
            found = record.key.get(name)
        else:
            found = record.key if len(self._key_fields) == 1 else None
        if found is None:
            raise RecordFailed(f"the record of {record.place} has no {name}, which key.fields names", record)
        return found

    def _column(
        self, name: str, values: list[Any], kind: pa.DataType | Shape | None, records: Sequence[SinkRecord]
    ) -> pa.Array | pa.ChunkedArray | None:
        try:
            array = _array(values, kind)
        except NOT_CONVERTED as error:
            by_record = {id(each): value for each, value in zip(records, values, strict=True)}
            bad = first_that_fails(records, lambda some: _array([by_record[id(each)] for each in some], kind))
            raise RecordFailed(f"{name} of the record of {bad.place} has no column: {error}", bad) from None
        kept = typed(array.type)
        if kept is None:
            return None
        return self._known(name, array if kept == array.type else pa.array(values, type=kept), records, values)

    def _known(
        self, name: str, array: pa.Array, records: Sequence[SinkRecord], values: Sequence[Any] = ()
    ) -> pa.Array | pa.ChunkedArray:
        """Return a column with the type that the table has for it, or will have. `values` are those of the records."""
        known = self.columns.get(name)
        if pa.types.is_time(array.type) and not self._has_times:
            array = array.cast(pa.string())
        if known is None:
            merged: pa.DataType | None = array.type
        else:
            merged = merged_type(known, array.type, self._widening if name in self._stored else Widening.ANY)
        if merged is None:
            raise self._misfit(name, records, values, f"{array.type} does not fit into {known}")
        if merged != known and not self._may_evolve:
            raise self._misfit(name, records, values, "the table has no such column, and auto.evolve is false")
        try:
            column = fitted(array, merged)
        except NOT_CONVERTED as error:
            raise self._misfit(name, records, values, str(error)) from None
        self.columns[name] = merged
        return column

    def _misfit(self, name: str, records: Sequence[SinkRecord], values: Sequence[Any], why: str) -> RecordFailed:
        """Name the first record whose value does not fit alone."""
        bad = next(
            (each for each, value in zip(records, values, strict=False) if not self._fits_alone(name, value)),
            records[0],
        )
        return RecordFailed(f"{name} of the record of {bad.place} is not written to {self._table}: {why}", bad)

    def _fits_alone(self, name: str, value: Any) -> bool:
        known = self.columns.get(name)
        if value is None or known is None:
            return value is None
        try:
            alone = pa.array([value])
            kind = merged_type(known, alone.type, self._widening if name in self._stored else Widening.ANY)
            if kind is None or (kind != known and not self._may_evolve):
                return False
            fitted(alone, kind)
        except NOT_CONVERTED:
            return False
        return True

    def _metadata(self, records: Sequence[SinkRecord]) -> pa.Table:
        try:
            return metadata_of(records)
        except NOT_CONVERTED as error:
            bad = first_that_fails(records, metadata_of)
            raise RecordFailed(f"the key or a header of the record of {bad.place} is no text: {error}", bad) from None


def _runs(records: Sequence[SinkRecord]) -> list[tuple[list[SinkRecord], Shape | None]]:
    """Return runs of records with one shape; tombstones belong to the run before."""
    runs: list[tuple[list[SinkRecord], Shape | None]] = []
    for record in records:
        shape = shape_of(record)
        if runs:
            run, known = runs[-1]
            if shape is None or known is None or is_same_shape(shape, known):
                run.append(record)
                runs[-1] = (run, known if shape is None else shape)
                continue
        runs.append(([record], shape))
    return runs


def _array(values: list[Any], kind: pa.DataType | Shape | None) -> pa.Array:
    return array_of(values, kind) if isinstance(kind, Schema | str) else pa.array(values, type=kind)


def _field(record: SinkRecord, name: str) -> Any:
    return None if record.value is None else record.value.get(name)


def _key_type(records: Sequence[SinkRecord], name: str) -> pa.DataType | None:
    """Return the type that the key's schema has for a field of `key.fields`."""
    schema = records[0].key_schema
    if schema is None:
        return None
    if schema.kind is not ConnectType.STRUCT:
        return arrow_type(schema)
    field = schema.field(name)
    return None if field is None else arrow_type(field.schema)
