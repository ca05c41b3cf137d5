"""The few things the engine asks of a disk, and the real one.

`RealFile` tracks nothing: positions are the caller's. Writes go to an explicit position (`pwrite`), so a write that
failed half way is simply overwritten by the next, or cut.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
from pathlib import Path
from typing import Final, Protocol

from strandline.errors import DirectoryLocked

Buffer = bytes | bytearray | memoryview

SCRATCH_BYTES: Final = 256 * 1024
_scratch = threading.local()
_RWF_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)


class File(Protocol):
    def fileno(self) -> int: ...
    def write_at(self, position: int, data: Buffer) -> None: ...
    def read_at(self, position: int, size: int) -> bytes: ...
    def read_at_nowait(self, position: int, size: int) -> bytes | None: ...
    def is_cached(self, position: int) -> bool: ...
    def warm(self, position: int, size: int) -> None: ...
    def datasync(self) -> None: ...
    def truncate(self, size: int) -> None: ...
    def size(self) -> int: ...
    def close(self) -> None: ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: Path, *, create: bool = False) -> File: ...
    def exists(self, path: Path) -> bool: ...
    def size(self, path: Path) -> int: ...
    def modified_ms(self, path: Path) -> int: ...
    def set_modified_ms(self, path: Path, modified_ms: int) -> None: ...
    def names(self, directory: Path) -> list[str]: ...
    def is_directory(self, path: Path) -> bool: ...
    def make_directory(self, path: Path) -> None: ...
    def read_whole(self, path: Path) -> bytes: ...
    def write_whole(self, path: Path, data: bytes, *, sync: bool = False) -> None: ...
    def rename(self, source: Path, target: Path) -> None: ...
    def remove(self, path: Path) -> None: ...
    def remove_tree(self, path: Path) -> None: ...
    def sync_directory(self, path: Path) -> None: ...
    def space(self, path: Path) -> tuple[int, int]: ...
    def lock(self, directory: Path) -> DirectoryLock: ...


class RealFile:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def write_at(self, position: int, data: Buffer) -> None:
        written = os.pwrite(self._fd, data, position)
        if written != len(data):
            # A short write is legal (a signal, a nearly full disk): go on until all is there or the error shows.
            view = memoryview(data)
            while written < len(view):
                written += os.pwrite(self._fd, view[written:], position + written)

    def read_at(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size:
            part = os.pread(self._fd, size - got, position + got)
            if not part:
                break
            parts.append(part)
            got += len(part)
        return b"".join(parts)

    def read_at_nowait(self, position: int, size: int) -> bytes | None:
        """Return what is there, if the page cache holds all of it; None if the disk would have to be asked."""
        if _RWF_NOWAIT is None:
            return self.read_at(position, size)
        buffer = bytearray(size)
        try:
            got = os.preadv(self._fd, [buffer], position, _RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # A filesystem without RWF_NOWAIT (some FUSE): read as usual.
                return self.read_at(position, size)
            raise
        # A short count means that the rest was not cached, unless the file ends there; the caller never asks beyond.
        return bytes(buffer) if got == size else None

    def is_cached(self, position: int) -> bool:
        """Whether the page of `position` is in the page cache (1.2 us); sendfile of a missing one stalls the loop."""
        if _RWF_NOWAIT is None:
            return True
        try:
            os.preadv(self._fd, [bytearray(1)], position, _RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return True
            raise
        return True

    def warm(self, position: int, size: int) -> None:
        """Read a part only to have it in the page cache; for threads."""
        scratch = getattr(_scratch, "buffer", None)
        if scratch is None:
            scratch = _scratch.buffer = bytearray(SCRATCH_BYTES)
        view = memoryview(scratch)
        while size > 0:
            got = os.preadv(self._fd, [view[: min(size, SCRATCH_BYTES)]], position)
            if got == 0:
                return
            position += got
            size -= got

    def datasync(self) -> None:
        os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        os.close(self._fd)


class RealDirectoryLock:
    def __init__(self, directory: Path) -> None:
        path = directory / ".lock"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Kafka's own lock is of the first kind, which a process does not hold against itself; the second is.
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise DirectoryLocked(
                    f"{directory} is in use; stop the process that uses it, or choose another directory"
                ) from error
            raise

    def release(self) -> None:
        os.close(self._fd)


class RealDisk:
    """POSIX files."""

    def open(self, path: Path, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(os.open(path, flags, 0o644))

    def exists(self, path: Path) -> bool:
        return path.exists()

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        """Return when the file was last written to, by wall time."""
        return path.stat().st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def names(self, directory: Path) -> list[str]:
        return sorted(os.listdir(directory))

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def read_whole(self, path: Path) -> bytes:
        return path.read_bytes()

    def write_whole(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        """Replace `path` in one step: a reader, or a restart, sees the old content or the new, never a mixture."""
        temporary = path.with_name(path.name + ".tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
        if sync:
            self.sync_directory(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def space(self, path: Path) -> tuple[int, int]:
        """Return bytes of the file system that `path` is on, and how many of them we may still use."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def lock(self, directory: Path) -> RealDirectoryLock:
        return RealDirectoryLock(directory)
