"""Defaults of columns: the constant that an expression of `pg_get_expr` is."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from strandline.cdc.postgres.types.form import Convert
from strandline.cdc.postgres.types.numbers import numeric_size
from strandline.connect.convert.logical import at_scale
from strandline.connect.failures import ConnectFailed

TYPES: Final = frozenset(
    (
        *("bit", "varbit", "bool", "bpchar", "varchar", "text", "numeric", "float4", "float8", "int2", "int4", "int8"),
        *("json", "jsonb", "xml", "uuid", "date", "time", "timestamp", "timestamptz", "interval"),
    )
)
"""Types whose defaults Debezium puts into the schema, beside enums."""

_CAST: Final = r'(?:::(?:"(?:[^"]|"")*"|[\w\s.,()\[\]])+)?'
_TEXT: Final = re.compile(rf"B?'((?:[^']++|'')*+)'{_CAST}")
_NUMBER: Final = re.compile(rf"\(?(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\)?{_CAST}")
_BOOLEANS: Final = {"true": b"t", "false": b"f"}


def constant_of(expression: str) -> bytes | None:
    """Return the text of a constant, as PostgreSQL prints such a value; None if the expression is computed or NULL."""
    expression = expression.strip()
    if expression in _BOOLEANS:
        return _BOOLEANS[expression]
    if found := _TEXT.fullmatch(expression):
        return found[1].replace("''", "'").encode()
    found = _NUMBER.fullmatch(expression)
    return None if found is None else found[1].encode()


def default_of(expression: str, type_name: str, modifier: int, convert: Convert) -> Any:
    """Return the default of a column's schema; None if it has none."""
    constant = constant_of(expression)
    if constant is None:
        return None
    try:
        if type_name == "numeric":
            constant = _numeric(constant, modifier)
        value = convert(constant)
    except (ValueError, InvalidOperation, ConnectFailed):
        # The column takes the expression's value only after a cast that is not done here.
        return None
    # Connect has no default of a struct.
    return None if isinstance(value, dict) else value


def _numeric(constant: bytes, modifier: int) -> bytes:
    number = Decimal(constant.decode())
    size = numeric_size(modifier)
    return f"{number if size is None else at_scale(number, size[1]):f}".encode()
