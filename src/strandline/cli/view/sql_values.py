"""Values of SQL as JSON, and as texts in tables."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any


def as_json_value(value: Any) -> Any:
    """Return the JSON form of a value of SQL."""
    if isinstance(value, Decimal):
        # A sum of whole numbers is a decimal to Arrow.
        if value == value.to_integral_value():
            return int(value)
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        # Always, as Spark's JSON has it: bytes that look like base64 could not be distinguished from it.
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(name): as_json_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json_value(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        # Not part of JSON; this is how Spark writes them.
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def shown(value: Any) -> str:
    """Return the text of a value in a table."""
    plain = as_json_value(value)
    if plain is None:
        return "-"
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
