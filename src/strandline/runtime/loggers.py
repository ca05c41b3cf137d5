"""The loggers of this process and their levels, in Kafka's words, for the broker-logger resource.

`root` is the logger of the whole process; the others are ours. A level stays in force until the process ends.
"""

from __future__ import annotations

import logging
from typing import Final

from strandline.errors import ErrorCode, InvalidConfig, RequestError

ROOT: Final = "root"
OURS: Final = "strandline"
TRACE: Final = 5

LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": TRACE,
    "WARN": logging.WARNING,
}

logging.addLevelName(TRACE, "TRACE")


def levels() -> dict[str, str]:
    """Return the level in force of each logger."""
    # A logger that was only named on the way to another (`strandline.broker` of `strandline.broker.x`) has no object.
    ours = sorted(
        name
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and (name == OURS or name.startswith(f"{OURS}."))
    )
    return {name: _word(_logger(name).getEffectiveLevel()) for name in (ROOT, *ours)}


def _word(level: int) -> str:
    for word in ("FATAL", "ERROR", "WARN", "INFO", "DEBUG"):
        if level >= LEVELS[word]:
            return word
    return "TRACE"


def check_level(name: str, level: str | None) -> None:
    """Raise an error for an unknown logger, an unknown level, and for removing the level of the root (None)."""
    if name not in levels():
        raise InvalidConfig(f"Logger {name} does not exist!")
    if level is None and name == ROOT:
        raise RequestError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
    if level is not None and level not in LEVELS:
        raise InvalidConfig(f"{level!r} is no log level for {name}; expected one of {', '.join(LEVELS)}")


def set_level(name: str, level: str | None) -> None:
    """Set the level of a logger. None makes it follow its parent again."""
    check_level(name, level)
    _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
