"""What an administrator sees and changes, through any worker. Changes are made by the leader."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from strandline.connect.failures import ConnectFailed, FencedOut, InvalidConnectorConfig
from strandline.connect.herder import sink_positions
from strandline.connect.herder.config_state import (
    ConnectorState,
    RestartRequest,
    StateRecord,
    TaskId,
    connector_record,
    level_record,
    restart_record,
    target_record,
)
from strandline.connect.herder.interface import (
    ConnectorInfo,
    ConnectorStatus,
    LeaderOnly,
    RequestFailed,
    TargetState,
    UnitStatus,
)
from strandline.connect.herder.offset_store import ConnectorOffsets
from strandline.connect.herder.status_state import topic_record
from strandline.connect.herder.worker import ConnectWorker
from strandline.connect.plugins import ConnectorKind, Plugin
from strandline.connect.records import SourcePosition, TopicPosition
from strandline.connect.sink import Sink
from strandline.connect.source import Source
from strandline.connect.tasks.calls import TaskThreads
from strandline.connect.tasks.sink_task import group_of
from strandline.connect.validation.checks import check

STOPPED_S_MAX: Final = 10.0
_LEVELS: Final = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
"""Connect's levels of loggers, and Python's."""


class Administration:
    """Answers for a worker; `interface.Herder` says what each method does."""

    def __init__(self, worker: ConnectWorker) -> None:
        self._worker = worker
        self._stores = worker.stores
        self._modified_ms: dict[str, int] = {}

    def cluster_id(self) -> str:
        return self._worker.cluster_id

    def trouble(self) -> str | None:
        if not self._worker.joined.is_set():
            return "Worker is still joining its group"
        return None

    def connectors(self) -> Sequence[str]:
        return list(self._stores.configs.connectors)

    def info(self, name: str) -> ConnectorInfo:
        found = self._find(name)
        return ConnectorInfo(name, found.config, len(found.tasks or ()), self._kind(found.config))

    def task_configs(self, name: str) -> Sequence[Mapping[str, str]]:
        return self._find(name).tasks or ()

    def status(self, name: str) -> ConnectorStatus:
        found = self._stores.configs.connectors.get(name)
        stored = self._stores.statuses.connector(name)
        if found is None or stored is None:
            raise RequestFailed(404, f"No status found for connector {name}")
        tasks = self._stores.statuses.tasks(name)
        count = len(found.tasks or ())
        shown = {number: each.status for number, each in tasks.items() if number < count}
        return ConnectorStatus(name, self._kind(found.config), stored.status, shown)

    def topics(self, name: str) -> Sequence[str]:
        self._find(name)
        return self._stores.statuses.topics(name)

    # Changes

    async def create(self, name: str, config: Mapping[str, str], state: TargetState = "STARTED") -> ConnectorInfo:
        self._lead()
        if name in self._stores.configs.connectors:
            raise RequestFailed(409, f"Connector {name} already exists")
        await self._check(config)
        records = [] if state == "STARTED" else [target_record(name, state)]
        await self._write([*records, connector_record(name, config)])
        return ConnectorInfo(name, config, 0, self._kind(config))

    async def put_config(self, name: str, config: Mapping[str, str]) -> tuple[bool, ConnectorInfo]:
        self._lead()
        known = self._stores.configs.connectors.get(name)
        await self._check(config)
        await self._write([connector_record(name, config)])
        return known is None, self.info(name)

    async def patch_config(self, name: str, changes: Mapping[str, str | None]) -> ConnectorInfo:
        self._lead()
        merged: dict[str, str | None] = {**self._find(name).config, **changes}
        config = {key: value for key, value in merged.items() if value is not None}
        return (await self.put_config(name, config))[1]

    async def delete(self, name: str) -> None:
        self._lead()
        self._find(name)
        await self._write([connector_record(name, None), target_record(name, None)])
        for topic in self._stores.statuses.topics(name):
            self._stores.write_status(topic_record(topic, TaskId(name, 0), is_used=False))

    async def set_target_state(self, name: str, state: TargetState) -> None:
        self._find(name)
        self._lead()
        await self._write([target_record(name, state)])

    async def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> ConnectorStatus:
        self._find(name)
        self._lead()
        status = self.status(name)
        await self._write([restart_record(RestartRequest(name, include_tasks, only_failed))])

        def planned(unit: UnitStatus) -> UnitStatus:
            is_meant = unit.state == "FAILED" or not only_failed
            return UnitStatus("RESTARTING", unit.worker_id, unit.trace, unit.version) if is_meant else unit

        tasks = {number: planned(each) if include_tasks else each for number, each in status.tasks.items()}
        return ConnectorStatus(name, status.kind, planned(status.connector), tasks)

    async def restart_task(self, name: str, task: int) -> None:
        found = self._find(name)
        if task >= len(found.tasks or ()):
            raise RequestFailed(404, f"Unknown task: {name}-{task}")
        task_id = TaskId(name, task)
        if self._worker.runner(task_id) is not None:
            await self._worker.restart(task_id)
            return
        owner = self._stores.statuses.tasks(name).get(task)
        if owner is None or owner.status.worker_id == self._worker.worker_id:
            raise LeaderOnly(None)
        raise LeaderOnly(f"{self._worker.url.partition('://')[0]}://{owner.status.worker_id}")

    async def reset_topics(self, name: str) -> None:
        for topic in self.topics(name):
            self._stores.write_status(topic_record(topic, TaskId(name, 0), is_used=False))

    # Positions

    async def offsets(self, name: str) -> Sequence[SourcePosition]:
        found = self._find(name)
        if self._kind(found.config) == "sink":
            group = group_of(name, found.config)
            return await asyncio.to_thread(sink_positions.read, self._worker.bootstrap, group)
        reader, state = self._stores.offsets()
        await asyncio.to_thread(reader.read_to_end, STOPPED_S_MAX)
        return list(state.of(name).all())

    async def inspect(self, name: str) -> Mapping[str, Any]:
        found = self._find(name)
        plugin = self._plugin(found.config)
        if plugin.kind == "sink":
            return {}
        reader, state = self._stores.offsets()
        await asyncio.to_thread(reader.read_to_end, STOPPED_S_MAX)
        return await asyncio.to_thread(self._inspect, plugin, found.config, state.of(name))

    def _inspect(self, plugin: Plugin, config: Mapping[str, str], offsets: ConnectorOffsets) -> Mapping[str, Any]:
        made = plugin.load()
        assert issubclass(made, Source)
        try:
            source = made(made.Config(self._worker.resolve(config)))
            source.paths = self._worker.paths
            return source.inspect(offsets)
        except ConnectFailed as error:
            return {"problems": [str(error)]}

    async def alter_offsets(self, name: str, positions: Sequence[SourcePosition]) -> str:
        self._lead()
        found = self._stopped(name)
        plugin = self._plugin(found.config)
        if plugin.kind == "sink":
            group = group_of(name, found.config)
            await self._set_in_target(plugin, found.config, sink_positions.parse(positions))
            await asyncio.to_thread(sink_positions.alter, self._worker.bootstrap, group, positions)
            return "The offsets for this connector have been altered successfully"
        await asyncio.to_thread(self._check_positions, plugin, found.config, positions)
        await self._set_positions(name, found, positions)
        return "The offsets for this connector have been altered successfully"

    async def reset_offsets(self, name: str) -> str:
        self._lead()
        found = self._stopped(name)
        plugin = self._plugin(found.config)
        if plugin.kind == "sink":
            group = group_of(name, found.config)
            known = sink_positions.parse(await self.offsets(name))
            await self._set_in_target(plugin, found.config, dict.fromkeys(known))
            await asyncio.to_thread(sink_positions.delete, self._worker.bootstrap, group)
        else:
            stored = await self.offsets(name)
            await self._set_positions(name, found, [(partition, None) for partition, _ in stored])
        return "The offsets for this connector have been reset successfully"

    async def _set_positions(self, name: str, found: ConnectorState, positions: Sequence[SourcePosition]) -> None:
        # A task that hangs on some worker must not write its position after ours.
        await self._worker.leader.fence(name, found.fenced_tasks)
        reader, state = self._stores.offsets()
        await asyncio.to_thread(reader.read_to_end, STOPPED_S_MAX)
        await self._stores.write_offsets(name, state.records(name, positions))

    async def _set_in_target(
        self, plugin: Plugin, config: Mapping[str, str], offsets: Mapping[TopicPosition, int | None]
    ) -> None:
        """Set the offsets that a sink keeps in its target: they hold before those of the group."""
        found = plugin.load()
        if not issubclass(found, Sink) or not found.keeps_offsets:
            return
        threads = TaskThreads("set-offsets")
        sink = found(found.Config(self._worker.resolve(config)))
        sink.paths = self._worker.paths
        try:
            await threads.call(sink.open)
            await threads.call(sink.set_offsets, offsets)
        except InvalidConnectorConfig as error:
            raise RequestFailed(400, str(error)) from None
        finally:
            await threads.call(sink.close)
            threads.close()

    def _check_positions(self, plugin: Plugin, config: Mapping[str, str], positions: Sequence[SourcePosition]) -> None:
        found = plugin.load()
        assert issubclass(found, Source)
        try:
            found.check_offsets(found.Config(self._worker.resolve(config)), positions)
        except InvalidConnectorConfig as error:
            raise RequestFailed(400, str(error)) from None

    def _stopped(self, name: str) -> ConnectorState:
        """Return a connector that is stopped, with all its tasks. Raise RequestFailed if it is not."""
        found = self._find(name)
        running = [each for each in self._stores.statuses.tasks(name).values() if each.status.state == "RUNNING"]
        if found.target != "STOPPED" or found.tasks:
            raise RequestFailed(
                400,
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for "
                f"the specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint",
            )
        if running and any(self._worker.runner(TaskId(name, each)) for each in range(len(running))):
            raise RequestFailed(409, f"tasks of {name} are still about to stop")
        return found

    # Loggers

    def loggers(self) -> Mapping[str, Mapping[str, Any]]:
        shown = {"root": logging.getLogger()}
        for name, found in logging.Logger.manager.loggerDict.items():
            if isinstance(found, logging.Logger) and (found.level or name in self._modified_ms):
                shown[name] = found
        return {
            name: {"level": _level_name(each.getEffectiveLevel()), "last_modified": self._modified_ms.get(name)}
            for name, each in sorted(shown.items())
        }

    async def set_level(self, logger: str, level: str, *, is_cluster_wide: bool) -> Sequence[str] | None:
        if level.upper() not in _LEVELS:
            raise RequestFailed(404, f"invalid log level '{level}'.")
        if is_cluster_wide:
            self._lead()
            await self._write([level_record(logger, level.upper())])
            return None
        names = [logger, *(each for each in logging.Logger.manager.loggerDict if each.startswith(f"{logger}."))]
        for name in names:
            logging.getLogger(None if name == "root" else name).setLevel(_LEVELS[level.upper()])
            self._modified_ms[name] = int(time.time() * 1000)
        return sorted(names)

    # Helpers

    def _find(self, name: str) -> ConnectorState:
        found = self._stores.configs.connectors.get(name)
        if found is None:
            raise RequestFailed(404, f"Connector {name} not found")
        return found

    def _plugin(self, config: Mapping[str, str]) -> Plugin:
        try:
            return self._worker.plugins.find(config.get("connector.class", ""))
        except InvalidConnectorConfig as error:
            raise RequestFailed(400, str(error)) from None

    def _kind(self, config: Mapping[str, str]) -> ConnectorKind | None:
        try:
            return self._worker.plugins.find(config.get("connector.class", "")).kind
        except InvalidConnectorConfig:
            return None

    def _lead(self) -> None:
        """Raise LeaderOnly unless this worker leads."""
        if not self._worker.is_leader:
            raise LeaderOnly(self._worker.assignment.leader_url or None)

    async def _check(self, config: Mapping[str, str]) -> None:
        worker = self._worker

        def run() -> None:
            check(worker.plugins, config, defaults=worker.defaults, resolve=worker.secrets.resolve)

        await asyncio.to_thread(run)

    async def _write(self, records: Sequence[StateRecord]) -> None:
        try:
            await self._stores.write_configs(records)
        except FencedOut:
            raise LeaderOnly(None) from None
        except ConnectFailed as error:
            raise RequestFailed(500, str(error)) from None


def _level_name(level: int) -> str:
    return min(_LEVELS, key=lambda name: abs(_LEVELS[name] - level))
