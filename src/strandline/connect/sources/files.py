"""Reads files: lines of text as Kafka's FileStreamSource does, and JSON, CSV and Parquet.

docs/connectors/files.md has the settings, and says what happens to files that are rotated.
"""

from __future__ import annotations

import asyncio
import glob
import os
import stat
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from strandline.connect.config import option
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig
from strandline.connect.records import AnyBatch, SourceOffsets, SourcePosition
from strandline.connect.source import Source
from strandline.connect.sources.file_formats.followed_files import FILENAME, FollowedFiles, family
from strandline.connect.sources.file_formats.format_config import POSITION, FormatConfig
from strandline.connect.sources.file_formats.threads import in_thread

SHARE: Final = "task.share"
"""The setting of a task that says which files it reads: `<task>/<tasks>`."""


class FileSource(Source):
    """Reads the lines or rows of files, and follows them as `tail -F` does."""

    class Config(FormatConfig):
        """Settings of the file source."""

        file: str = option(
            "A file, a directory, or a pattern as `logs/*.log` or `logs/**/*.log`.",
            importance="HIGH",
            check=lambda value: None if value else "String must be non-empty",
        )
        follow: bool = option("Whether to wait for more at the end of the files; false ends there.", default=True)
        poll_interval_ms: int = option("How often to look for new files and lines.", default=500, low=1)

    config: Config

    @classmethod
    def tasks(cls, config: Any, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Return one task for a file, and as many as there may be for a directory or a pattern."""
        count = tasks_max if _is_many(config.file) else 1
        return [{SHARE: f"{index}/{count}"} for index in range(count)]

    def open(self) -> None:
        """Check that the path is allowed."""
        self.paths.check(_fixed_part(self.config.file))

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[AnyBatch]:
        """Yield what the files hold, one block of each in turn."""
        interval_s = self.config.poll_interval_ms / 1000
        files = FollowedFiles(
            self.config,
            self.paths,
            self._listing,
            offsets.all(),
            is_followed=self.config.follow,
            grace_s=interval_s,
            forgets_missing=_is_many(self.config.file),
        )
        try:
            is_idle, scanned_at = True, 0.0
            while True:
                if is_idle or time.monotonic() - scanned_at >= interval_s:
                    scanned_at = time.monotonic()
                    found = await in_thread(files.scan)
                    if not found and not self.config.follow:
                        return
                is_idle = True
                for each in found:
                    if not each.is_open:
                        continue
                    for batch in await in_thread(files.read, each):
                        is_idle = False
                        yield batch
                if is_idle and self.config.follow:
                    await asyncio.sleep(interval_s)
        finally:
            files.close()

    def _listing(self) -> dict[str, os.stat_result]:
        """Return the files of this task that there are now."""
        listed = {}
        for name in self._names():
            try:
                found = os.stat(name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise ConnectFailed(f"{name} cannot be read: {error.strerror}") from None
            if stat.S_ISREG(found.st_mode):
                listed[name] = found
            elif name == self.config.file:
                raise ConnectFailed(f"{name} is not a regular file")
        if not listed and not self.config.follow and not _is_many(self.config.file):
            raise ConnectFailed(f"the file {self.config.file} does not exist")
        return listed

    def _names(self) -> list[str]:
        if not _is_many(self.config.file):
            return [self.config.file]
        task, _, tasks = self.config.properties.get(SHARE, "0/1").partition("/")
        return [
            each
            for each in _matching(self.config.file)
            if int(tasks) == 1 or crc32(family(each).encode(errors="surrogateescape")) % int(tasks) == int(task)
        ]

    @classmethod
    def check_offsets(cls, config: Any, offsets: Sequence[SourcePosition]) -> None:
        """Take what Kafka's file source takes: `{"filename"}` with `{"position"}`, or null."""
        for partition, offset in offsets:
            if offset is None:
                continue
            if set(partition) != {FILENAME}:
                raise InvalidConnectorConfig(f"Partition objects should contain the key '{FILENAME}', and no other")
            if POSITION not in offset:
                raise InvalidConnectorConfig(f"Offset objects should either be null or contain the key '{POSITION}'")
            position = offset[POSITION]
            if isinstance(position, bool) or not isinstance(position, int):
                raise InvalidConnectorConfig(
                    f"The value for the '{POSITION}' key in the offset is expected to be a Long value"
                )
            if position < 0:
                raise InvalidConnectorConfig(
                    f"The value for the '{POSITION}' key in the offset should be a non-negative value"
                )


def _is_pattern(file: str) -> bool:
    return glob.has_magic(file) and not os.path.exists(file)


def _is_many(file: str) -> bool:
    return _is_pattern(file) or os.path.isdir(file)


def _matching(file: str) -> list[str]:
    """Return the files of a directory, or those that match, in the order of their names. Hidden ones do not count."""
    pattern = file if _is_pattern(file) else os.path.join(glob.escape(file), "*")
    return sorted(glob.iglob(pattern, recursive=True))


def _fixed_part(file: str) -> Path:
    """Return the path up to the first part of it that is a pattern."""
    path = Path(file)
    if not _is_pattern(file):
        return path
    fixed = Path(path.anchor)
    for each in path.parts[1 if path.anchor else 0 :]:
        if glob.has_magic(each):
            break
        fixed /= each
    return fixed
