"""OutboxSource: the relay as a connector, so that a worker runs it, watches it and moves it.

The worker stores the ids of a batch beside its records, in one transaction. The rows are deleted when that is
committed. If the worker is killed before, the next one finds the ids as its position and deletes the rows first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal, TypeVar

from strandline.connect.config import Config, Password, option
from strandline.connect.failures import InvalidConnectorConfig, RetriableFailure
from strandline.connect.records import Batch, Header, SourceOffsets, SourcePosition, SourceRecord
from strandline.connect.source import Source
from strandline.outbox.relay import BATCH_ROWS, BATCH_ROWS_MAX, database_of
from strandline.outbox.rows import OutboxDatabase, OutgoingEvent, packed, sort_rows, unpacked
from strandline.outbox.tables import DEFAULT_TABLE, QualifiedTable

T = TypeVar("T")
BYTES_CONVERTER: Final = "ByteArrayConverter"
_PLAIN_CONVERTERS: Final = {
    "key.converter": ("StringConverter", "String"),
    "value.converter": (BYTES_CONVERTER, "ByteArray"),
}


class OutboxSourceConfig(Config):
    """Settings of OutboxSource."""

    connection_url: Password = option(
        "URL of the database, as postgresql://user:password@host/database or sqlite:///file.", importance="HIGH"
    )
    table: str = option("The outbox table, also as schema.table.", default=DEFAULT_TABLE)
    after_send: Literal["delete", "mark"] = option("What becomes of rows that were sent.", default="delete")
    invalid_rows: Literal["stop", "park"] = option(
        "A row that cannot be sent fails the task, or is kept in the table with the reason.", default="stop"
    )
    batch_max_rows: int = option("Rows of one transaction.", default=BATCH_ROWS, low=1, high=BATCH_ROWS_MAX)
    poll_interval_ms: int = option(
        "How long an idle task waits before it looks again, if nothing wakes it.", default=50, low=1
    )

    def check_all(self) -> Sequence[tuple[str, str]]:
        wrong = []
        for name, known in _PLAIN_CONVERTERS.items():
            if self.properties.get(name, "").rpartition(".")[2] not in known:
                wrong.append(
                    (name, f"OutboxSource needs {name}={known[0]}, because rows hold keys and values as they are sent")
                )
        try:
            QualifiedTable.of(self.table)
        except ValueError as error:
            wrong.append(("table", str(error)))
        return wrong


class OutboxSource(Source):
    """Moves rows of an outbox table to their topics, each once, in the order of each key."""

    Config = OutboxSourceConfig
    config: OutboxSourceConfig

    def __init__(self, config: OutboxSourceConfig) -> None:
        super().__init__(config)
        self._partition = {"outbox": config.table}
        self._thread = ThreadPoolExecutor(1, "outbox")
        self._database: OutboxDatabase | None = None
        self._is_committed = asyncio.Event()
        self._sent: list[bytes] = []

    async def open(self) -> None:
        database = database_of(self.config.connection_url, self.config.table)
        self._database = database
        await self._in_thread(database.open)
        if not await self._in_thread(database.try_lock):
            raise RetriableFailure(f"another relay moves the rows of {self.config.table}, and this one waits for it")

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[Batch]:
        config, database = self.config, self._opened
        stored = offsets.get(self._partition)
        if stored is not None:
            await self._in_thread(database.settle, unpacked(stored.get("sent")), config.after_send)
        while not self.stopping.is_set():
            rows = await self._in_thread(database.rows, config.batch_max_rows)
            if not rows:
                await self._in_thread(database.wait, config.poll_interval_ms / 1000)
                continue
            found = sort_rows(rows, config.invalid_rows)
            for row, why in found.invalid:
                await self._in_thread(database.park, row, str(why))
            if found.ids:
                self._sent = found.ids
                self._is_committed.clear()
                yield Batch([_record(each) for each in found.events], self._partition, {"sent": packed(found.ids)})
                # The rows are in the table until then, and would be read again.
                await self._is_committed.wait()

    async def committed(self, positions: Sequence[SourcePosition]) -> None:
        if self._sent:
            sent, self._sent = self._sent, []
            await self._in_thread(self._opened.settle, sent, self.config.after_send)
        self._is_committed.set()

    async def close(self) -> None:
        if self._database is not None:
            await self._in_thread(self._database.close)
        self._thread.shutdown(wait=False)

    @classmethod
    def check_offsets(cls, config: Any, offsets: Sequence[SourcePosition]) -> None:
        """Refuse all but the removal: the rows that are left in the table are the position."""
        if any(offset is not None for _, offset in offsets):
            raise InvalidConnectorConfig("an outbox has no position to set: what is in the table is sent")

    @property
    def _opened(self) -> OutboxDatabase:
        assert self._database is not None, "it is open"
        return self._database

    async def _in_thread(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)


def _record(event: OutgoingEvent) -> SourceRecord:
    return SourceRecord(
        topic=event.topic,
        key=None if event.key is None else event.key.decode(),
        value=event.value,
        timestamp_ms=event.timestamp_ms,
        headers=[Header(name, value.decode()) for name, value in event.headers],
    )
