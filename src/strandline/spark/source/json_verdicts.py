"""Whether a JSON value fits a type, told in microseconds where it can be told (pure).

Arrow's parser alone decides what fits. It stops at the first value that does not, and to look at a value alone costs it
a fraction of a millisecond: too long where every tenth is broken. Python's parser tells most of them at once. Where the
two might disagree the verdict is UNSURE, and Arrow is asked; a test holds them against each other.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from enum import IntEnum
from typing import Any

import pyarrow as pa


class JsonVerdict(IntEnum):
    """In the order of what counts: a value is as bad as the worst of its fields."""

    FITS = 0
    UNSURE = 1
    CORRUPT = 2


_UNLIKE_PYTHON = re.compile(rb"NaN|Inf")
"""Arrow knows more ways to write them."""
_DIGIT = re.compile("[0-9]")


def verdict_on(value: bytes, wanted: pa.DataType) -> JsonVerdict:
    try:
        return _verdict(json.loads(value.decode()), wanted)
    except UnicodeDecodeError:
        return JsonVerdict.CORRUPT
    except json.JSONDecodeError as error:
        # Arrow sees a value with something around it, and may take what stands behind its end for a part of that.
        is_certain = not error.msg.startswith("Extra data") and _UNLIKE_PYTHON.search(value) is None
        return JsonVerdict.CORRUPT if is_certain else JsonVerdict.UNSURE
    except (ValueError, RecursionError):
        # Numbers of thousands of digits, and brackets in brackets, which Python alone minds.
        return JsonVerdict.UNSURE


def _verdict(found: Any, wanted: pa.DataType) -> JsonVerdict:
    if found is None:
        return JsonVerdict.FITS
    if pa.types.is_struct(wanted):
        if not isinstance(found, dict):
            return JsonVerdict.CORRUPT
        told = (_verdict(found[field.name], field.type) for field in wanted if field.name in found)
        return max(told, default=JsonVerdict.FITS)
    if pa.types.is_list(wanted):
        if not isinstance(found, list):
            return JsonVerdict.CORRUPT
        return max((_verdict(each, wanted.value_type) for each in found), default=JsonVerdict.FITS)
    return _verdict_on_word(found, wanted)


def _verdict_on_word(found: Any, wanted: pa.DataType) -> JsonVerdict:
    if isinstance(found, dict | list):
        return JsonVerdict.CORRUPT
    if pa.types.is_boolean(wanted):
        return _fits(isinstance(found, bool))
    if isinstance(found, bool):
        return JsonVerdict.CORRUPT
    if pa.types.is_integer(wanted):
        return _fits(isinstance(found, int) and -(1 << wanted.bit_width - 1) <= found < 1 << wanted.bit_width - 1)
    if pa.types.is_floating(wanted):
        return _fits(not isinstance(found, str))
    if pa.types.is_decimal(wanted):
        return JsonVerdict.UNSURE
    if not isinstance(found, str):
        return JsonVerdict.CORRUPT
    return _verdict_on_time(found) if pa.types.is_timestamp(wanted) else JsonVerdict.FITS


def _fits(is_so: bool) -> JsonVerdict:
    return JsonVerdict.FITS if is_so else JsonVerdict.CORRUPT


def _verdict_on_time(text: str) -> JsonVerdict:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return JsonVerdict.UNSURE if _DIGIT.search(text) else JsonVerdict.CORRUPT
    return JsonVerdict.FITS
