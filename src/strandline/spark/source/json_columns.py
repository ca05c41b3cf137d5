"""JSON values to columns of a schema, by Arrow's parser: `valueSchema` of the source.

All values of a batch are parsed at once. Each stands in an envelope with its row and a word that no value can know, so
that no value, however broken, can be taken for a part of another. What does not fit is found by halving, down to a few
hundred rows that are looked at one by one; what one record becomes never depends on its neighbours. A value
that does not fit is nulls and, as it is, in `_corrupt`; with `mode=failfast` it ends the query with a sentence that
names its offset. A null value is nulls.

Arrow takes days for numbers, and bytes that are no UTF-8 for text. So dates are read as text and made dates behind it,
and what is no UTF-8 is no JSON.
"""

from __future__ import annotations

import secrets
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from strandline.spark.explain import SparkFailed
from strandline.spark.source.json_verdicts import Verdict, verdict_on
from strandline.spark.source.wanted import CORRUPT_COLUMN

_VALUE: Final = "value"
_ROW: Final = f"row-{secrets.token_hex(16)}"
"""Different in every process."""
_SIFTED_ROWS: Final = 512
"""So few rows that do not fit together are looked at one by one; more are halved."""


class ValueDoesNotFit(SparkFailed):
    """A value that is no JSON, or not as the schema says."""


class JsonColumns:
    """Turns batches with columns `value` and `offset` into batches of `schema`."""

    def __init__(self, schema: pa.Schema, value_fields: list[str], *, topic: str, partition: int, fails: bool) -> None:
        self._schema = schema
        self._fields = value_fields
        self._topic = topic
        self._partition = partition
        self._fails = fails
        self._struct = pa.struct([schema.field(name) for name in value_fields])
        self._read = _as_read(self._struct)
        self._options = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([pa.field(_ROW, pa.int64()), pa.field(_VALUE, pa.list_(self._read))]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        )

    def columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        values = batch.column("value")
        pieces: list[pa.Array] = []
        corrupt = np.zeros(len(values), bool)
        self._parse(values, batch.column("offset"), pieces, corrupt)
        structs = pa.concat_arrays(pieces)
        found = {name: pc.struct_field(structs, [index]) for index, name in enumerate(self._fields)}
        if CORRUPT_COLUMN in self._schema.names:
            found[CORRUPT_COLUMN] = _kept(values, corrupt)
        columns = [found[name] if name in found else batch.column(name) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _parse(
        self,
        values: pa.Array,
        offsets: pa.Array,
        pieces: list[pa.Array],
        corrupt: np.ndarray,
        *,
        is_sifted: bool = False,
    ) -> None:
        """The rows as structs, in order; `corrupt` is a view of the same rows."""
        count = len(values)
        if not count:
            return
        try:
            pieces.append(self._parsed(values))
            return
        except pa.ArrowInvalid as error:
            if count == 1:
                self._misfit(offsets[0], error)
                corrupt[0] = True
                pieces.append(pa.nulls(1, self._struct))
                return
        if count <= _SIFTED_ROWS and not is_sifted:
            is_sifted = True
            self._sift(values, offsets, corrupt)
            if corrupt.any():
                fitting = pc.if_else(pa.array(corrupt), pa.scalar(None, pa.binary()), values)
                self._parse(fitting, offsets, pieces, corrupt, is_sifted=True)
                return
        middle = count // 2
        for part in (slice(None, middle), slice(middle, None)):
            self._parse(values[part], offsets[part], pieces, corrupt[part], is_sifted=is_sifted)

    def _sift(self, values: pa.Array, offsets: pa.Array, corrupt: np.ndarray) -> None:
        """Find those that do not fit, or most of them, alone."""
        for index, value in enumerate(values.to_pylist()):
            verdict = Verdict.FITS if value is None else verdict_on(value, self._read)
            if verdict is Verdict.FITS:
                continue
            corrupt[index] = verdict is Verdict.CORRUPT
            # Who fails says why, in Arrow's words.
            if verdict is Verdict.UNSURE or self._fails:
                try:
                    self._parsed(values[index : index + 1])
                except pa.ArrowInvalid as error:
                    self._misfit(offsets[index], error)
                    corrupt[index] = True

    def _misfit(self, offset: pa.Scalar, error: pa.ArrowInvalid) -> None:
        if self._fails:
            raise ValueDoesNotFit(
                f"the value of {self._topic}-{self._partition} at offset {offset.as_py()} does not fit "
                f'valueSchema ({error}): correct the schema, or say option("mode", "permissive") for nulls'
            ) from None

    def _parsed(self, values: pa.Array) -> pa.Array:
        count = len(values)
        values.cast(pa.string())  # Raises for what is no UTF-8.
        rows = pa.array(np.arange(count)).cast(pa.string()).cast(pa.binary())
        whole = pc.binary_join_element_wise(
            pa.scalar(f'{{"{_ROW}":'.encode()),
            rows,
            # In brackets, so that a comma behind the end of a value begins no further field of the envelope.
            pa.scalar(f',"{_VALUE}":['.encode()),
            pc.fill_null(values, b"null"),
            pa.scalar(b"]}\n"),
            pa.scalar(b""),
        )
        _, bounds, content = whole.buffers()
        text = content.slice(0, int(np.frombuffer(bounds, np.int32, count + 1)[-1]))
        table = pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(text.size, 1)),
            parse_options=self._options,
        )
        if table.num_rows != count or not np.array_equal(table.column(_ROW).to_numpy(), np.arange(count)):
            raise pa.ArrowInvalid("it is not one JSON value")
        lists = table.column(_VALUE).combine_chunks()
        lists = lists if isinstance(lists, pa.Array) else lists.chunk(0)
        if not np.array_equal(lists.offsets.to_numpy(), np.arange(count + 1)):
            raise pa.ArrowInvalid("it is not one JSON value")
        parsed = lists.flatten()
        return parsed if self._read == self._struct else parsed.cast(self._struct)


def _as_read(of: pa.DataType) -> pa.DataType:
    """The type with text in the place of dates."""
    if pa.types.is_struct(of):
        return pa.struct([field.with_type(_as_read(field.type)) for field in of])
    if pa.types.is_list(of):
        return pa.list_(of.value_field.with_type(_as_read(of.value_type)))
    return pa.string() if pa.types.is_date(of) else of


def _kept(values: pa.Array, corrupt: np.ndarray) -> pa.Array:
    """The values that do not fit, as text; null for the others."""
    if not corrupt.any():
        return pa.nulls(len(values), pa.string())
    kept = pc.if_else(pa.array(corrupt), values, pa.scalar(None, pa.binary()))
    try:
        return kept.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode("utf-8", "replace") for value in kept.to_pylist()]
        return pa.array(texts, pa.string())
