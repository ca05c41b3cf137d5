"""What a caller may do with a connector, or with the worker as a whole. The guard in front of the API decides."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Protocol


class ConnectRight(Enum):
    """What a route does."""

    SEE = auto()
    """Read configs, states and positions."""
    CHANGE = auto()
    """Create, change, start, stop and delete connectors, and validate configs: that runs code of a connector."""
    ADMIN = auto()
    """Read and set the levels of loggers."""


class ConnectRights(Protocol):
    """The rights of one caller at one moment."""

    def why_denied(self, right: ConnectRight, connector: str | None) -> str | None:
        """Return a sentence if the caller lacks a right, None if it has it. No connector is the worker as a whole."""


class _EveryConnectRight:
    """The rights of all callers of a worker that stands behind no guard."""

    def why_denied(self, right: ConnectRight, connector: str | None) -> None:
        return None


EVERY_CONNECT_RIGHT: Final[ConnectRights] = _EveryConnectRight()
