"""Defaults of columns: the constant that an expression of `pg_get_expr` is.

A default that a function computes is another one for each row. Debezium's schemas then have a constant, such as 0, and
so have these: a registered schema stays the same.
"""

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
_COMPUTED: Final = re.compile(
    r"\(?[\w.]+\(.*|(?:current_date|current_time|current_timestamp|localtime|localtimestamp)(?:\(\d\))?",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)
_STAND_INS: Final = {
    **dict.fromkeys(("int2", "int4", "int8", "varbit"), b"0"),
    **dict.fromkeys(("float4", "float8", "numeric"), b"0.0"),
    **dict.fromkeys(("bpchar", "varchar", "text", "xml"), b""),
    **dict.fromkeys(("json", "jsonb"), b"{}"),
    "bit": b"00",
    "bool": b"f",
    "uuid": b"00000000-0000-0000-0000-000000000000",
    "date": b"1970-01-01",
    "time": b"00:00:00",
    "timestamp": b"1970-01-01 00:00:00",
    "timestamptz": b"1970-01-01 00:00:00+00",
    "interval": b"00:00:00",
}
"""What stands for a default that is computed."""


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
    if constant is None and _COMPUTED.fullmatch(expression.strip()):
        constant = _STAND_INS.get(type_name)
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
