"""What a caller may do with a subject, or with the registry as a whole. The guard in front of it decides."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Protocol


class Right(Enum):
    """What a route does with the subject that it names."""

    SEE = auto()
    REGISTER = auto()
    DELETE = auto()
    CONFIGURE = auto()
    """Set compatibility, mode and aliases, or go around the compatibility that is set."""


class CallerRights(Protocol):
    """The rights of one caller at one moment."""

    def why_denied(self, right: Right, subject: str | None) -> str | None:
        """Return a sentence if the caller lacks a right, None if it has it.

        `subject` has its context in front. None, or a context without a subject, is the registry as a whole.
        """


class _EveryRight:
    """The rights of all callers of a registry that stands behind no guard."""

    def why_denied(self, right: Right, subject: str | None) -> None:
        return None


EVERY_RIGHT: Final[CallerRights] = _EveryRight()
