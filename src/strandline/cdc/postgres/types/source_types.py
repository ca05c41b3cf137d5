"""The type of a column as `column.propagate.source.type` tells it: PostgreSQL's name, and the sizes that JDBC has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from strandline.cdc.model import SourceType
from strandline.cdc.postgres.types.catalog import PgType, TypeCatalog
from strandline.cdc.postgres.types.numbers import numeric_modifier

LENGTH_MAX: Final = 2**31 - 1
NUMERIC_DIGITS_MAX: Final = 131_089
"""What JDBC has for a numeric that gives no precision."""
_TIME_DIGITS: Final = 6
_HEADER: Final = 4
_INTERVAL_BITS: Final = 0xFFFF
_Size = tuple[int, int]


def _fixed(length: int, scale: int) -> Callable[[int], _Size]:
    return lambda modifier: (length, scale)


def _text(modifier: int) -> _Size:
    return (modifier - _HEADER if modifier > _HEADER else LENGTH_MAX), 0


def _bits(modifier: int) -> _Size:
    return (modifier if modifier > 0 else LENGTH_MAX), 0


def _moment(length: int) -> Callable[[int], _Size]:
    def size(modifier: int) -> _Size:
        digits = _TIME_DIGITS if modifier < 0 else modifier
        return length + (digits + 1 if digits else 0), digits

    return size


def _interval(modifier: int) -> _Size:
    digits = modifier & _INTERVAL_BITS
    return 49, _TIME_DIGITS if modifier < 0 or digits == _INTERVAL_BITS else digits


def _numeric(modifier: int) -> _Size:
    return numeric_modifier(modifier) or (NUMERIC_DIGITS_MAX, 0)


_SIZES: Final[Mapping[str, Callable[[int], _Size]]] = {
    "bool": _fixed(1, 0),
    "char": _fixed(1, 0),
    "int2": _fixed(5, 0),
    "int4": _fixed(10, 0),
    "int8": _fixed(19, 0),
    "oid": _fixed(10, 0),
    "float4": _fixed(8, 8),
    "float8": _fixed(17, 17),
    "numeric": _numeric,
    "bpchar": _text,
    "varchar": _text,
    "bit": _bits,
    "varbit": _bits,
    "date": _fixed(13, 0),
    "time": _moment(8),
    "timetz": _moment(14),
    "timestamp": _moment(22),
    "timestamptz": _moment(28),
    "interval": _interval,
}


def source_type(oid: int, modifier: int, catalog: TypeCatalog) -> SourceType | None:
    """Return what a column's field says of its type; None if the catalogue does not have it."""
    declared = catalog.get(oid)
    if declared is None:
        return None
    base, modifier = catalog.resolved(oid, modifier)
    if base is not None and base.element:
        base, modifier = catalog.resolved(base.element, modifier)
    return SourceType(declared.name.upper(), *_size(base, modifier))


def _size(of: PgType | None, modifier: int) -> _Size:
    size = _SIZES.get(of.name) if of is not None and of.is_builtin else None
    return (LENGTH_MAX, 0) if size is None else size(modifier)
