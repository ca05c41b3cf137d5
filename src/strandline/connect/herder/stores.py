"""A worker's hold of Connect's three topics. Calls that wait for the cluster run in threads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

from strandline.connect.failures import ConnectFailed
from strandline.connect.herder.config_state import ConfigState, RestartRequest, StateRecord, TaskId
from strandline.connect.herder.offset_store import OffsetState
from strandline.connect.herder.state_topics import StateReader, StateWriter, prepare_topic
from strandline.connect.herder.status_state import StatusState, StoredStatus, status_record
from strandline.connect.herder.worker_settings import WorkerSettings

TIMEOUT_S: Final = 30.0
_PAUSE_S: Final = 1.0
_LAST_WRITE_S: Final = 3.0
"""How long a worker that stops tries to store its last states."""

log = logging.getLogger("strandline.connect")


class ConnectStores:
    """What is on the topics, and the ways to write there."""

    def __init__(self, bootstrap: str, settings: WorkerSettings) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self.configs = ConfigState()
        self.statuses = StatusState()
        self._offset_state = OffsetState()
        self._config_reader: StateReader | None = None
        self._status_reader: StateReader | None = None
        self._offset_reader: StateReader | None = None
        self._config_writer: StateWriter | None = None
        self._config_lock = asyncio.Lock()
        self._status_writer: StateWriter | None = None
        self._status_queue: asyncio.Queue[StateRecord] = asyncio.Queue()
        self._status_writing: asyncio.Task[None] | None = None
        self._is_closed = False

    async def open(self, on_change: Callable[[Sequence[RestartRequest]], None]) -> None:
        """Make the topics, and read configs and states to their ends. `on_change` hears of later configs."""
        loop = asyncio.get_running_loop()

        def apply(records: Sequence[StateRecord]) -> None:
            orders = [each for each in map(self.configs.apply, records) if each is not None]
            if self._is_read:
                on_change(orders)

        def on_configs(records: Sequence[StateRecord]) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(apply, records)

        self._is_read = False
        await asyncio.to_thread(self._open, on_configs)
        assert self._config_reader is not None
        assert self._status_reader is not None
        await asyncio.to_thread(self._config_reader.read_to_end, TIMEOUT_S)
        await asyncio.to_thread(self._status_reader.read_to_end, TIMEOUT_S)
        self._is_read = True
        self._status_writing = asyncio.create_task(self._write_statuses())

    def _open(self, on_configs: Callable[[Sequence[StateRecord]], None]) -> None:
        settings = self._settings
        partitions = prepare_topic(self._bootstrap, settings.config_topic, 1, TIMEOUT_S, is_single=True)
        self._config_reader = StateReader(self._bootstrap, settings.config_topic, partitions, on_configs)
        partitions = prepare_topic(self._bootstrap, settings.status_topic, settings.status_partitions, TIMEOUT_S)
        self._status_reader = StateReader(self._bootstrap, settings.status_topic, partitions, self.statuses.apply)
        partitions = prepare_topic(self._bootstrap, settings.offset_topic, settings.offset_partitions, TIMEOUT_S)
        self._offset_partitions = partitions
        self._config_reader.start()
        self._status_reader.start()

    async def close(self) -> None:
        """Write the states that wait, and close all readers."""
        self._is_closed = True
        if self._status_writing is not None:
            if self._status_writer is not None:
                self._status_writer.hurry(_LAST_WRITE_S)
            self._status_queue.put_nowait(StateRecord(b"", None))
            await self._status_writing
        for reader in (self._config_reader, self._status_reader, self._offset_reader):
            if reader is not None:
                await asyncio.to_thread(reader.stop)

    # Configs

    @property
    def config_end(self) -> int:
        """How far the config topic was read."""
        return 0 if self._config_reader is None else self._config_reader.position

    async def read_configs(self, end: int) -> None:
        """Wait until the config topic was read up to an offset."""
        assert self._config_reader is not None
        await asyncio.to_thread(self._config_reader.wait_for, {0: end}, TIMEOUT_S)

    async def write_configs(self, records: Sequence[StateRecord]) -> None:
        """Write to the config topic as its one writer, and wait until it was read back.

        Raise FencedOut if another worker has become the leader meanwhile.
        """
        async with self._config_lock:
            try:
                if self._config_writer is None:
                    group = self._settings.group_id
                    self._config_writer = await asyncio.to_thread(
                        StateWriter, self._bootstrap, self._settings.config_topic, TIMEOUT_S, f"{group}-{group}"
                    )
                ends = await asyncio.to_thread(self._config_writer.write, records, 0)
            except ConnectFailed:
                self.resign()
                raise
        await self.read_configs(ends[0])

    def resign(self) -> None:
        """Drop the writer of configs: the next write takes its transactional id again."""
        self._config_writer = None

    # States

    def set_status(self, name: str | TaskId, stored: StoredStatus | None) -> None:
        """Have a state written soon; it is seen here at once."""
        if stored is not None:
            self.statuses.put(name, stored)
        self.write_status(status_record(name, stored))

    def write_status(self, record: StateRecord) -> None:
        self._status_queue.put_nowait(record)

    async def _write_statuses(self) -> None:
        waiting: dict[bytes, StateRecord] = {}
        while waiting or not (self._is_closed and self._status_queue.empty()):
            if not waiting:
                record = await self._status_queue.get()
                waiting[record.key] = record
            while not self._status_queue.empty():
                # Only the last state of each counts.
                record = self._status_queue.get_nowait()
                waiting[record.key] = record
            waiting.pop(b"", None)
            try:
                if self._status_writer is None:
                    self._status_writer = await asyncio.to_thread(
                        StateWriter, self._bootstrap, self._settings.status_topic, TIMEOUT_S
                    )
                    if self._is_closed:
                        self._status_writer.hurry(_LAST_WRITE_S)
                await asyncio.to_thread(self._status_writer.write, list(waiting.values()))
                waiting.clear()
            except ConnectFailed as error:
                log.warning("states are not stored, and are written again: %s", error)
                if self._is_closed:
                    return
                await asyncio.sleep(_PAUSE_S)

    # Positions of sources

    def offsets(self) -> tuple[StateReader, OffsetState]:
        """Return the reader of the offsets topic, and what it has read. It starts with the first source."""
        if self._offset_reader is None:
            self._offset_reader = StateReader(
                self._bootstrap, self._settings.offset_topic, self._offset_partitions, self._offset_state.apply
            )
            self._offset_reader.start()
        return self._offset_reader, self._offset_state

    async def write_offsets(self, connector: str, records: Sequence[StateRecord]) -> None:
        """Set positions of a source whose tasks are stopped and fenced."""

        def write() -> None:
            StateWriter(
                self._bootstrap,
                self._settings.offset_topic,
                TIMEOUT_S,
                f"{self._settings.group_id}-{connector}-offsets",
            ).write(records)

        await asyncio.to_thread(write)
        reader, _ = self.offsets()
        await asyncio.to_thread(reader.read_to_end, TIMEOUT_S)
