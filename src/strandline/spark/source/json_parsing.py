"""JSON objects to structs of a type, by Arrow's parser, which alone decides what fits.

All values of a batch are parsed at once. Each stands in an envelope with its row and a word that no value can know, so
that no value, however broken, can be taken for a part of another. What does not fit is found by halving, down to a few
hundred rows that are looked at one by one; what one record becomes never depends on its neighbours.

Arrow takes days for numbers, bytes that are no UTF-8 for text, and a decimal with more digits than its type has. So
dates and bytes are read as text and converted behind it, decimals are compared with the largest one, and what is no
UTF-8 is no JSON.
"""

from __future__ import annotations

import base64
import secrets
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from strandline.spark.error_translation import SparkFailed
from strandline.spark.source.json_verdicts import JsonVerdict, verdict_on

_VALUE: Final = "value"
_ROW: Final = f"row-{secrets.token_hex(16)}"
"""Different in every process."""
_SIFTED_ROWS: Final = 512
"""So few rows that do not fit together are looked at one by one; more are halved."""


class ValueDoesNotFit(SparkFailed):
    """A value or key that is no JSON, or not as the schema says."""


class JsonParser:
    """Makes structs of JSON objects."""

    def __init__(self, struct: pa.StructType, *, part: str, place: str, fails: bool) -> None:
        """`part` of a record, key or value, is parsed; `place` is the topic and partition, for messages."""
        self._struct = struct
        self._part = part
        self._place = place
        self._fails = fails
        self._read = _as_read(self._struct)
        self._is_as_read = self._read == self._struct and not _has_decimals(self._struct)
        self._options = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([pa.field(_ROW, pa.int64()), pa.field(_VALUE, pa.list_(self._read))]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        )

    def parsed(self, values: pa.Array, offsets: pa.Array) -> tuple[pa.Array, np.ndarray]:
        """The structs, and which of the values do not fit."""
        pieces: list[pa.Array] = []
        corrupt = np.zeros(len(values), bool)
        self._parse(values, offsets, pieces, corrupt)
        return pa.concat_arrays(pieces) if pieces else pa.nulls(0, self._struct), corrupt

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
                self.refuse(offsets[0], error)
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
            verdict = JsonVerdict.FITS if value is None else verdict_on(value, self._read)
            if verdict is JsonVerdict.FITS:
                continue
            corrupt[index] = verdict is JsonVerdict.CORRUPT
            # Who fails says why, in Arrow's words.
            if verdict is JsonVerdict.UNSURE or self._fails:
                try:
                    self._parsed(values[index : index + 1])
                except pa.ArrowInvalid as error:
                    self.refuse(offsets[index], error)
                    corrupt[index] = True

    def refuse(self, offset: pa.Scalar, error: Exception) -> None:
        """Raise if a misfit ends the query."""
        if self._fails:
            raise ValueDoesNotFit(
                f"the {self._part} of {self._place} at offset {offset.as_py()} does not fit {self._part}Schema "
                f'({error}): correct the schema, or say option("mode", "permissive") for nulls'
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
        return lists.flatten() if self._is_as_read else _fitted(lists.flatten(), self._struct)


def _as_read(of: pa.DataType) -> pa.DataType:
    """The type with text in the place of dates and bytes."""
    if pa.types.is_struct(of):
        return pa.struct([field.with_type(_as_read(field.type)) for field in of])
    if pa.types.is_list(of):
        return pa.list_(of.value_field.with_type(_as_read(of.value_type)))
    return pa.string() if pa.types.is_date(of) or pa.types.is_binary(of) else of


def _has_decimals(of: pa.DataType) -> bool:
    inner = [field.type for field in of] if pa.types.is_struct(of) else [of.value_type] if pa.types.is_list(of) else []
    return pa.types.is_decimal(of) or any(_has_decimals(each) for each in inner)


def _fitted(found: pa.Array, wanted: pa.DataType) -> pa.Array:
    """What was read as the type that is wanted; raises ArrowInvalid if something in it does not fit that."""
    if pa.types.is_struct(wanted):
        fields = [_fitted(found.field(index), field.type) for index, field in enumerate(wanted)]
        return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=found.is_null())
    if pa.types.is_list(wanted):
        values = _fitted(found.values, wanted.value_type)
        return pa.Array.from_buffers(wanted, len(found), found.buffers()[:2], offset=found.offset, children=[values])
    if pa.types.is_decimal(wanted):
        _check_digits(found, wanted)
    if pa.types.is_binary(wanted):
        return pa.array([None if text is None else _from_base64(text) for text in found.to_pylist()], wanted)
    return found if found.type == wanted else found.cast(wanted)


def _check_digits(found: pa.Array, wanted: pa.Decimal128Type) -> None:
    """Refuse what has more digits before the point than the type has; Arrow counts those that were written."""
    too_large = Decimal(10) ** (wanted.precision - wanted.scale)
    extremes = [each for each in pc.min_max(found).as_py().values() if each is not None]
    if any(abs(each) >= too_large for each in extremes):
        raise pa.ArrowInvalid(f"it has more digits than {wanted}")


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise pa.ArrowInvalid(f"it is no base64: {error}") from None
