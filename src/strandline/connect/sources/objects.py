"""Reads objects of S3, Google Cloud Storage, Azure or a directory: each once, in the order of their names.

Each object is a partition of the source, `{"url", "object"}`, and its offset is `{"position", "version"}`; `done` is
set behind its last record. So an object is found that comes late, with a name before those that were read. The offset
of an object is removed when the object is. So there are as many as there are objects, and `max.age.ms` bounds these.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final
from zlib import crc32

from obstore.store import ObjectStore

from strandline.connect.config import Long, option
from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.object_store import StoreConfig, open_store
from strandline.connect.records import AnyBatch, Batch, SourceOffsets, SourcePosition
from strandline.connect.source import Source
from strandline.connect.sources.file_formats.format_config import POSITION, FileChunk, FormatConfig, batch_of
from strandline.connect.sources.file_formats.object_bytes import (
    ObjectBytes,
    ObjectReplaced,
    SourceObject,
    listed,
)
from strandline.connect.sources.file_formats.readers import reader_of
from strandline.connect.sources.file_formats.threads import in_thread

log = logging.getLogger("strandline.connect.objects")

SHARE: Final = "task.share"
"""The setting of a task that says which objects it reads: `<task>/<tasks>`."""
VERSION: Final = "version"
DONE: Final = "done"
_FORGOTTEN_MAX: Final = 1000

Offset = Mapping[str, Any]


class ObjectSource(Source):
    """Reads the lines or rows of objects."""

    class Config(FormatConfig, StoreConfig):
        """Settings of the object source."""

        object_pattern: str = option("Names of objects to read, as `*.json`; `*` also stands for `/`.", default="*")
        follow: bool = option("Whether to wait for new objects; false ends behind the last one.", default=True)
        poll_interval_ms: int = option("How often to list the objects.", default=30_000, low=1)
        max_age_ms: Long | None = option(
            "Objects that were changed longer ago are not read, and their offsets are removed.", default=None, low=1
        )

    config: Config

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._store: ObjectStore | None = None
        self._offsets: dict[str, Offset] = {}

    @classmethod
    def tasks(cls, config: Any, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Return as many tasks as there may be; they share the objects by a hash of their names."""
        return [{SHARE: f"{index}/{tasks_max}"} for index in range(tasks_max)]

    def open(self) -> None:
        """Open the store, and check that a directory is allowed."""
        self._store = open_store(self.config, self.paths)

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[AnyBatch]:
        """Yield what the objects hold, one object after the other."""
        self._offsets = {
            each["object"]: offset
            for each, offset in offsets.all()
            if each.get("url") == self.config.store_url and self._is_own(str(each.get("object")))
        }
        while True:
            found = await in_thread(self._list)
            names = {each.name for each in found}
            gone = [name for name in self._offsets if name not in names]
            for first in range(0, len(gone), _FORGOTTEN_MAX):
                some = gone[first : first + _FORGOTTEN_MAX]
                yield Batch((), offsets=[(self._partition(name), None) for name in some])
                for name in some:
                    del self._offsets[name]
            for each in sorted(each for each in found if not self._is_done(each)):
                async for batch in self._read_object(each):
                    yield batch
            if not self.config.follow:
                return
            await asyncio.sleep(self.config.poll_interval_ms / 1000)

    async def _read_object(self, found: SourceObject) -> AsyncIterator[AnyBatch]:
        """Yield the batches of an object; the last one says that it is done."""
        assert self._store is not None
        stored = self._offsets.get(found.name, {})
        offset: Offset = stored if stored.get(VERSION, found.version) == found.version and stored else {POSITION: 0}
        reader = reader_of(ObjectBytes(self._store, found), self.config)
        before: FileChunk | None = None
        try:
            while True:
                chunks = await in_thread(reader.read, offset, is_final=True)
                for each in chunks:
                    if before is not None:
                        yield self._batch(found, before, {VERSION: found.version})
                    before = each
                    offset = each.offset
                if not chunks:
                    break
        except ObjectReplaced as error:
            log.warning("%s; it is listed again", error)
            return
        yield self._batch(found, before or FileChunk((), offset), {VERSION: found.version, DONE: True})

    def _batch(self, found: SourceObject, chunk: FileChunk, more: Offset) -> AnyBatch:
        offset = {**chunk.offset, **more}
        self._offsets[found.name] = offset
        return batch_of(chunk, self.config, self._partition(found.name), offset)

    def _partition(self, name: str) -> dict[str, str]:
        return {"url": self.config.store_url, "object": name}

    def _is_done(self, found: SourceObject) -> bool:
        offset = self._offsets.get(found.name)
        return offset is not None and bool(offset.get(DONE)) and offset.get(VERSION, found.version) == found.version

    def _is_own(self, name: str) -> bool:
        task, _, tasks = self.config.properties.get(SHARE, "0/1").partition("/")
        return crc32(name.encode()) % int(tasks) == int(task)

    def _list(self) -> list[SourceObject]:
        assert self._store is not None
        oldest_ms = time.time() * 1000 - self.config.max_age_ms if self.config.max_age_ms is not None else 0
        return [
            each
            for each in listed(self._store, self.config.store_url)
            if each.modified_ms >= oldest_ms
            and fnmatchcase(each.name, self.config.object_pattern)
            and self._is_own(each.name)
        ]

    @classmethod
    def check_offsets(cls, config: Any, offsets: Sequence[SourcePosition]) -> None:
        """Take `{"url", "object"}` with a position that is not negative, or null."""
        for partition, offset in offsets:
            if set(partition) != {"url", "object"}:
                raise InvalidConnectorConfig('the partition of an object is {"url": <store.url>, "object": <name>}')
            if offset is not None and partition["url"] != config.store_url:
                raise InvalidConnectorConfig(
                    f"the partition {dict(partition)} is not read by this connector, which has another store.url"
                )
            position = 0 if offset is None else offset.get(POSITION)
            if isinstance(position, bool) or not isinstance(position, int) or position < 0:
                raise InvalidConnectorConfig(
                    f"the offset of {partition['object']} needs a {POSITION}, a number that is not negative"
                )
