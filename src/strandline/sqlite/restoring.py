"""Rebuilds a database from its topic: the newest snapshot before a moment, and the transactions behind it.

Pages are written to `OUT.restoring` as they come, and the file gets its name when it is whole and on disk. The sum of
all pages is compared with that of the shipper behind the snapshot and behind each transaction.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from strandline.sqlite.failures import MomentGone, ShippingFailed
from strandline.sqlite.page_sums import PageSums
from strandline.sqlite.records import SNAPSHOT, DatabaseState, decode_pages
from strandline.sqlite.snapshots import last_state, snapshot_of, snapshots, start_of
from strandline.sqlite.topic import ShippedRecord, ShippedTopic

SUFFIX: Final = ".restoring"
_BESIDE: Final = ("-wal", "-shm", "-journal")
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class RestoredDatabase:
    """What was restored."""

    state: DatabaseState
    at_ms: int
    offset: int
    """The last record that was applied."""
    transactions: int
    """Transactions behind the snapshot."""


@dataclass(frozen=True)
class RestorePlan:
    """Records to apply: from `start`, the snapshot, to `last`."""

    start: int
    last: ShippedRecord


def plan(topic: ShippedTopic, *, to_ms: int | None = None, to_offset: int | None = None) -> RestorePlan:
    """Choose the snapshot for a moment. Raise MomentGone if the topic has none."""
    begin, end = topic.bounds()
    if to_ms is not None:
        after = topic.offset_after(to_ms)
        end = end if after is None else min(end, after)
    if to_offset is not None:
        end = min(end, to_offset + 1)
    last = last_state(topic, end, begin)
    start = None if last is None else snapshot_of(last)
    if last is None or start is None or start < begin:
        raise _gone(topic, begin, is_empty=last is None and to_ms is None and to_offset is None)
    return RestorePlan(start, last)


def _gone(topic: ShippedTopic, begin: int, *, is_empty: bool) -> MomentGone:
    newest = last_state(topic, topic.bounds()[1], begin)
    held = [] if newest is None else list(snapshots(topic, snapshot_of(newest), begin))
    if not held:
        words = "holds no snapshot yet" if is_empty else "holds no whole snapshot"
        return MomentGone(f"topic {topic.name} {words}: let `strandline sqlite ship` write one")
    return MomentGone(
        f"topic {topic.name} holds no snapshot of that moment any more, or not yet: the oldest is of "
        f"{moment_text(held[-1].header.at_ms)}, at offset {held[-1].offset}"
    )


def moment_text(at_ms: int) -> str:
    """Return a time in UTC, with milliseconds."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def restore(
    topic: ShippedTopic, wanted: RestorePlan, out: Path, *, progress: Callable[[int], None] = lambda _: None
) -> RestoredDatabase:
    """Write a database to a new file. Raise ShippingFailed, and leave no file, if anything is not as it should be."""
    check_free(out)
    partial = out.with_name(out.name + SUFFIX)
    try:
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _unwritable(out, error) from None
    try:
        _lock(descriptor, partial)
        try:
            os.ftruncate(descriptor, 0)
            found = _Rebuilding(topic, wanted, descriptor, progress).run()
            os.fsync(descriptor)
            _name(partial, out)
        except OSError as error:
            raise _unwritable(out, error) from None
        finally:
            with suppress(FileNotFoundError):
                partial.unlink()
    finally:
        os.close(descriptor)
    return found


def check_free(out: Path) -> None:
    """Raise ShippingFailed if a file is there, or one that SQLite would apply to the restored database."""
    for suffix in ("", *_BESIDE):
        name = out.with_name(out.name + suffix)
        if name.is_symlink() or name.exists():
            raise ShippingFailed(f"{name} exists and is not overwritten: name another file, or remove it first")


def check_integrity(path: Path) -> None:
    """Run SQLite's own check. Raise ShippingFailed with what it finds."""
    try:
        # Immutable: the check makes no files beside the database.
        with closing(sqlite3.connect(f"file:{quote(os.path.abspath(path))}?immutable=1", uri=True)) as connection:
            found = [row[0] for row in connection.execute("PRAGMA integrity_check(10)")]
    except sqlite3.Error as error:
        found = [str(error)]
    if found != ["ok"]:
        raise ShippingFailed(f"{path} is restored as it was, but SQLite's check finds: {'; '.join(found)}")


class _Rebuilding:
    """Records applied to a file, one after the other."""

    def __init__(
        self, topic: ShippedTopic, wanted: RestorePlan, descriptor: int, progress: Callable[[int], None]
    ) -> None:
        self._topic = topic
        self._wanted = wanted
        self._file = descriptor
        self._progress = progress
        self._sums = PageSums(wanted.last.header.state.page_bytes)
        self._state: DatabaseState | None = None
        self._base = 0
        self._next_part = 0
        self._last = wanted.last

    def run(self) -> RestoredDatabase:
        target = self._wanted.last.header.state
        for record in self._topic.read(self._wanted.start, self._wanted.last.offset + 1):
            if self._apply(record, target):
                self._last = record
                self._progress(len(record.value))
        state = self._state
        if state is None or state.transaction != target.transaction:
            raise MomentGone(
                f"topic {self._topic.name} ends, or has lost records, before transaction {target.transaction}"
            )
        return RestoredDatabase(state, self._last.header.at_ms, self._last.offset, state.transaction - self._base)

    def _apply(self, record: ShippedRecord, target: DatabaseState) -> bool:
        """Apply a record; return False for those that are no part of the wanted state."""
        header = record.header
        if header.state.generation != target.generation:
            return self._skip(record)
        if self._state is None:
            self._apply_snapshot(record)
            return True
        if header.kind == SNAPSHOT:
            return False
        number = header.state.transaction + (not header.is_last)
        if number > target.transaction:
            return False
        self._expect(record, number == self._state.transaction + 1 and header.part == self._next_part)
        size = header.state.page_bytes
        for page, content in decode_pages(record.value, size, self._topic.place(record.offset)):
            self._write(content, (page - 1) * size)
            self._sums.put(page, content)
        self._next_part += 1
        if header.is_last:
            self._sums.resize(header.state.pages)
            self._finish(record)
        return True

    def _skip(self, record: ShippedRecord) -> bool:
        self._expect(record, record.header.kind == SNAPSHOT and self._state is not None)
        return False

    def _apply_snapshot(self, record: ShippedRecord) -> None:
        header = record.header
        is_next = header.part == self._next_part and header.first == self._sums.pages + 1
        self._expect(record, header.kind == SNAPSHOT and is_next and start_of(record) == self._wanted.start)
        self._expect(record, len(record.value) % header.state.page_bytes == 0)
        self._write(memoryview(record.value), (header.first - 1) * header.state.page_bytes)
        self._sums.extend(memoryview(record.value))
        self._next_part += 1
        if header.is_last:
            self._base = header.state.transaction
            self._finish(record)

    def _finish(self, record: ShippedRecord) -> None:
        """Compare the pages with those of the shipper, at the end of a snapshot or transaction."""
        state = record.header.state
        if (self._sums.total, self._sums.pages) != (state.checksum, state.pages):
            raise ShippingFailed(
                f"behind {self._topic.place(record.offset)} the pages differ from those of the database: the topic is "
                "damaged there, so restore to an earlier moment or from the next snapshot"
            )
        os.ftruncate(self._file, state.pages * state.page_bytes)
        self._state, self._next_part = state, 0

    def _expect(self, record: ShippedRecord, is_so: bool) -> None:
        if not is_so:
            raise MomentGone(
                f"{self._topic.place(record.offset)} does not follow the record before it: records between them are "
                "gone, so restore to an earlier moment or from the next snapshot"
            )

    def _write(self, content: memoryview, at: int) -> None:
        while content:
            written = os.pwrite(self._file, content, at)
            content, at = content[written:], at + written


def _lock(descriptor: int, partial: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ShippingFailed(f"another restore writes {partial}: wait for it, or name another file") from None


def _name(partial: Path, out: Path) -> None:
    """Give the file its name, unless another file took that name since."""
    try:
        os.link(partial, out)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        check_free(out)
        os.rename(partial, out)
    directory = os.open(out.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _unwritable(out: Path, error: OSError) -> ShippingFailed:
    if error.errno in _FULL:
        return ShippingFailed(f"the disk of {out} is full: make room, or restore to another disk")
    if isinstance(error, FileExistsError):
        return ShippingFailed(f"{out} exists and is not overwritten: name another file, or remove it first")
    return ShippingFailed(f"{out} cannot be written: {(error.strerror or str(error)).lower()}")
