"""Read JSON within limits, and print it."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NoReturn

from strandline.schemas.types import DEPTH_MAX, TEXT_BYTES_MAX, InvalidSchema

Json = Any
"""What `load` returns: dict, list, str, int, Decimal, bool or None."""
_EXPONENT_MAX: Final = 400
"""A larger number is compared by its digits and exponent, because its zeros could fill the memory."""


def load(text: str, what: str = "The schema") -> Json:
    """Return the JSON value of `text`, with the keys in written order and every number exact."""
    if len(text.encode(errors="replace")) > TEXT_BYTES_MAX:
        raise InvalidSchema(f"{what} has more than {TEXT_BYTES_MAX:,} bytes.")
    try:
        value = json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidSchema(f"{what} is nested more than {DEPTH_MAX} levels deep.") from None
    except ValueError as error:
        raise InvalidSchema(f"{what} is not valid JSON: {error}.") from None
    _check_depth(value, what)
    if "\\u" in text and not _is_encodable(value):
        raise InvalidSchema(f"{what} has half of a surrogate pair, which no UTF-8 text can hold.")
    return value


def _is_encodable(value: Json) -> bool:
    try:
        dump(value).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _check_depth(value: Json, what: str) -> None:
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [
            child
            for each in level
            if isinstance(each, (dict, list))
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise InvalidSchema(f"{what} is nested more than {DEPTH_MAX} levels deep.")


def dump(value: Json, *, sort_keys: bool = False) -> str:
    """Return `value` as JSON without spaces. Numbers keep the digits that they were written with."""
    parts: list[str] = []
    _dump(value, sort_keys, str, parts)
    return "".join(parts)


def identity(value: Json) -> str:
    """Return a text that is the same for equal values: keys are sorted, and 1.0 is 1."""
    parts: list[str] = []
    _dump(value, True, _digits, parts)
    return "".join(parts)


def _digits(number: Decimal) -> str:
    shortest = number.normalize()
    return str(int(shortest)) if 0 <= shortest.as_tuple().exponent <= _EXPONENT_MAX else str(shortest)  # type: ignore[operator]


def _dump(value: Json, sort_keys: bool, number: Callable[[Decimal], str], parts: list[str]) -> None:
    match value:
        case dict():
            opening = "{"
            for key in sorted(value) if sort_keys else value:
                parts += opening, json.dumps(key, ensure_ascii=False), ":"
                _dump(value[key], sort_keys, number, parts)
                opening = ","
            parts.append("}" if value else "{}")
        case list():
            opening = "["
            for each in value:
                parts.append(opening)
                _dump(each, sort_keys, number, parts)
                opening = ","
            parts.append("]" if value else "[]")
        case Decimal():
            parts.append(number(value))
        case _:
            parts.append(json.dumps(value, ensure_ascii=False))
