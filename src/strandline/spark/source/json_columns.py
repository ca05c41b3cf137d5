"""JSON values and keys to columns of a schema: `valueSchema` and `keySchema` of the source.

A value that does not fit is nulls and, as it is, in `_corrupt`, a key in `_corrupt_key`; with `mode=failfast` it ends
the query with a sentence that names its offset. A null value or key is nulls.
"""

from __future__ import annotations

import json
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.spark.source.json_parsing import JsonParser, ValueDoesNotFit
from strandline.spark.source.source_spec import CORRUPT_COLUMN, CORRUPT_KEY_COLUMN, KEY_COLUMN

__all__ = ["JsonColumns", "ValueDoesNotFit"]

_PLAIN_KEY: Final = r"^(true|false|[-0-9][-+0-9.:eETZ ]*)$"
"""What may be the text of a single key column. It has no sign that could end a JSON value and begin another."""


class JsonColumns:
    """Turns batches with columns `value`, `offset` and perhaps `key` into batches of `schema`."""

    def __init__(
        self,
        schema: pa.Schema,
        value_columns: list[str],
        *,
        topic: str,
        partition: int,
        fails: bool,
        in_struct: bool = False,
    ) -> None:
        """`value_columns` are those of the value, or, `in_struct`, one struct of them."""
        self._schema = schema
        self._columns = value_columns
        self._in_struct = in_struct
        fields = [schema.field(name) for name in value_columns]
        self._of_value = fields[0].type if in_struct and fields else pa.struct(fields)
        place = f"{topic}-{partition}"
        self._values = JsonParser(self._of_value, part="value", place=place, fails=fails)
        has_key = KEY_COLUMN in schema.names
        self._keys = KeyParser(schema.field(KEY_COLUMN).type, place=place, fails=fails) if has_key else None

    def columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found: dict[str, pa.Array] = {}
        offsets = batch.column("offset")
        if self._columns:
            structs, found[CORRUPT_COLUMN] = self._parsed(batch.column("value"), offsets)
            for index, name in enumerate(self._columns):
                found[name] = structs if self._in_struct else pc.struct_field(structs, [index])
        if self._keys is not None:
            keys = batch.column("key")
            found[KEY_COLUMN], corrupt = self._keys.parsed(keys, offsets)
            found[CORRUPT_KEY_COLUMN] = _kept(keys, corrupt)
        columns = [found[name] if name in found else batch.column(name) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _parsed(self, values: pa.Array, offsets: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the structs of values, and the text of each that does not fit."""
        structs, corrupt = self._values.parsed(values, offsets)
        return structs, _kept(values, corrupt)


class KeyParser:
    """Makes structs of keys, which are JSON, or for a single column its text: `42` is `{"id":42}`."""

    def __init__(self, struct: pa.StructType, *, place: str, fails: bool) -> None:
        self._struct = struct
        self._parser = JsonParser(struct, part="key", place=place, fails=fails)
        only = struct[0] if struct.num_fields == 1 else None
        self._is_text = only is not None and pa.types.is_string(only.type)
        self._around: tuple[bytes, bytes] | None = None
        if only is not None and (pa.types.is_primitive(only.type) or pa.types.is_decimal(only.type)):
            quote = '"' if pa.types.is_temporal(only.type) else ""
            self._around = f"{{{json.dumps(only.name)}:{quote}".encode(), f"{quote}}}".encode()

    def parsed(self, keys: pa.Array, offsets: pa.Array) -> tuple[pa.Array, np.ndarray]:
        """The structs, and which of the keys do not fit."""
        if self._is_text:
            texts, corrupt = self._texts(keys, offsets)
            return pa.StructArray.from_arrays([texts], fields=list(self._struct)), corrupt
        # An empty value is no JSON. So what is neither an object nor plain does not fit.
        plain = pa.scalar(b"", pa.binary())
        if self._around is not None:
            before, behind = self._around
            whole = pc.binary_join_element_wise(pa.scalar(before), keys, pa.scalar(behind), pa.scalar(b""))
            plain = pc.if_else(pc.match_substring_regex(keys, _PLAIN_KEY), whole, plain)
        return self._parser.parsed(pc.if_else(pc.starts_with(keys, "{"), keys, plain), offsets)

    def _texts(self, keys: pa.Array, offsets: pa.Array) -> tuple[pa.Array, np.ndarray]:
        corrupt = np.zeros(len(keys), bool)
        try:
            return keys.cast(pa.string()), corrupt
        except pa.ArrowInvalid:
            texts: list[str | None] = []
        for at, key in enumerate(keys.to_pylist()):
            try:
                texts.append(None if key is None else key.decode())
            except UnicodeDecodeError as error:
                self._parser.refuse(offsets[at], error)
                corrupt[at] = True
                texts.append(None)
        return pa.array(texts, pa.string()), corrupt


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
