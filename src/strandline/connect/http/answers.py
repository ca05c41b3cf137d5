"""What the API answers with, in the fields of Kafka Connect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strandline.connect.herder.interface import ConnectorInfo, ConnectorStatus, UnitStatus
from strandline.connect.plugins import Plugins
from strandline.connect.records import SourcePosition
from strandline.connect.validation.masking import masked
from strandline.connect.validation.parts import PART_KINDS, PART_VERSION, part_names

Json = dict[str, Any]


def info_json(plugins: Plugins, info: ConnectorInfo) -> Json:
    """Return a connector, its passwords hidden."""
    return {
        "name": info.name,
        "config": masked(plugins, info.config),
        "tasks": [{"connector": info.name, "task": number} for number in range(info.tasks)],
        "type": info.kind or "unknown",
    }


def status_json(status: ConnectorStatus) -> Json:
    """Return the state of a connector and of its tasks."""
    return {
        "name": status.name,
        "connector": _unit_json(status.connector),
        "tasks": [task_json(number, each) for number, each in sorted(status.tasks.items())],
        "type": status.kind or "unknown",
    }


def task_json(number: int, status: UnitStatus) -> Json:
    """Return the state of a task."""
    return {"id": number, **_unit_json(status)}


def _unit_json(status: UnitStatus) -> Json:
    found: Json = {"state": status.state, "worker_id": status.worker_id, "version": status.version}
    if status.trace:
        found["trace"] = status.trace
    return found


def tasks_json(plugins: Plugins, name: str, configs: Sequence[Mapping[str, str]]) -> list[Json]:
    """Return the configs of a connector's tasks, their passwords hidden."""
    return [
        {"id": {"connector": name, "task": number}, "config": masked(plugins, config)}
        for number, config in enumerate(configs)
    ]


def offsets_json(positions: Sequence[SourcePosition]) -> Json:
    """Return the positions of a connector."""
    return {
        "offsets": [
            {"partition": dict(partition), "offset": None if offset is None else dict(offset)}
            for partition, offset in positions
        ]
    }


def plugins_json(plugins: Plugins, *, only_connectors: bool) -> list[Json]:
    """Return what can be used in a config: sinks, sources, and the parts of connectors."""
    found = [
        {"class": each.name, "type": kind, "version": each.version}
        for kind in ("sink", "source")
        for each in plugins
        if each.kind == kind
    ]
    if not only_connectors:
        found += [
            {"class": name, "type": kind, "version": PART_VERSION} for kind in PART_KINDS for name in part_names(kind)
        ]
    return found
