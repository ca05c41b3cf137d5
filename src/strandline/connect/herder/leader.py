"""What only the leader does: it makes task configs, fences old tasks, and states how connectors are.

It goes by the config topic alone, so a new leader goes on where the one before died.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from strandline.connect.failures import ConnectFailed, FencedOut, InvalidConnectorConfig, RetriableFailure
from strandline.connect.herder.config_state import (
    Config,
    ConnectorState,
    TaskId,
    fencing_record,
    task_records,
)
from strandline.connect.herder.fencing import fence
from strandline.connect.herder.interface import UnitStatus
from strandline.connect.herder.status_state import StoredStatus
from strandline.connect.herder.stores import TIMEOUT_S, ConnectStores
from strandline.connect.plugins import Plugin, Plugins
from strandline.connect.tasks.calls import CallThread
from strandline.connect.tasks.settings import TASK_CLASS
from strandline.connect.tasks.source_task import transactional_id

TASKS_S_MAX: Final = 60.0
RETRY_S: Final = 5.0

log = logging.getLogger("strandline.connect")


class LeaderDuties:
    """The duties of the leader. `look` does what is to be done now, and is called after every change."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        stores: ConnectStores,
        plugins: Plugins,
        resolve: Callable[[Config], dict[str, str]],
        worker_id: str,
        look_again: Callable[[], None],
    ) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._stores = stores
        self._plugins = plugins
        self._resolve = resolve
        self._worker_id = worker_id
        self._look_again = look_again
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._missed: set[str] = set()
        """Connectors that have changed while they were looked at."""
        self._failed: dict[str, tuple[int, float]] = {}
        """Connectors whose tasks could not be made: the number of the config, and when to try again."""
        self._known: set[str] = set()
        self.generation = 0

    def forget(self, name: str | None = None) -> None:
        """Try connectors again that failed, for example because someone restarts them."""
        if name is None:
            self.stop()
            self._failed.clear()
            self._known.clear()
        else:
            self._failed.pop(name, None)

    def look(self) -> None:
        """Begin to bring what is on the topics up to date, each connector by itself: one may hang for a while."""
        for name, connector in self._stores.configs.connectors.items():
            if name in self._looking:
                self._missed.add(name)
            else:
                self._looking[name] = asyncio.create_task(self._look(name, connector))
        for name in self._known - set(self._stores.configs.connectors):
            self._bury(name)
        self._known = set(self._stores.configs.connectors)

    def stop(self) -> None:
        """Leave what is under way; the next leader goes on."""
        for task in self._looking.values():
            task.cancel()
        self._looking.clear()
        self._missed.clear()

    async def _look(self, name: str, connector: ConnectorState) -> None:
        try:
            await self._look_at(name, connector)
        except FencedOut as error:
            log.info("connector %s: this worker does not lead any more: %s", name, error)
        except RetriableFailure as error:
            log.warning("connector %s: %s", name, error)
            self._tell(name, "FAILED", f"{error}; tried again every {RETRY_S:g} s")
            self._failed[name] = connector.config_number, time.monotonic() + RETRY_S
            asyncio.get_running_loop().call_later(RETRY_S, self._look_again)
        except ConnectFailed as error:
            log.error("connector %s failed: %s", name, error)
            self._tell(name, "FAILED", str(error))
            self._failed[name] = connector.config_number, float("inf")
        finally:
            if self._looking.get(name) is asyncio.current_task():
                del self._looking[name]
                if name in self._missed:
                    self._missed.discard(name)
                    self._look_again()

    async def _look_at(self, name: str, connector: ConnectorState) -> None:
        number, retry_at = self._failed.get(name, (-1, 0.0))
        if number == connector.config_number and time.monotonic() < retry_at:
            return
        if connector.target == "STOPPED":
            if connector.tasks != ():
                await self._stores.write_configs(task_records(name, []))
            self._tell(name, "STOPPED")
            return
        plugin = self._plugins.find(connector.config.get("connector.class", ""))
        is_old = connector.tasks_config_number != connector.config_number
        if not connector.tasks or is_old:
            await self._write_tasks(name, connector, plugin)
        if plugin.kind == "source" and not connector.is_fenced:
            await self._fence(name, connector)
        self._tell(name, "PAUSED" if connector.target == "PAUSED" else "RUNNING")

    async def _write_tasks(self, name: str, connector: ConnectorState, plugin: Plugin) -> None:
        number = connector.config_number
        tasks = await self._make_tasks(connector.config, plugin)
        if connector.config_number != number:
            # A newer config came meanwhile; the next look is at it.
            return
        if tasks == list(connector.tasks or ()):
            connector.tasks_config_number = number
            return
        await self._stores.write_configs(task_records(name, tasks))

    async def _make_tasks(self, config: Config, plugin: Plugin) -> list[Config]:
        def make() -> list[Config]:
            resolved = self._resolve(config)
            found = plugin.load()
            tasks_max = int(resolved.get("tasks.max", "1"))
            made = found.tasks(found.Config(resolved), tasks_max)
            if len(made) > tasks_max and resolved.get("tasks.max.enforce", "true") != "false":
                raise InvalidConnectorConfig(
                    f"{plugin.name} made {len(made)} tasks, which is more than tasks.max={tasks_max}"
                )
            # Secrets stay as they were written: the tasks' configs are on a topic.
            return [dict(config) | _texts(each) | {TASK_CLASS: plugin.place} for each in made]

        thread = CallThread(f"tasks-of-{plugin.name}")
        try:
            return await asyncio.wait_for(thread.call(make), TASKS_S_MAX)
        except TimeoutError:
            raise RetriableFailure(f"{plugin.name} did not say its tasks within {TASKS_S_MAX:g} s") from None
        except ConnectFailed:
            raise
        except Exception as error:  # a connector's own code
            raise ConnectFailed(f"{plugin.name} cannot say its tasks: {type(error).__name__}: {error}") from error
        finally:
            thread.close()

    async def _fence(self, name: str, connector: ConnectorState) -> None:
        """Fence the producers of all tasks before, then let the new ones begin."""
        await self.fence(name, connector.fenced_tasks)
        await self._stores.write_configs([fencing_record(name, len(connector.tasks or ()))])

    async def fence(self, name: str, tasks: int) -> None:
        ids = [transactional_id(self._group, name, each) for each in range(tasks)]
        await asyncio.to_thread(fence, self._bootstrap, ids, TIMEOUT_S)

    def _tell(self, name: str, state: str, trace: str | None = None) -> None:
        found = self._stores.configs.connectors.get(name)
        if found is None:
            # It was deleted meanwhile.
            return
        try:
            version = self._plugins.find(found.config.get("connector.class", "")).version
        except InvalidConnectorConfig:
            version = None
        status = UnitStatus(state, self._worker_id, trace, version)
        known = self._stores.statuses.connector(name)
        if known is None or known.status != status:
            self._stores.set_status(name, StoredStatus(status, self.generation))

    def _bury(self, name: str) -> None:
        """Delete the states of a connector that was deleted."""
        self._stores.set_status(name, None)
        for number in self._stores.statuses.tasks(name):
            self._stores.set_status(TaskId(name, number), None)


def _texts(config: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in config.items()}
