"""A broker's standing in its cluster: registered, unfenced, shutting down; kept up by heartbeats to the controller.

STARTING --registered, and metadata read up to the registration--> FENCED --controller says so--> RUNNING
RUNNING --begin_shutdown--> PENDING_CONTROLLED_SHUTDOWN --leaderships are elsewhere--> STOPPED
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto


class BrokerState(Enum):
    STARTING = auto()
    FENCED = auto()
    RUNNING = auto()
    PENDING_CONTROLLED_SHUTDOWN = auto()
    STOPPED = auto()


class Lifecycle:
    state: BrokerState
    broker_epoch: int
    """Of the registration in force; -1 before the first. Goes into AlterPartition, replica Fetch and so on."""
    is_fenced: bool
    """Whether the controller last said so, or has not been heard for a session. Such a broker acknowledges nothing."""
    on_running: Callable[[], object]
    """Called once, when the controller has unfenced the broker for the first time."""

    def start(self) -> None: ...

    def begin_shutdown(self, on_done: Callable[[], object]) -> None:
        """Ask the controller to move leaderships away; `on_done` when it has, or when nobody answered for too long."""

    def close(self) -> None: ...
