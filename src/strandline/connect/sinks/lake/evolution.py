"""How the types of columns grow together: those of a table, and those that records bring."""

from __future__ import annotations

from enum import Enum
from typing import Final

import pyarrow as pa

_LARGE: Final = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary(), pa.string_view(): pa.string()}


class Widening(Enum):
    """What may happen to the type of a column."""

    NONE = "none"
    SAME_FAMILY = "same family"
    """A longer integer, float or decimal: what Iceberg allows for a column that holds data."""
    ANY = "any"
    """Also from integer to float, for a column that is not in the table yet."""


def small(kind: pa.DataType) -> pa.DataType:
    """Return a type without the variants that libraries choose for large or shared values."""
    if kind in _LARGE:
        return _LARGE[kind]
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, small(each.type)) for each in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(small(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(small(kind.key_type), small(kind.item_type))
    return kind


def merged_type(known: pa.DataType, found: pa.DataType, widening: Widening) -> pa.DataType | None:
    """Return the type that holds both; None if there is none. It is `known` if the column can stay as it is."""
    if known == found or pa.types.is_null(found):
        return known
    if pa.types.is_null(known):
        return found
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        return _merged_struct(known, found, widening)
    if pa.types.is_list(known) and pa.types.is_list(found):
        elements = merged_type(known.value_type, found.value_type, widening)
        return None if elements is None else pa.list_(elements)
    if pa.types.is_map(known) and pa.types.is_map(found):
        items = merged_type(known.item_type, found.item_type, widening)
        return None if items is None or known.key_type != found.key_type else pa.map_(known.key_type, items)
    return _merged_leaf(known, found, widening)


def _merged_struct(known: pa.DataType, found: pa.DataType, widening: Widening) -> pa.DataType | None:
    merged = {each.name: each.type for each in known}
    for each in found:
        kind = merged_type(merged[each.name], each.type, widening) if each.name in merged else each.type
        if kind is None:
            return None
        merged[each.name] = kind
    return pa.struct(list(merged.items()))


def _merged_leaf(known: pa.DataType, found: pa.DataType, widening: Widening) -> pa.DataType | None:
    if pa.types.is_timestamp(known) and pa.types.is_timestamp(found):
        return known if (known.tz is None) == (found.tz is None) else None
    if pa.types.is_float64(known) and (pa.types.is_integer(found) or pa.types.is_floating(found)):
        return known
    wider: pa.DataType | None = None
    families = (pa.types.is_signed_integer, pa.types.is_floating)
    if any(each(known) and each(found) for each in families):
        wider = max(known, found, key=lambda each: each.bit_width)
    elif pa.types.is_decimal(known) and pa.types.is_decimal(found) and known.scale == found.scale:
        wider = max(known, found, key=lambda each: each.precision)
    elif pa.types.is_integer(known) and pa.types.is_float64(found) and widening is Widening.ANY:
        return found
    return wider if wider == known or widening is not Widening.NONE else None


def fitted(array: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return a column with a type that `merged_type` gave for it. Raise ArrowInvalid if a number does not fit."""
    if array.type == kind:
        return array
    if pa.types.is_nested(kind):
        return pa.array(array.to_pylist(), type=kind)
    return array.cast(kind)
