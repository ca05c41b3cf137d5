"""Amounts as people write them: `10 MB/s`, `500/min`, `800 B`, `7d`; and back.

Every function raises ValueError with a sentence that says what it takes.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_NUMBER: Final = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?)\s*(.*)")
_SIZES: Final = {
    "b": 1,
    "byte": 1,
    "bytes": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "pb": 10**15,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "pib": 1 << 50,
}
_TIMES_MS: Final = {
    "ms": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
    "y": 365 * 86_400_000,
    "year": 365 * 86_400_000,
}
FOREVER: Final = ("forever", "unlimited")


class Rate(NamedTuple):
    """Bytes or records a second; the other one is None."""

    bytes_per_s: float | None = None
    records_per_s: float | None = None


def parse_size(text: str) -> int:
    """Return bytes: `800 B`, `1 MB`, `4 KiB`. A number without a unit is refused, because it could be anything."""
    number, unit = _split(text)
    if number is None or unit not in _SIZES:
        raise ValueError(f"{text!r} is no size; write for example 800 B, 1 MB or 4 KiB")
    return round(number * _SIZES[unit])


def parse_duration_ms(text: str) -> int:
    """Return milliseconds: `20ms`, `5 min`, `7d`."""
    number, unit = _split(text)
    factor = _TIMES_MS.get(unit) or _TIMES_MS.get(unit.removesuffix("s"))
    if number is None or factor is None:
        raise ValueError(f"{text!r} is no duration; write for example 20ms, 30s, 5min, 12h or 7d")
    return round(number * factor)


def parse_retention_ms(text: str) -> int:
    """Return milliseconds; -1 for `forever`."""
    if text.strip().lower() in FOREVER:
        return -1
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise ValueError(f"{error}, or forever") from None


def parse_rate(text: str) -> Rate:
    """Return a rate of bytes (`10 MB/s`) or of records (`500/s`, `3 per minute`, `2k records/s`)."""
    amount, separator, per = text.replace(" per ", "/").partition("/")
    wrong = ValueError(f"{text!r} is no rate; write for example 10 MB/s, 500/s or 3/min")
    seconds = _TIMES_MS.get(per.strip().lower(), 0) / 1000
    number, unit = _split(amount)
    if not separator or not seconds or number is None:
        raise wrong
    if unit in _SIZES:
        return Rate(bytes_per_s=number * _SIZES[unit] / seconds)
    factor = {"k": 1e3, "m": 1e6, "": 1.0}.get(re.sub(r"\s*(records?|events?|messages?)$", "", unit))
    if factor is None:
        raise wrong
    return Rate(records_per_s=number * factor / seconds)


def parse_byte_rate(text: str) -> float:
    """Return bytes a second: `10 MB/s`."""
    try:
        found = parse_rate(text).bytes_per_s
    except ValueError:
        found = None
    if found is None:
        raise ValueError(f"{text!r} is no rate of bytes; write for example 10 MB/s")
    return found


def _split(text: str) -> tuple[float | None, str]:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None, ""
    return float(match[1].replace("_", "")), match[2].strip().lower()


# Back to words.


def size_words(size_bytes: float) -> str:
    """`1500000` as `1.5 MB`."""
    return _scaled(size_bytes, ((10**15, "PB"), (10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))) or (
        f"{size_bytes:,.0f} B"
    )


def byte_rate_words(bytes_per_s: float) -> str:
    return f"{size_words(bytes_per_s)}/s"


def record_rate_words(per_s: float) -> str:
    """`0.05` as `3/min`."""
    if per_s >= 1 or not per_s:
        return f"{_short(per_s)}/s"
    return f"{_short(per_s * 60)}/min" if per_s * 60 >= 1 else f"{_short(per_s * 3600)}/h"


def duration_words(milliseconds: float) -> str:
    """`604800000` as `7 d`; what leaves a rest has one decimal."""
    if milliseconds < 0:
        return "forever"
    units = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
    return _scaled(milliseconds, units) or f"{milliseconds:,.0f} ms"


def duration_text(milliseconds: int) -> str:
    """Return a duration that `parse_duration_ms` reads back to the same number: `7d`, `90s`, `1500ms`."""
    for factor, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if milliseconds and milliseconds % factor == 0:
            return f"{milliseconds // factor}{unit}"
    return f"{milliseconds}ms"


def size_text(size_bytes: int) -> str:
    """Return a size that `parse_size` reads back to the same number: `1 GiB`, `10 MB`, `1500 B`."""
    units = (("TiB", 1 << 40), ("TB", 10**12), ("GiB", 1 << 30), ("GB", 10**9), ("MiB", 1 << 20), ("MB", 10**6))
    for unit, factor in (*units, ("KiB", 1 << 10), ("kB", 10**3)):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"


def _scaled(number: float, units: tuple[tuple[int, str], ...]) -> str:
    for factor, unit in units:
        if number >= factor:
            return f"{_short(number / factor)} {unit}"
    return ""


def _short(number: float) -> str:
    if number >= 100:
        return f"{number:,.0f}"
    text = f"{number:.1f}" if number >= 10 else f"{number:.2f}"
    return text.rstrip("0").rstrip(".")
