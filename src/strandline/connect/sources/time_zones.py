"""Names of time zones in settings."""

from __future__ import annotations

from zoneinfo import ZoneInfo


def check_zone(name: str) -> str | None:
    """Return what is wrong with the name of a time zone."""
    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        return "it is no name of a time zone like Europe/Berlin"
    return None
