"""A worker: a member of the group, the tasks that it runs, and the answers to an administrator.

The loop owns all state. The config topic and the group's assignment say what is to run here; after every change
`_reconcile` starts and stops tasks until that is so. A worker that is expelled stops everything: others run its tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.failures import ClientFailed
from strandline.client.group_participant import Generation, GroupParticipant, GroupTimes
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RetriableFailure
from strandline.connect.herder.assignment import Assignment, MemberMetadata, share_out
from strandline.connect.herder.config_state import Config, ConnectorState, RestartRequest, TaskId
from strandline.connect.herder.interface import UnitStatus
from strandline.connect.herder.leader import LeaderDuties
from strandline.connect.herder.leaks import LeakWatch
from strandline.connect.herder.secrets import Secrets
from strandline.connect.herder.status_state import StoredStatus, topic_record
from strandline.connect.herder.stores import TIMEOUT_S, ConnectStores
from strandline.connect.herder.task_runner import TaskRunner
from strandline.connect.herder.worker_settings import WorkerSettings, with_defaults
from strandline.connect.paths import PathRules
from strandline.connect.plugins import Plugins
from strandline.connect.sink import Sink
from strandline.connect.source import Source
from strandline.connect.tasks.process_task import ProcessTask
from strandline.connect.tasks.sink_task import SinkTask
from strandline.connect.tasks.source_task import SourceTask
from strandline.connect.tasks.task import ConnectTask, TaskContext
from strandline.errors import Disconnected, TimedOut

PROTOCOL_TYPE: Final = "connect"
PROTOCOL: Final = "strandline-v0"
_LOOK_S: Final = 30.0
"""How often everything is looked at even if nothing has changed."""

log = logging.getLogger("strandline.connect")


class ConnectorCounts(NamedTuple):
    """How far the tasks of a connector on this worker are."""

    records: int
    lag: int | None
    """Offsets that a sink is behind; None for a source."""
    is_done: bool
    """Whether there is nothing to do for now."""


class ConnectWorker:
    """One worker. `allows_all` is for a worker that runs a file of its own user."""

    type: str = PROTOCOL_TYPE
    name: str = PROTOCOL

    def __init__(
        self,
        bootstrap: str,
        settings: WorkerSettings,
        url: str,
        *,
        allows_all: bool = False,
        on_full: Callable[[str], None] = log.error,
    ) -> None:
        """`on_full` is called when the worker has reached a limit of its memory or open files, and has to be ended."""
        self.bootstrap = bootstrap
        self.settings = settings
        self.url = url
        """Where other workers reach this one."""
        self.worker_id = url.partition("://")[2] or url
        self.plugins = Plugins(settings.plugin_modules)
        self.stores = ConnectStores(bootstrap, settings)
        self.paths = PathRules(None if allows_all else settings.allowed_paths)
        self.secrets = Secrets(settings.properties, allows_all=allows_all)
        self.defaults = settings.of_connectors()
        self.leader = LeaderDuties(
            bootstrap, settings.group_id, self.stores, self.plugins, self.resolve, self.worker_id, self.look
        )
        self.leaks = LeakWatch(settings, self._note_leak, on_full)
        self.cluster_id = ""
        self.assignment = Assignment("")
        self.generation: Generation | None = None
        self._runners: dict[TaskId, TaskRunner] = {}
        self._owned: frozenset[TaskId] = frozenset()
        """The tasks that this worker runs; the group's thread reads it."""
        self._lost_at: dict[TaskId, float] = {}
        """When tasks lost their worker, for the leader."""
        self._assigned_before: dict[TaskId, str] = {}
        self.joined = asyncio.Event()
        """Set when the worker has its first assignment."""
        self._changed = asyncio.Event()
        self._is_stopping = False
        self._loop = asyncio.get_running_loop()
        self._reconciling: asyncio.Task[None] | None = None
        times = GroupTimes(
            settings.session_timeout_ms, settings.rebalance_timeout_ms, settings.heartbeat_interval_ms / 1000
        )
        self._member = GroupParticipant(
            bootstrap, settings.group_id, self, client_id="strandline-connect", times=times, logger=log
        )

    # Life

    async def start(self) -> None:
        """Read the topics and join the group. Raise ConnectFailed if the cluster cannot be used."""
        self.cluster_id = await asyncio.to_thread(self._find_cluster)
        await self.stores.open(self._on_configs)
        self.leaks.check_limits()
        self._reconciling = asyncio.create_task(self._reconcile_forever())
        self.leaks.watch()
        self._member.start()

    async def stop(self) -> None:
        """Stop all tasks, then leave the group, so that others go on at once."""
        self._is_stopping = True
        self.leaks.stop()
        if self._reconciling is not None:
            self._reconciling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reconciling
        self.leader.stop()
        stopped = list(self._runners)
        await self._stop_tasks(stopped)
        for each in stopped:
            self._tell(each, "UNASSIGNED", None)
        await asyncio.to_thread(self._member.stop)
        await self.stores.close()

    @property
    def is_leader(self) -> bool:
        return self.generation is not None and self.generation.is_leader

    def runner(self, task_id: TaskId) -> TaskRunner | None:
        """Return what runs a task here."""
        return self._runners.get(task_id)

    def runners(self) -> Sequence[TaskRunner]:
        return list(self._runners.values())

    def resolve(self, config: Config) -> dict[str, str]:
        """Return a config with the worker's defaults, and with secrets in it."""
        return self.secrets.resolve(with_defaults(self.defaults, config))

    def counts(self, connector: str) -> ConnectorCounts:
        """Return what the tasks of a connector that run here have counted."""
        tasks = [runner.task for task_id, runner in self._runners.items() if task_id.connector == connector]
        running = [each for each in tasks if each is not None]
        lags = [each.lag() for each in running]
        return ConnectorCounts(
            sum(each.metrics.records for each in running),
            None if None in lags or not lags else sum(sum((each or {}).values()) for each in lags),
            bool(running) and all(each.is_done for each in running),
        )

    def look(self) -> None:
        """Have everything looked at soon."""
        self._changed.set()

    async def restart(self, task_id: TaskId) -> None:
        """Start a task again that this worker runs."""
        await self._stop_tasks([task_id])
        self.look()

    def _find_cluster(self) -> str:
        from strandline.codec.messages.metadata_request import MetadataRequest
        from strandline.codec.messages.metadata_response import MetadataResponse

        client = ClusterClient(ClientSettings.within(self.bootstrap, "strandline-connect", TIMEOUT_S))
        try:
            return client.ask_any(MetadataRequest(topics=[]), MetadataResponse).cluster_id or ""
        except (ClientFailed, Disconnected, TimedOut) as error:
            raise RetriableFailure(f"the cluster cannot be reached: {error}") from error
        finally:
            client.close()

    # The group; its thread calls these

    def metadata(self) -> bytes:
        return MemberMetadata(self.url, self.stores.config_end, tuple(sorted(self._owned))).encode()

    def assign(self, members: Sequence[tuple[str, bytes]]) -> Mapping[str, bytes]:
        return asyncio.run_coroutine_threadsafe(self._assign(members), self._loop).result()

    def on_assigned(self, generation: Generation, assignment: bytes) -> None:
        self._soon(self._take, generation, Assignment.decode(assignment))

    def on_lost(self, *, is_expelled: bool) -> None:
        if is_expelled:
            self._soon(self._on_expelled)

    def _soon(self, function: Callable[..., object], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    # The group, on the loop

    async def _assign(self, members: Sequence[tuple[str, bytes]]) -> dict[str, bytes]:
        told = {member: MemberMetadata.decode(metadata) for member, metadata in members}
        end = max(each.config_end for each in told.values())
        if end > self.stores.config_end:
            # A member has read further: its tasks may be of configs that are not known here yet.
            with contextlib.suppress(ConnectFailed):
                await self.stores.read_configs(end)
        owned = {member: each.owned for member, each in told.items()}
        wanted = set(self.stores.configs.task_ids())
        shares = share_out(wanted, owned, self._held_back(wanted, told))
        self._assigned_before = {task: member for member, tasks in shares.tasks.items() for task in tasks}
        return {
            member: Assignment(self.url, tasks, bool(shares.waiting)).encode() for member, tasks in shares.tasks.items()
        }

    def _held_back(self, wanted: set[TaskId], members: Mapping[str, MemberMetadata]) -> set[TaskId]:
        """Return the tasks of workers that are gone, and may come back within the delay."""
        delay_s = self.settings.rebalance_delay_ms / 1000
        if not delay_s:
            return set()
        now = time.monotonic()
        owned = {task for each in members.values() for task in each.owned}
        for task in wanted - owned:
            if self._assigned_before.get(task, "") not in members and task in self._assigned_before:
                self._lost_at.setdefault(task, now)
        self._lost_at = {task: at for task, at in self._lost_at.items() if task in wanted and task not in owned}
        held = {task for task, at in self._lost_at.items() if now - at < delay_s}
        if held:
            self._loop.call_later(delay_s, self._member.rejoin)
        return held

    def _take(self, generation: Generation, assignment: Assignment) -> None:
        if not self.is_leader or not generation.is_leader:
            self.stores.resign()
            self.leader.forget()
        self.generation = generation
        self.assignment = assignment
        self.joined.set()
        self.leader.generation = generation.number
        log.info(
            "generation %d: %d tasks here, the leader is at %s",
            generation.number,
            len(assignment.tasks),
            assignment.leader_url,
        )
        self.look()

    def _on_expelled(self) -> None:
        log.warning("the group has given this worker up; its tasks stop here")
        self.generation = None
        self.assignment = Assignment("")
        self.look()

    def _on_configs(self, orders: Sequence[RestartRequest]) -> None:
        for order in orders:
            self.leader.forget(order.connector)
            for task_id, runner in list(self._runners.items()):
                is_meant = task_id.connector == order.connector and order.include_tasks
                if is_meant and (runner.state == "FAILED" or not order.only_failed):
                    runner.number = -1
        self.look()

    # What runs here

    async def _reconcile_forever(self) -> None:
        wait_s = _LOOK_S
        while not self._is_stopping:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait_s)
            self._changed.clear()
            wait_s = _LOOK_S
            try:
                await self._reconcile()
                if self.is_leader:
                    self.leader.look()
                    self._rebalance_if_needed()
            except Exception:
                # The worker would go on with what it runs, and hear of nothing any more.
                log.exception("a look at connectors failed, and is tried again")
                wait_s = 1.0

    async def _reconcile(self) -> None:
        """Stop what is not to run here, and start what is."""
        wanted = {each for each in self.assignment.tasks if self._connector_of(each) is not None}
        out_of_date = [
            task_id
            for task_id, runner in self._runners.items()
            if task_id not in wanted or runner.number != self._number_of(task_id)
        ]
        moved = [each for each in out_of_date if each not in self.assignment.tasks and self._connector_of(each)]
        await self._stop_tasks(out_of_date)
        for task_id in out_of_date:
            self._tell(task_id, "UNASSIGNED", None)
        for task_id in sorted(wanted - set(self._runners)):
            connector = self._connector_of(task_id)
            if connector is not None and self._may_start(task_id, connector):
                self._start(task_id, connector)
        for task_id, runner in self._runners.items():
            found = self._connector_of(task_id)
            runner.set_paused(found is not None and found.target == "PAUSED")
        self._own()
        if moved and self.generation is not None:
            # Others wait for these.
            self._member.rejoin()

    def _connector_of(self, task_id: TaskId) -> ConnectorState | None:
        """Return the connector of a task that is to run; None if it has none of this number, or is stopped."""
        found = self.stores.configs.connectors.get(task_id.connector)
        if found is None or found.target == "STOPPED" or task_id.task >= len(found.tasks or ()):
            return None
        return found

    def _number_of(self, task_id: TaskId) -> int:
        found = self._connector_of(task_id)
        return -1 if found is None else found.tasks_number

    def _may_start(self, task_id: TaskId, connector: ConnectorState) -> bool:
        """Say whether a task may begin: a source's only when the tasks before are fenced."""
        try:
            return connector.is_fenced or self.plugins.find(connector.config.get("connector.class", "")).kind == "sink"
        except InvalidConnectorConfig:
            # The leader knows the class, this worker does not: what starts the task fails, and tells why.
            return True

    def _start(self, task_id: TaskId, connector: ConnectorState) -> None:
        config = (connector.tasks or ())[task_id.task]

        def report(state: str, trace: str | None) -> None:
            self._tell(task_id, state, trace)

        self._runners[task_id] = TaskRunner(
            task_id, config, connector.tasks_number, lambda: self._make(task_id, config), report
        )

    def _make(self, task_id: TaskId, config: Config) -> ConnectTask:
        self.leaks.began(task_id)
        plugin = self.plugins.find(config.get("connector.class", ""))
        properties = self.resolve(config)
        found = plugin.load()
        connector = found(found.Config(properties))
        connector.paths = self.paths
        context = TaskContext(
            task_id,
            self.bootstrap,
            self.settings.group_id,
            properties,
            plugin.place,
            self.settings.offset_topic,
            self.stores.offsets,
            self.settings.session_timeout_ms,
            tuple(self.settings.plugin_modules),
            lambda topic: self._soon(self.stores.write_status, topic_record(topic, task_id)),
            lambda note: self._soon(self._note, task_id, note),
        )
        if isinstance(connector, Source):
            return SourceTask(context, connector)
        assert isinstance(connector, Sink)
        module = connector.process_module
        return SinkTask(context, connector) if module is None else ProcessTask(context, connector, module)

    async def _stop_tasks(self, task_ids: Sequence[TaskId]) -> None:
        runners = [self._runners[each] for each in task_ids if each in self._runners]
        await asyncio.gather(*(each.stop(self.settings.graceful_ms / 1000) for each in runners))
        for each in runners:
            if self._runners.get(each.id) is each:
                del self._runners[each.id]
                self.leaks.stopped(each.id, is_gone=self._connector_of(each.id) is None)
        self._own()

    def _own(self) -> None:
        self._owned = frozenset(self._runners) | frozenset(
            each for each in self.assignment.tasks if self._connector_of(each) is not None
        )

    def _rebalance_if_needed(self) -> None:
        wanted = set(self.stores.configs.task_ids())
        if wanted != set(self._assigned_before) and not self.assignment.has_pending and not self._lost_at:
            self._member.rejoin()

    def _note_leak(self, task_id: TaskId, sentence: str) -> None:
        # Behind the state that the task's begin tells.
        self._loop.call_soon(self._note, task_id, sentence)

    def _note(self, task_id: TaskId, note: str | None) -> None:
        runner = self._runners.get(task_id)
        if runner is not None:
            runner.note(note)

    def _tell(self, task_id: TaskId, state: str, trace: str | None) -> None:
        generation = 0 if self.generation is None else self.generation.number
        stored = self.stores.statuses.tasks(task_id.connector).get(task_id.task)
        if (
            stored is not None
            and state in ("UNASSIGNED", "FAILED", "RESTARTING")
            and stored.generation > generation
            and stored.status.worker_id != self.worker_id
        ):
            # Another worker has it by now.
            return
        found = self.stores.configs.connectors.get(task_id.connector)
        if found is None:
            return
        version = None
        with contextlib.suppress(InvalidConnectorConfig):
            version = self.plugins.find(found.config.get("connector.class", "")).version
        self.stores.set_status(task_id, StoredStatus(UnitStatus(state, self.worker_id, trace, version), generation))
