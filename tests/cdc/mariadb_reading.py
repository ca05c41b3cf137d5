"""Drives MariadbCdcSource as a worker does: open parts of a transaction are stored with its last one, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.cdc.mariadb_server import MariadbDatabase
from tests.connect.driving import WITHIN_S, Store, batches_of, opened

from strandline.cdc.mariadb.settings import MariadbCdcConfig
from strandline.cdc.mariadb.source import MariadbCdcSource
from strandline.connect.records import SourceRecord


class MariadbReader:
    """What a connector of one database has written. Each `read` is a new start of it."""

    def __init__(self, database: MariadbDatabase, **settings: str) -> None:
        self.database = database
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.store = Store()
        self.open_parts = 0

    def source(self) -> MariadbCdcSource:
        return MariadbCdcSource(MariadbCdcConfig({**self.database.properties, **self.settings}))

    def read(self, until: Callable[[MariadbReader], bool], *, kill_at: int | None = None) -> None:
        """Run the connector until enough was stored, or kill it before the batch with this number is stored."""
        asyncio.run(self._read(until, kill_at))

    async def _read(self, until: Callable[[MariadbReader], bool], kill_at: int | None) -> None:
        part: list[SourceRecord] = []
        count = 0
        async with asyncio.timeout(3 * WITHIN_S), opened(self.source()) as source:
            if until(self):
                return
            batches = batches_of(source, self.store)
            try:
                async for batch in batches:
                    if count == kill_at:
                        return
                    count += 1
                    part += batch.records
                    if batch.is_open:
                        self.open_parts += 1
                        continue
                    batch.records, part = part, []
                    self.store.commit(batch)
                    if until(self):
                        return
            finally:
                source.stopping.set()
                await batches.aclose()

    def of(self, table: str) -> list[SourceRecord]:
        """Return the records of a table."""
        return [each for each in self.store.records if each.topic == f"shop.{self.database.name}.{table}"]

    def values(self, table: str) -> list[Any]:
        """Return the events of a table, without tombstones."""
        return [each.value for each in self.of(table) if each.value is not None]

    @property
    def schema_changes(self) -> list[Any]:
        return [each.value for each in self.store.records if each.topic == "shop"]


def has(table: str, count: int) -> Callable[[MariadbReader], bool]:
    """Return whether so many records of a table were stored."""
    return lambda reader: len(reader.of(table)) >= count
