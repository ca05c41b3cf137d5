"""The format of the log on standard error: text for people, or one JSON object per line for machines.

A caller that logs gives its facts twice: as a sentence, and as fields (`extra=fields(host=...)`). Text shows the
sentence. JSON shows both, so no program has to parse a sentence.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, Final

TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FIELD_CHARACTERS_MAX: Final = 1_000
"""Length of a field, which a peer may have chosen. The rest is truncated."""


def fields(**facts: Any) -> dict[str, Any]:
    """Return `extra` with the facts of an event under one name, so that none clashes with logging's own names."""
    return {"fields": facts}


class JsonLines(logging.Formatter):
    """One JSON object per event."""

    def __init__(self) -> None:
        super().__init__()
        # Imported here, because a node that writes text should not pay for it when it starts.
        from json import dumps

        self._dumps = dumps

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, fact in getattr(record, "fields", {}).items():
            line.setdefault(name, _short(fact))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return self._dumps(line, ensure_ascii=False, default=str)


def _short(fact: Any) -> Any:
    if fact is None or isinstance(fact, bool | int | float):
        return fact
    text = str(fact)
    return text if len(text) <= FIELD_CHARACTERS_MAX else text[:FIELD_CHARACTERS_MAX] + "..."


class TextLines(logging.Formatter):
    """One line per event, with newlines escaped, because a peer may have put one into a name."""

    def __init__(self) -> None:
        super().__init__(TEXT_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).replace("\n", "\\n").replace("\r", "\\r")


def set_up(*, form: str = "text", level: str = "INFO") -> None:
    """Write the log to standard error in this format. Call it again once the settings are known."""
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, _OurHandler)]:
        root.removeHandler(handler)
    handler = _OurHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root.addHandler(handler)
    root.setLevel(level)


class _OurHandler(logging.StreamHandler[Any]):
    pass
