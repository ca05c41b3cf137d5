"""JSON values to columns of a schema, by Arrow's parser: `valueSchema` of the source.

All values of a batch are parsed at once. Each stands in an envelope with its row and a word that no value can know, so
that no value, however broken, can be taken for a part of another; what does not fit is found by halving, and what one
record becomes never depends on its neighbours. A value that does not fit is nulls and, as it is, in `_corrupt`; with
`mode=failfast` it ends the query with a sentence that names its offset. A null value is nulls.
"""

from __future__ import annotations

import secrets
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from strandline.spark.explain import SparkFailed
from strandline.spark.source.wanted import CORRUPT_COLUMN

_VALUE: Final = "value"
_ROW: Final = f"row-{secrets.token_hex(16)}"
"""Different in every process."""


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
        self._options = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([pa.field(_ROW, pa.int64()), pa.field(_VALUE, self._struct)]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        )

    def columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        values = batch.column("value")
        pieces: list[pa.Array] = []
        corrupt = np.zeros(len(values), bool)
        self._parse(values, batch.column("offset"), 0, len(values), pieces, corrupt)
        structs = pa.concat_arrays(pieces)
        found = {name: pc.struct_field(structs, [index]) for index, name in enumerate(self._fields)}
        if CORRUPT_COLUMN in self._schema.names:
            whole = values.cast(pa.string()) if _is_text(values) else _replaced(values)
            found[CORRUPT_COLUMN] = pc.if_else(pa.array(corrupt), whole, pa.scalar(None, pa.string()))
        columns = [found[name] if name in found else batch.column(name) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _parse(
        self, values: pa.Array, offsets: pa.Array, start: int, end: int, pieces: list[pa.Array], corrupt: np.ndarray
    ) -> None:
        """The rows `start` to `end` as structs, in order; halved until what does not fit stands alone."""
        if start == end:
            return
        try:
            pieces.append(self._parsed(values.slice(start, end - start)))
            return
        except pa.ArrowInvalid as error:
            if end - start == 1:
                if self._fails:
                    raise ValueDoesNotFit(
                        f"the value of {self._topic}-{self._partition} at offset {offsets[start].as_py()} does not fit "
                        f'valueSchema ({error}): correct the schema, or say option("mode", "permissive") for nulls'
                    ) from None
                pieces.append(pa.nulls(1, self._struct))
                corrupt[start] = True
                return
        middle = (start + end) // 2
        self._parse(values, offsets, start, middle, pieces, corrupt)
        self._parse(values, offsets, middle, end, pieces, corrupt)

    def _parsed(self, values: pa.Array) -> pa.Array:
        count = len(values)
        rows = pa.array(np.arange(count)).cast(pa.string()).cast(pa.binary())
        whole = pc.binary_join_element_wise(
            pa.scalar(f'{{"{_ROW}":'.encode()),
            rows,
            pa.scalar(f',"{_VALUE}":'.encode()),
            pc.fill_null(values, b"null"),
            pa.scalar(b"}\n"),
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
        parsed = table.column(_VALUE).combine_chunks()
        return parsed if isinstance(parsed, pa.Array) else parsed.chunk(0)


def _is_text(values: pa.Array) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _replaced(values: pa.Array) -> pa.Array:
    return pa.array(
        [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()], pa.string()
    )
