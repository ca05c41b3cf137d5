"""The files of a directory store, by calls that block.

    <directory>/<key>                   an object; the parts of its key but the last are directories
    <directory>/.tmp/<random>/lock      locked as long as the process that owns the folder lives
    <directory>/.tmp/<random>/<n>       an object that is being written

An object is written to a temporary file, synced, and then renamed, or linked if it must not exist. So its name never
shows a part of it. Several processes may use one directory. A folder of temporary files whose lock is free belongs to a
process that has ended, and the next one that opens the store removes it.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from strandline.tiers.store.interface import StoredObject

TEMPORARY: Final = ".tmp"
"""No key has a part that begins with a dot."""
PARENTS_TRIES_MAX: Final = 10
"""How often directories are made again that a delete has removed meanwhile."""
_COPY_BYTES: Final = 1 << 20


class BodyUnreadable(Exception):
    """The file that should become an object cannot be read, for the reason `error`."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class ObjectFiles:
    """A directory and a folder of temporary files in it. For several threads."""

    def __init__(self, root: Path) -> None:
        # Not its parents: a file system that is not mounted must not become an empty store.
        root.mkdir(exist_ok=True)
        self._root = root
        self._numbers = itertools.count()
        self._folder, self._lock_fd = _locked_folder(root / TEMPORARY)
        self._remove_left_folders()

    def close(self) -> None:
        """Remove the folder of temporary files."""
        if self._lock_fd >= 0:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._lock_fd)
            self._lock_fd = -1

    @property
    def is_there(self) -> bool:
        return self._folder.is_dir()

    def put(self, key: str, body: bytes | memoryview | Path) -> StoredObject:
        with self._written(body) as (temporary, found):
            target = self._root / key
            self._in_parents(target, lambda: os.replace(temporary, target))
            _sync_directory(target.parent)
            return _described(key, found)

    def put_new(self, key: str, body: bytes) -> None:
        """Write an object. Change nothing if there is one."""
        with self._written(body) as (temporary, _):
            target = self._root / key
            with suppress(FileExistsError):
                self._in_parents(target, lambda: os.link(temporary, target))
            # Also for an object of another writer, which this one may act upon.
            _sync_directory(target.parent)

    def read(self, key: str, start: int, length: int) -> bytes:
        """Return the bytes of a range, fewer at the end of the object."""
        fd = os.open(self._root / key, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts: list[bytes] = []
            while length > 0 and (part := os.pread(fd, length, start)):
                parts.append(part)
                start, length = start + len(part), length - len(part)
            return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            os.close(fd)

    def read_whole(self, key: str) -> bytes:
        return (self._root / key).read_bytes()

    def head(self, key: str) -> StoredObject | None:
        path = self._root / key
        try:
            return None if path.is_dir() else _described(key, path.stat())
        except FileNotFoundError:
            return None

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, and directories that hold nothing any more."""
        parents: set[Path] = set()
        for key in keys:
            path = self._root / key
            with suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
                parents.add(path.parent)
        for parent in parents:
            _sync_directory(parent)
            while parent != self._root:
                try:
                    parent.rmdir()
                except OSError:
                    # Not empty, or removed by another process.
                    break
                parent = parent.parent

    def page(self, folder: str) -> list[StoredObject | str]:
        """Return the objects of one directory and its directories, the latter with a slash, in the order of keys."""
        found: list[tuple[str, StoredObject | str]] = []
        try:
            with os.scandir(self._root / folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    key = f"{folder}{entry.name}"
                    with suppress(FileNotFoundError):
                        below = f"{key}/"
                        is_folder = entry.is_dir()
                        found.append((below, below) if is_folder else (key, _described(key, entry.stat())))
        except (FileNotFoundError, NotADirectoryError):
            if not self.is_there:
                raise
        return [each for _, each in sorted(found, key=lambda each: each[0])]

    @contextmanager
    def _written(self, body: bytes | memoryview | Path) -> Iterator[tuple[Path, os.stat_result]]:
        """Write a temporary file that is on disk, and remove it at the end."""
        path = self._folder / str(next(self._numbers))
        try:
            with path.open("xb", buffering=0) as target:
                for part in _parts(body) if isinstance(body, Path) else (body,):
                    left = memoryview(part).cast("B") if part else memoryview(b"")
                    while left:
                        left = left[target.write(left) :]
                os.fsync(target.fileno())
                found = os.fstat(target.fileno())
            yield path, found
        finally:
            path.unlink(missing_ok=True)

    def _in_parents(self, target: Path, move: Callable[[], None]) -> None:
        for tried in range(1, PARENTS_TRIES_MAX + 1):
            try:
                self._make_directory(target.parent)
                move()
            except FileNotFoundError:
                if tried == PARENTS_TRIES_MAX or not self.is_there:
                    raise
            else:
                return

    def _make_directory(self, directory: Path) -> None:
        """Make a directory and its parents below the root, each on disk before its content."""
        if directory == self._root or directory.is_dir():
            return
        self._make_directory(directory.parent)
        with suppress(FileExistsError):
            directory.mkdir()
        _sync_directory(directory.parent)

    def _remove_left_folders(self) -> None:
        for folder in (self._root / TEMPORARY).iterdir():
            if folder == self._folder:
                continue
            try:
                fd = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                # Another process makes it at this moment, or removes it.
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            except OSError:
                # Its process lives.
                continue
            finally:
                os.close(fd)


def _locked_folder(parent: Path) -> tuple[Path, int]:
    """Make a folder and lock it. Return the folder and the descriptor that holds the lock."""
    while True:
        folder = parent / secrets.token_hex(8)
        folder.mkdir(parents=True)
        fd = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        # Another process may have removed the folder before it was locked.
        if (folder / "lock").exists():
            return folder, fd
        os.close(fd)


def _parts(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb", buffering=0) as source:
            while part := source.read(_COPY_BYTES):
                yield part
    except OSError as error:
        raise BodyUnreadable(error) from error


def _described(key: str, found: os.stat_result) -> StoredObject:
    tag = f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"
    return StoredObject(key, found.st_size, tag, found.st_mtime_ns // 1_000_000)


def _sync_directory(directory: Path) -> None:
    with suppress(FileNotFoundError):
        fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
