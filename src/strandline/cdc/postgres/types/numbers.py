"""Numbers and bits: numeric, money, bit and varbit."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from strandline.cdc.postgres.types.form import ColumnForm, Convert, TypeUse, semantic
from strandline.connect.failures import ConnectFailed
from strandline.connect.schema import (
    BOOLEAN,
    BYTES,
    DECIMAL,
    FLOAT64,
    INT32,
    SCALE,
    STRING,
    ConnectType,
    Schema,
    SchemaField,
    decimal_schema,
)

VARIABLE_SCALE: Final = Schema(
    ConnectType.STRUCT,
    name="io.debezium.data.VariableScaleDecimal",
    version=1,
    doc="Variable scaled decimal",
    fields=(SchemaField("scale", INT32), SchemaField("value", BYTES)),
)
"""The schema of a numeric whose column gives no scale."""
PRECISION: Final = "connect.decimal.precision"
BITS_MAX: Final = 2**31 - 1
"""The length of a bit string whose column gives none: Java's largest int."""

_NINE: Final = ord("9")
_SPECIAL_TEXT: Final = {b"NaN": "NAN", b"Infinity": "POSITIVE_INFINITY", b"-Infinity": "NEGATIVE_INFINITY"}
_DIGITS_FOR_INT: Final = 4000
"""More digits are read in parts, because int() of a text stops at 4,300."""
_MODIFIER_HEADER: Final = 4
_SCALE_BITS: Final = 0x7FF
_SCALE_SIGN: Final = 0x400
_MONEY: Final = re.compile(r"\d[\d.,\s'’]*\d|\d")
_MONEY_CONTEXT: Final = Context(prec=60, rounding=ROUND_HALF_UP)


def numeric_modifier(modifier: int) -> tuple[int, int] | None:
    """Return precision and scale that the column of a numeric is declared with; None if it gives none."""
    if modifier < _MODIFIER_HEADER:
        return None
    modifier -= _MODIFIER_HEADER
    return modifier >> 16 & 0xFFFF, ((modifier & _SCALE_BITS) ^ _SCALE_SIGN) - _SCALE_SIGN


def numeric_size(modifier: int) -> tuple[int, int] | None:
    """Return precision and scale of a numeric's values; None if its column gives none.

    A negative scale, as in numeric(3,-2), rounds to hundreds: such numbers have no digits behind the point.
    """
    declared = numeric_modifier(modifier)
    if declared is None:
        return None
    precision, scale = declared
    return (precision, scale) if scale >= 0 else (precision - scale, 0)


def numeric(use: TypeUse) -> ColumnForm:
    """Return the form of a numeric: Decimal, VariableScaleDecimal, double or text."""
    if use.settings.decimal == "double":
        return ColumnForm(FLOAT64, float)
    if use.settings.decimal == "string":
        return ColumnForm(STRING, _numeric_text)
    size = numeric_size(use.modifier)
    special = _special(use)
    if size is None:
        return ColumnForm(VARIABLE_SCALE, _variable(special))

    def convert(value: bytes) -> Decimal | None:
        return Decimal(value.decode()) if value[-1] <= _NINE else special(value)

    precision, scale = size
    schema = Schema(
        ConnectType.BYTES, name=DECIMAL, version=1, parameters={SCALE: str(scale), PRECISION: str(precision)}
    )
    return ColumnForm(schema, convert)


def _special(use: TypeUse) -> Convert:
    """Return what makes null of NaN and infinity, or fails where null is not allowed."""

    def special(value: bytes) -> None:
        if not use.is_optional:
            raise ConnectFailed(
                f"Column {use.column} holds {value.decode()}, which a Decimal cannot; set decimal.handling.mode to "
                "string or double, or let the column be NULL."
            )

    return special


def _variable(special: Convert) -> Convert:
    def convert(value: bytes) -> dict[str, Any] | None:
        if value[-1] > _NINE:
            special(value)
            return None
        whole, _, fraction = value.partition(b".")
        fraction = fraction.rstrip(b"0")
        digits = whole + fraction
        number = int(digits) if len(digits) <= _DIGITS_FOR_INT else _long(digits)
        length = (number + (number < 0)).bit_length() // 8 + 1
        return {"scale": len(fraction), "value": number.to_bytes(length, "big", signed=True)}

    return convert


def _long(digits: bytes) -> int:
    """Return the number that many digits are, by halves: a numeric has up to 147,455."""
    if digits.startswith(b"-"):
        return -_long(digits[1:])
    if len(digits) <= _DIGITS_FOR_INT:
        return int(digits)
    behind = len(digits) // 2
    return int(_long(digits[:-behind]) * 10**behind + _long(digits[-behind:]))


def _numeric_text(value: bytes) -> str:
    return value.decode() if value[-1] <= _NINE else _SPECIAL_TEXT[value]


def money(use: TypeUse) -> ColumnForm:
    """Return the form of money."""
    digits = use.settings.money_digits

    def plain(value: bytes) -> str:
        return money_text(value.decode(), digits)

    if use.settings.decimal == "double":
        return ColumnForm(FLOAT64, lambda value: float(plain(value)))
    if use.settings.decimal == "string":
        return ColumnForm(STRING, plain)
    unit = Decimal(1).scaleb(-digits)
    return ColumnForm(
        decimal_schema(digits), lambda value: Decimal(plain(value)).quantize(unit, context=_MONEY_CONTEXT)
    )


def money_text(text: str, fraction_digits: int) -> str:
    """Return an amount, which is printed in the way of the server's locale, as a plain number."""
    found = _MONEY.search(text)
    if found is None:
        raise ValueError(f"{text!r} is no amount of money")
    amount = found[0]
    at = max(amount.rfind("."), amount.rfind(","))
    behind = len(amount) - at - 1
    # Three digits behind the last mark are a group of thousands, unless the marks before it are others.
    is_point = at >= 0 and (behind != 3 or fraction_digits == 3 or ("," if amount[at] == "." else ".") in amount[:at])
    whole, fraction = (amount[:at], amount[at + 1 :]) if is_point else (amount, "")
    sign = "-" if "-" in text or "(" in text else ""
    number = sign + "".join(filter(str.isdigit, whole))
    return f"{number}.{fraction}" if fraction else number


def bits(use: TypeUse) -> ColumnForm:
    """Return the form of a bit string: one bit is a boolean, more are bytes in little-endian order."""
    if use.modifier == 1:
        return ColumnForm(BOOLEAN, b"1".__eq__)
    length = use.modifier if use.modifier > 0 else BITS_MAX
    return ColumnForm(semantic(ConnectType.BYTES, "io.debezium.data.Bits", length=str(length)), _bit_bytes)


def _bit_bytes(value: bytes) -> bytes:
    number = int(value, 2) if value else 0
    return number.to_bytes((number.bit_length() + 7) // 8, "little")
