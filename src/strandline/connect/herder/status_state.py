"""States of connectors and tasks, and the topics that they use, on the status topic of Kafka Connect."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from strandline.connect.herder.config_state import StateRecord, TaskId, json_object, to_json
from strandline.connect.herder.interface import UnitStatus

CONNECTOR: Final = "status-connector-"
TASK: Final = "status-task-"
TOPIC: Final = "status-topic-"
_OF_CONNECTOR: Final = ":connector-"
TRACE_CHARS_MAX: Final = 100_000
"""At most 400 kB in UTF-8, less than a topic takes by default."""


@dataclass(frozen=True)
class StoredStatus:
    """A state with the generation of the group in which it was written."""

    status: UnitStatus
    generation: int


class StatusState:
    """The fold of the status topic. The reader's thread writes it, others read it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connectors: dict[str, StoredStatus] = {}
        self._tasks: dict[TaskId, StoredStatus] = {}
        self._topics: dict[str, set[str]] = {}

    def apply(self, records: Sequence[StateRecord]) -> None:
        with self._lock:
            for record in records:
                self._apply(record)

    def connector(self, name: str) -> StoredStatus | None:
        with self._lock:
            return self._connectors.get(name)

    def tasks(self, name: str) -> dict[int, StoredStatus]:
        with self._lock:
            return {each.task: stored for each, stored in sorted(self._tasks.items()) if each.connector == name}

    def topics(self, name: str) -> list[str]:
        with self._lock:
            return sorted(self._topics.get(name, ()))

    def put(self, name: str | TaskId, stored: StoredStatus) -> None:
        """Take a state that this worker is about to write, so that it is seen at once."""
        with self._lock:
            if isinstance(name, TaskId):
                self._tasks[name] = stored
            else:
                self._connectors[name] = stored

    def _apply(self, record: StateRecord) -> None:
        key = record.key.decode(errors="replace")
        value = json_object(record.value)
        if key.startswith(CONNECTOR):
            _set(self._connectors, key.removeprefix(CONNECTOR), _stored(value))
        elif key.startswith(TASK):
            connector, _, number = key.removeprefix(TASK).rpartition("-")
            if number.isdecimal():
                _set(self._tasks, TaskId(connector, int(number)), _stored(value))
        elif key.startswith(TOPIC):
            topic, _, connector = key.removeprefix(TOPIC).partition(_OF_CONNECTOR)
            known = self._topics.setdefault(connector, set())
            if value is None:
                known.discard(topic)
            else:
                known.add(topic)


def status_record(name: str | TaskId, stored: StoredStatus | None) -> StateRecord:
    """Return the record of a state; None deletes it."""
    key = f"{TASK}{name}" if isinstance(name, TaskId) else f"{CONNECTOR}{name}"
    if stored is None:
        return StateRecord(key.encode(), None)
    status = stored.status
    value = {
        "state": status.state,
        # A record that the topic refuses would hold up the states of all others.
        "trace": status.trace and shortened(status.trace),
        "worker_id": status.worker_id,
        "generation": stored.generation,
        "version": status.version,
    }
    return StateRecord(key.encode(), to_json(value))


def shortened(trace: str) -> str:
    """Return a trace without its middle if it is too long for a record."""
    if len(trace) <= TRACE_CHARS_MAX:
        return trace
    half = TRACE_CHARS_MAX // 2
    return f"{trace[:half]}\n... {len(trace) - 2 * half:,} characters are left out ...\n{trace[-half:]}"


def topic_record(topic: str, task: TaskId, *, is_used: bool = True) -> StateRecord:
    """Return the record of a topic that a connector uses, or does not use any more."""
    key = f"{TOPIC}{topic}{_OF_CONNECTOR}{task.connector}".encode()
    if not is_used:
        return StateRecord(key, None)
    about = {
        "name": topic,
        "connector": task.connector,
        "task": task.task,
        "discoverTimestamp": int(time.time() * 1000),
    }
    return StateRecord(key, to_json({"topic": about}))


def _stored(value: Mapping[str, Any] | None) -> StoredStatus | None:
    if value is None:
        return None
    generation = value.get("generation")
    return StoredStatus(
        UnitStatus(
            str(value.get("state")), str(value.get("worker_id")), value.get("trace") or None, value.get("version")
        ),
        generation if isinstance(generation, int) else 0,
    )


def _set(states: dict[Any, StoredStatus], name: Any, stored: StoredStatus | None) -> None:
    if stored is None:
        states.pop(name, None)
    else:
        states[name] = stored
