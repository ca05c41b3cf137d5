"""Sizes and times as people say them (pure)."""

from __future__ import annotations

_TIME_UNITS = ((7 * 86_400_000, "week"), (86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
_SIZE_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
LONG_MAX = 2**63 - 1


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(milliseconds: int) -> str:
    """`90000` as `90 seconds`: the largest unit that leaves no rest."""
    for unit_ms, noun in _TIME_UNITS:
        if milliseconds >= unit_ms and milliseconds % unit_ms == 0:
            return count(milliseconds // unit_ms, noun)
    return f"{milliseconds:,} ms"


def size(size_bytes: int) -> str:
    """`1536` as `1.5 KiB`."""
    for unit, name in _SIZE_UNITS:
        if size_bytes >= unit:
            return f"{size_bytes / unit:.3g} {name}" if size_bytes < 1000 * unit else f"{size_bytes / unit:,.0f} {name}"
    return f"{size_bytes:,} B"


def setting_value(name: str, text: str | None) -> str:
    """Return what a value means, where the number alone does not say it; empty otherwise."""
    if text is None or not text.lstrip("-").isdigit():
        return ""
    number = int(text)
    if number == LONG_MAX:
        return "never" if name.startswith(("flush.", "log.flush.")) else "no limit"
    if number == -1 and ".retention." in f".{name}":
        return "no limit"
    if name.endswith(".ms") and number >= 1000:
        return duration(number)
    if name.endswith((".bytes", ".bytes.per.second")) and number >= 1024:
        return size(number)
    return ""
