"""What `doctor` finds: one fact each, how bad it is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing to do."""
    WARNING = "warning"
    """It works, and could be better or safer."""
    PROBLEM = "problem"
    """It is wrong: something does not work, or records are in danger."""


@dataclass(frozen=True)
class Finding:
    level: Level
    check: str
    """Which check it was, a stable word for scripts."""
    text: str
    advice: str = ""

    def as_json(self) -> dict[str, str | None]:
        return {"level": str(self.level), "check": self.check, "text": self.text, "advice": self.advice or None}


def ok(check: str, text: str) -> Finding:
    return Finding(Level.OK, check, text)


def note(check: str, text: str, advice: str = "") -> Finding:
    return Finding(Level.NOTE, check, text, advice)


def warning(check: str, text: str, advice: str = "") -> Finding:
    return Finding(Level.WARNING, check, text, advice)


def problem(check: str, text: str, advice: str = "") -> Finding:
    return Finding(Level.PROBLEM, check, text, advice)
