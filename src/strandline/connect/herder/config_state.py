"""What the config topic says: connectors, their tasks and target states, by the formats of Kafka Connect.

Task configs count only when a commit record follows them. If compaction has taken some of a commit's tasks away, the
connector's tasks are unknown until the leader writes them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from strandline.connect.herder.interface import TargetState

CONNECTOR: Final = "connector-"
TASK: Final = "task-"
COMMIT: Final = "commit-"
TARGET_STATE: Final = "target-state-"
FENCING: Final = "tasks-fencing-"
RESTART: Final = "restart-connector-"
LOGGER: Final = "logger-cluster-"

Config = Mapping[str, str]


class StateRecord(NamedTuple):
    """A record of one of Connect's topics."""

    key: bytes
    value: bytes | None


class TaskId(NamedTuple):
    """One task of a connector."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


class RestartRequest(NamedTuple):
    """An order to restart a connector on the workers that run parts of it."""

    connector: str
    include_tasks: bool
    only_failed: bool


@dataclass
class ConnectorState:
    """A connector as the topic has it."""

    config: Config
    config_number: int = 0
    """Grows with each config that was stored; the task configs of an older one are out of date."""
    target: TargetState = "STARTED"
    tasks: tuple[Config, ...] | None = None
    """None if there are none yet, or they are unknown."""
    tasks_number: int = 0
    """Grows with each commit of task configs."""
    tasks_config_number: int = -1
    """The number of the config that the tasks were made of."""
    fenced_tasks: int = 0
    """How many producers of tasks there may be: those of the last generation that was fenced."""
    is_fenced: bool = False
    """Whether the producers of all generations before the one of `tasks` are fenced."""


@dataclass
class ConfigState:
    """The fold of the config topic."""

    connectors: dict[str, ConnectorState] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)
    """Levels of loggers that were set for the whole cluster."""
    _deferred: dict[str, dict[int, Config]] = field(default_factory=dict)
    _targets: dict[str, TargetState] = field(default_factory=dict)
    """Also of connectors whose config comes later in the topic."""
    _fencing: dict[str, int] = field(default_factory=dict)
    _number: int = 0

    def apply(self, record: StateRecord) -> RestartRequest | None:
        """Take a record; return the order to restart, if it is one. What cannot be read is left out, as in Kafka."""
        key = record.key.decode(errors="replace")
        value = json_object(record.value)
        if value is None and record.value is not None:
            return None
        self._number += 1
        if key.startswith(CONNECTOR):
            self._on_connector(key.removeprefix(CONNECTOR), value)
        elif key.startswith(FENCING):
            self._on_fencing(key.removeprefix(FENCING), value)
        elif key.startswith(TASK):
            self._on_task(key.removeprefix(TASK), value)
        elif key.startswith(COMMIT):
            self._on_commit(key.removeprefix(COMMIT), value)
        elif key.startswith(TARGET_STATE):
            self._on_target(key.removeprefix(TARGET_STATE), value)
        elif key.startswith(LOGGER):
            self._on_level(key.removeprefix(LOGGER), value)
        elif key.startswith(RESTART) and value is not None:
            return RestartRequest(
                key.removeprefix(RESTART), value.get("include-tasks") is True, value.get("only-failed") is True
            )
        return None

    def task_ids(self) -> Iterator[TaskId]:
        """Yield every task that is to be on some worker."""
        for name, connector in self.connectors.items():
            if connector.target != "STOPPED":
                for number in range(len(connector.tasks or ())):
                    yield TaskId(name, number)

    def _on_connector(self, name: str, value: dict[str, Any] | None) -> None:
        if value is None:
            self.connectors.pop(name, None)
            self._deferred.pop(name, None)
            self._targets.pop(name, None)
            return
        config = _texts(value.get("properties"))
        known = self.connectors.get(name)
        if known is None:
            known = self.connectors[name] = ConnectorState(config, target=self._targets.get(name, "STARTED"))
            known.fenced_tasks = self._fencing.get(name, 0)
        known.config = config
        known.config_number = self._number

    def _on_task(self, name: str, value: dict[str, Any] | None) -> None:
        connector, _, number = name.rpartition("-")
        if value is not None and number.isdecimal():
            self._deferred.setdefault(connector, {})[int(number)] = _texts(value.get("properties"))

    def _on_commit(self, name: str, value: dict[str, Any] | None) -> None:
        deferred = self._deferred.pop(name, {})
        known = self.connectors.get(name)
        count = None if value is None else value.get("tasks")
        if known is None or not isinstance(count, int):
            return
        known.tasks_number = self._number
        known.is_fenced = False
        if set(deferred) >= set(range(count)):
            known.tasks = tuple(deferred[each] for each in range(count))
            known.tasks_config_number = known.config_number
        else:
            known.tasks = None

    def _on_fencing(self, name: str, value: dict[str, Any] | None) -> None:
        count = 0 if value is None else value.get("task-count")
        if isinstance(count, int):
            self._fencing[name] = count
            if (known := self.connectors.get(name)) is not None:
                known.fenced_tasks = count
                known.is_fenced = True

    def _on_target(self, name: str, value: dict[str, Any] | None) -> None:
        given = None if value is None else value.get("state.v2") or value.get("state")
        state: TargetState = given if given in ("STARTED", "PAUSED", "STOPPED") else "STARTED"
        self._targets[name] = state
        if (known := self.connectors.get(name)) is not None:
            known.target = state

    def _on_level(self, name: str, value: dict[str, Any] | None) -> None:
        level = None if value is None else value.get("level")
        if isinstance(level, str):
            self.levels[name] = level


def connector_record(name: str, config: Config | None) -> StateRecord:
    """Return the record of a connector's config; None deletes it."""
    return _record(CONNECTOR + name, None if config is None else {"properties": dict(config)})


def target_record(name: str, state: TargetState | None) -> StateRecord:
    """Return the record of a target state. Workers before Kafka 3.5 know no STOPPED: they see PAUSED."""
    if state is None:
        return _record(TARGET_STATE + name, None)
    return _record(TARGET_STATE + name, {"state": "PAUSED" if state == "STOPPED" else state, "state.v2": state})


def task_records(name: str, tasks: Sequence[Config]) -> list[StateRecord]:
    """Return the records of task configs, with their commit."""
    return [
        *(_record(f"{TASK}{name}-{number}", {"properties": dict(each)}) for number, each in enumerate(tasks)),
        _record(COMMIT + name, {"tasks": len(tasks)}),
    ]


def fencing_record(name: str, tasks: int) -> StateRecord:
    """Return the record which says that older producers are fenced, and how many this generation may have."""
    return _record(FENCING + name, {"task-count": tasks})


def restart_record(request: RestartRequest) -> StateRecord:
    """Return the record of an order to restart."""
    value = {"include-tasks": request.include_tasks, "only-failed": request.only_failed}
    return _record(RESTART + request.connector, value)


def level_record(logger: str, level: str) -> StateRecord:
    """Return the record of a logger's level for all workers."""
    return _record(LOGGER + logger, {"level": level})


def _record(key: str, value: Mapping[str, Any] | None) -> StateRecord:
    return StateRecord(key.encode(), None if value is None else to_json(value))


def to_json(value: Any) -> bytes:
    """Return JSON as Connect's converter writes it: compact, and only half a surrogate pair is escaped."""
    # Names of files that are no UTF-8 have such halves, and errors name files.
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="backslashreplace")


def json_object(data: bytes | None) -> dict[str, Any] | None:
    """Return the JSON object that a record holds; None if it holds something else."""
    if data is None:
        return None
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _texts(value: Any) -> Config:
    if not isinstance(value, dict):
        return {}
    return {
        name: each if isinstance(each, str) else json.dumps(each) for name, each in value.items() if each is not None
    }
