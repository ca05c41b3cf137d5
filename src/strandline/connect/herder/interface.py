"""What the REST API, the command line and tests ask of a worker. `worker.Worker` answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from strandline.connect.failures import ConnectFailed
from strandline.connect.plugins import ConnectorKind
from strandline.connect.records import SourcePosition

TargetState = Literal["STARTED", "PAUSED", "STOPPED"]


class RequestFailed(ConnectFailed):
    """A request that cannot be served, with the status of HTTP that Connect has for it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class ConnectorInfo:
    """A connector as it is configured."""

    name: str
    config: Mapping[str, str]
    tasks: int
    kind: ConnectorKind | None
    """None if its class is not known to this worker."""


@dataclass(frozen=True)
class UnitStatus:
    """The state of a connector or of one of its tasks, as the status topic has it."""

    state: str
    """UNASSIGNED, RUNNING, PAUSED, STOPPED, FAILED, RESTARTING or DESTROYED."""
    worker_id: str
    trace: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class ConnectorStatus:
    """A connector's state and those of its tasks, by number."""

    name: str
    kind: ConnectorKind | None
    connector: UnitStatus
    tasks: Mapping[int, UnitStatus]


class Herder(Protocol):
    """Every method raises RequestFailed: 404 for a connector that is not there, 409 while the group rebalances.

    Methods that change something are served by the leader; elsewhere they raise LeaderOnly.
    """

    def cluster_id(self) -> str: ...

    def trouble(self) -> str | None:
        """Return why the worker cannot serve yet, in a sentence; None if it is a member of its group and serves."""

    def connectors(self) -> Sequence[str]: ...

    def info(self, name: str) -> ConnectorInfo: ...

    def task_configs(self, name: str) -> Sequence[Mapping[str, str]]: ...

    def status(self, name: str) -> ConnectorStatus: ...

    def topics(self, name: str) -> Sequence[str]:
        """Return the topics that a connector has used since it was made, or since the last reset."""

    async def create(self, name: str, config: Mapping[str, str], state: TargetState = "STARTED") -> ConnectorInfo:
        """Store a new connector; 409 if there is one of this name, 400 if its config is wrong."""

    async def put_config(self, name: str, config: Mapping[str, str]) -> tuple[bool, ConnectorInfo]:
        """Store a config; return whether the connector is new."""

    async def patch_config(self, name: str, changes: Mapping[str, str | None]) -> ConnectorInfo:
        """Change some settings; None removes one."""

    async def delete(self, name: str) -> None: ...

    async def set_target_state(self, name: str, state: TargetState) -> None: ...

    async def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> ConnectorStatus: ...

    async def restart_task(self, name: str, task: int) -> None: ...

    async def reset_topics(self, name: str) -> None: ...

    async def offsets(self, name: str) -> Sequence[SourcePosition]:
        """Return positions. Those of a sink are `{"kafka_topic", "kafka_partition"}` and `{"kafka_offset"}`."""

    async def inspect(self, name: str) -> Mapping[str, Any]:
        """Return what the other side of a source says of it; nothing if it cannot be asked."""

    async def alter_offsets(self, name: str, positions: Sequence[SourcePosition]) -> str:
        """Set positions of a stopped connector; return the message for the caller."""

    async def reset_offsets(self, name: str) -> str: ...

    def loggers(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the loggers whose level was set, each with `level` and `last_modified`."""

    async def set_level(self, logger: str, level: str, *, is_cluster_wide: bool) -> Sequence[str] | None:
        """Set the level of a logger and those below it; return which ones, None if it is for every worker."""


class LeaderOnly(RequestFailed):
    """A change that only the leader may make. `leader_url` is where it serves; None while the group rebalances."""

    def __init__(self, leader_url: str | None) -> None:
        super().__init__(
            409,
            "Cannot complete request momentarily due to stale configuration "
            "(typically caused by a concurrent config change)",
        )
        self.leader_url = leader_url
