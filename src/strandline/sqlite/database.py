"""A database in WAL mode that is followed: a chain of read transactions, committed frames, pages, checkpoints.

While a read transaction is open, SQLite does not begin the WAL again, and writes no frames to the database that are
newer than the transaction. One that began when the database had the whole WAL (SQLite's read lock 0) lets a writer
begin the WAL again once, and then no frame of the new WAL reaches the database. So each read transaction begins before
the previous one ends, and no frame is overwritten before it was seen.

POSIX drops the locks of a process on a file when it closes any descriptor of that file. So the descriptors here are
closed after the connections.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from strandline.sqlite.failures import ShippingFailed
from strandline.sqlite.file_systems import network_file_system
from strandline.sqlite.wal import (
    FRAME_HEADER_BYTES,
    INDEX_BYTES,
    PAGE_BYTES_MAX,
    PAGE_BYTES_MIN,
    WAL_HEADER_BYTES,
    DamagedWal,
    Frame,
    IndexHeader,
    Salts,
    WalHeader,
    checked_frames,
    frame_offset,
    parse_index_header,
    parse_wal_header,
    stored_frame,
)
from strandline.sqlite.wal_sums import WalSum

MAGIC: Final = b"SQLite format 3\0"
BUSY_S: Final = 5.0
FORCED_BUSY_S: Final = 1.0
_HEADER_BYTES: Final = 100
_READ_BYTES: Final = 4 * 1024 * 1024
_INDEX_TRIES: Final = 200
_INDEX_PAUSE_S: Final = 0.01


class FollowedDatabase:
    """An open database. Its pages, at a committed frame, are those of the file under those of the WAL."""

    def __init__(self, path: Path, *, set_wal: bool = False) -> None:
        self.path = Path(os.path.realpath(path))
        self._files = contextlib.ExitStack()
        self._connections = contextlib.ExitStack()
        try:
            self._open(path, set_wal=set_wal)
        except BaseException:
            self.close()
            raise

    def _open(self, given: Path, *, set_wal: bool) -> None:
        try:
            self._file = self._descriptor(self.path, os.O_RDONLY)
            start = os.pread(self._file, _HEADER_BYTES, 0)
        except FileNotFoundError:
            raise ShippingFailed(f"there is no database {given}: name an existing file") from None
        except OSError as error:
            raise ShippingFailed(f"{given} cannot be read: {(error.strerror or str(error)).lower()}") from None
        if found := network_file_system(self.path):
            raise ShippingFailed(
                f"{given} is on a file system of another machine ({found}), where SQLite's WAL does not work: run the "
                "command on the machine that has the file"
            )
        if start and not start.startswith(MAGIC):
            raise ShippingFailed(f"{given} is not a SQLite database, or it is encrypted: name another file")
        try:
            self._writer = self._connect()
            self._set_mode(given, set_wal=set_wal)
            self.page_bytes = self._page_bytes()
            self._holder = self._connect()
            self._holder.execute(f"PRAGMA busy_timeout = {int(FORCED_BUSY_S * 1000)}")
            self._reader, self._next_reader = self._connect(), self._connect()
            _begin_read(self._reader)
            self._wal = self._descriptor(Path(f"{self.path}-wal"), os.O_RDONLY)
            self._index = self._descriptor(Path(f"{self.path}-shm"), os.O_RDONLY)
        except sqlite3.Error as error:
            raise ShippingFailed(f"SQLite cannot open {given}: {error}") from error
        except OSError as error:
            raise ShippingFailed(
                f"{error.filename or given} cannot be read: {(error.strerror or '').lower()}"
            ) from None

    def close(self) -> None:
        """Close the connections, then the files."""
        self._connections.close()
        self._files.close()

    def __enter__(self) -> FollowedDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _descriptor(self, path: Path, flags: int) -> int:
        found = os.open(path, flags | os.O_CLOEXEC)
        self._files.callback(os.close, found)
        return found

    def _connect(self) -> sqlite3.Connection:
        place = f"file:{quote(str(self.path))}?mode=rw"
        connection = sqlite3.connect(place, uri=True, isolation_level=None, timeout=BUSY_S, check_same_thread=False)
        self._connections.callback(connection.close)
        # Checkpoints are made by `checkpoint` alone.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        return connection

    def _set_mode(self, given: Path, *, set_wal: bool) -> None:
        (mode,) = self._writer.execute("PRAGMA journal_mode").fetchone()
        if mode == "wal":
            return
        if not set_wal:
            raise ShippingFailed(
                f"{given} has journal_mode {mode}, and only a WAL can be followed: say --set-wal, or run "
                "`PRAGMA journal_mode = wal` on it"
            )
        (mode,) = self._writer.execute("PRAGMA journal_mode = wal").fetchone()
        if mode != "wal":
            raise ShippingFailed(f"{given} keeps journal_mode {mode}: close what else uses it, and try again")

    def _page_bytes(self) -> int:
        (found,) = self._writer.execute("PRAGMA page_size").fetchone()
        assert isinstance(found, int)
        assert PAGE_BYTES_MIN <= found <= PAGE_BYTES_MAX
        return found

    # Read transactions, checkpoints

    def renew_reader(self) -> None:
        """Begin a new read transaction, then end the one before. Frames up to that one's begin must be shipped."""
        _begin_read(self._next_reader)
        self._reader.execute("ROLLBACK")
        self._reader, self._next_reader = self._next_reader, self._reader

    def checkpoint(self) -> None:
        """Write frames to the database as far as readers allow it, and allow a writer to begin the WAL again."""
        self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        self.renew_reader()

    @contextlib.contextmanager
    def writers_held(self) -> Iterator[bool]:
        """Hold the write lock, so that the WAL does not grow; give False if another connection has it."""
        try:
            self._holder.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            yield False
            return
        try:
            yield True
        finally:
            self._holder.execute("ROLLBACK")

    def check_in_place(self) -> None:
        """Raise ShippingFailed if the file was deleted or replaced."""
        for descriptor, name in ((self._file, str(self.path)), (self._wal, f"{self.path}-wal")):
            opened = os.fstat(descriptor)
            try:
                found = os.stat(name)
            except FileNotFoundError:
                raise ShippingFailed(
                    f"{name} was deleted while it was followed: put the database in place, and start again"
                ) from None
            if (opened.st_ino, opened.st_dev) != (found.st_ino, found.st_dev):
                raise ShippingFailed(
                    f"{name} was replaced by another file while it was followed: start again to ship a new snapshot"
                )

    # Frames

    def index(self) -> IndexHeader:
        """Return the committed end of the WAL."""
        for tried in range(_INDEX_TRIES):
            found = parse_index_header(os.pread(self._index, INDEX_BYTES, 0))
            if found is not None:
                return found
            if tried >= _INDEX_TRIES // 2:
                # A writer that was killed while it changed the header: the next read transaction repairs it.
                _begin_read(self._next_reader)
                self._next_reader.execute("ROLLBACK")
                time.sleep(_INDEX_PAUSE_S)
        raise ShippingFailed(f"{self.path}-shm has no valid header: is the database on a local file system?")

    def wal_header(self) -> WalHeader | None:
        return parse_wal_header(os.pread(self._wal, WAL_HEADER_BYTES, 0))

    def header_of(self, salts: Salts) -> WalHeader:
        """Return the header of the WAL with these salts."""
        found = self.wal_header()
        if found is None or found.salts != salts or found.page_bytes != self.page_bytes:
            raise DamagedWal(f"{self.path}-wal does not begin with the header that its index names")
        return found

    def frames(self, header: WalHeader, first: int, end: int, before: WalSum) -> Iterator[tuple[int, Frame]]:
        """Yield committed frames `first` to before `end` with their numbers. A page holds until the next is asked."""
        size = FRAME_HEADER_BYTES + self.page_bytes
        step = max(1, _READ_BYTES // size)
        for start in range(first, end, step):
            stop = min(end, start + step)
            content = os.pread(self._wal, (stop - start) * size, frame_offset(start, self.page_bytes))
            if len(content) < (stop - start) * size:
                raise DamagedWal(f"{self.path}-wal ends before frame {stop}, which is committed")
            for number, frame in enumerate(checked_frames(memoryview(content), header, before), start):
                yield number, frame
                before = frame.sum

    def frame_heads(self, end: int) -> Iterator[tuple[int, int, Salts, WalSum]]:
        """Yield page number, pages if it commits, salts and stored checksum of the frames before `end`, unchecked."""
        for number in range(end):
            head = os.pread(self._wal, FRAME_HEADER_BYTES, frame_offset(number, self.page_bytes))
            if len(head) < FRAME_HEADER_BYTES:
                return
            yield stored_frame(head)

    # Pages

    def file_pages(self) -> int:
        """Return how many pages the file has, without those of the WAL."""
        return os.fstat(self._file).st_size // self.page_bytes

    def chunks(
        self, pages: int, in_wal: dict[int, int], salts: Salts | None, chunk_pages: int
    ) -> Iterator[tuple[int, memoryview]]:
        """Yield the first page number and the contents of runs of pages.

        `in_wal` has the frame of each page that is in the WAL with these salts. Without salts the caller checks
        afterwards that the WAL was not begun again meanwhile.
        """
        size = self.page_bytes
        for first in range(1, pages + 1, chunk_pages):
            count = min(chunk_pages, pages + 1 - first)
            content = bytearray(os.pread(self._file, count * size, (first - 1) * size))
            content.extend(bytes(count * size - len(content)))
            if in_wal:
                for number in range(first, first + count):
                    frame = in_wal.get(number)
                    if frame is not None and (page := self._page_in(frame, salts)) is not None:
                        content[(number - first) * size : (number - first + 1) * size] = page
            yield first, memoryview(content)

    def _page_in(self, frame: int, salts: Salts | None) -> bytes | None:
        """Return the page of a frame; None if a writer has begun the WAL again, so that the database has the page."""
        at = frame_offset(frame, self.page_bytes)
        page = os.pread(self._wal, self.page_bytes, at + FRAME_HEADER_BYTES)
        if len(page) < self.page_bytes:
            return None
        if salts is None:
            return page
        # Writers write the header of a frame before its page. So an old header, read last, proves an old page.
        head = os.pread(self._wal, FRAME_HEADER_BYTES, at)
        return page if stored_frame(head)[2] == salts else None


def _begin_read(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    # A read transaction begins with the first statement that reads.
    connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
