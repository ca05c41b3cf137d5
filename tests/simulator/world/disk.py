"""A disk in memory that knows what is cached and what is safe, file by file and name by name.

Each file has its content as processes see it, the content that is on the platter, and the writes and cuts in between,
in order. Each directory has the same for its names. `datasync` and `sync_directory` make safe; `power_cut` keeps of the
rest what chance decides: nothing, all of it, or some with a torn end. A kill -9 changes nothing: the cache is the
kernel's.

What chance may decide for a file is a *prefix* of the unsynced writes, the last of them cut at any byte: that is what
ext4 in its default mode does to files that only grow. `reordered=True` also drops writes from the middle (XFS, ext4
without journalled data), which leaves zeros. Names of a directory are journalled in order, each rename as one step.

Faults: `capacity_bytes` (ENOSPC after what fits), `fail_writes`, `fail_syncs` (EIO; a failed sync drops what it was to
write, as Linux does, and the next one succeeds without it), `damage` (a flipped bit).
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

from strandline.errors import DirectoryLocked
from strandline.log.disk import Buffer

CAPACITY_BYTES: Final = 1 << 40

Write = tuple[int, bytes | None]
"""A write at a position, or (size, None): a cut."""


class SimInode:
    """The content of a file."""

    __slots__ = ("cached", "has_failed", "modified_ms", "safe", "unsynced")

    def __init__(self) -> None:
        self.modified_ms = 0
        self.cached = bytearray()
        self.safe = bytearray()
        self.unsynced: list[Write] = []
        self.has_failed = False

    def write(self, position: int, data: bytes) -> None:
        _apply(self.cached, (position, data))
        self.unsynced.append((position, data))

    def truncate(self, size: int) -> None:
        _apply(self.cached, (size, None))
        self.unsynced.append((size, None))

    def sync(self) -> None:
        for write in self.unsynced:
            _apply(self.safe, write)
        self.unsynced.clear()

    def forget_unsynced(self) -> None:
        """A sync failed: the kernel calls the pages clean although the platter never got them."""
        self.unsynced.clear()
        self.has_failed = True

    def lose_power(self, rng: random.Random, *, reordered: bool) -> None:
        # Behind a failed sync nothing more is written unasked: a hole with sound batches behind it is damage, and a
        # node refuses to start with that; it is not what a power cut leaves.
        kept = [] if self.has_failed else _survivors(self.unsynced, rng)
        if reordered and len(kept) > 1:
            kept = [write for write in kept if rng.random() < 0.8]
        if kept and kept[-1][1] is not None and rng.random() < 0.5:
            position, data = kept[-1]
            assert data is not None
            kept[-1] = (position, data[: rng.randrange(len(data) + 1)])
        for write in kept:
            _apply(self.safe, write)
        self.unsynced.clear()
        self.has_failed = False
        self.cached = bytearray(self.safe)


def _apply(content: bytearray, write: Write) -> None:
    position, data = write
    if data is None:
        if position < len(content):
            del content[position:]
        else:
            content.extend(bytes(position - len(content)))
        return
    if position == len(content):
        content += data
        return
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _survivors(unsynced: list[Write], rng: random.Random) -> list[Write]:
    """Which of the writes in order reached the platter: none, all, or a first part."""
    choice = rng.random()
    if choice < 0.4:
        return []
    if choice < 0.6:
        return list(unsynced)
    return unsynced[: rng.randint(0, len(unsynced))]


class SimDirectory:
    """The names in a directory."""

    __slots__ = ("cached", "safe", "unsynced")

    def __init__(self) -> None:
        self.cached: dict[str, SimInode | SimDirectory] = {}
        self.safe: dict[str, SimInode | SimDirectory] = {}
        self.unsynced: list[Callable[[dict[str, SimInode | SimDirectory]], object]] = []

    def change(self, step: Callable[[dict[str, SimInode | SimDirectory]], object]) -> None:
        step(self.cached)
        self.unsynced.append(step)

    def sync(self) -> None:
        self.safe = dict(self.cached)
        self.unsynced.clear()

    def lose_power(self, rng: random.Random, *, reordered: bool) -> None:
        choice = rng.random()
        count = len(self.unsynced)
        kept = 0 if choice < 0.4 else count if choice < 0.6 else rng.randint(0, count)
        for step in self.unsynced[:kept]:
            step(self.safe)
        self.unsynced.clear()
        self.cached = dict(self.safe)
        for name in sorted(self.cached):
            self.cached[name].lose_power(rng, reordered=reordered)


class SimFile:
    __slots__ = ("_disk", "_inode", "is_closed", "path")

    def __init__(self, disk: SimDisk, path: Path, inode: SimInode) -> None:
        self._disk = disk
        self._inode = inode
        self.path = path
        self.is_closed = False

    def fileno(self) -> int:
        raise AssertionError("a simulated file has no descriptor")

    def write_at(self, position: int, data: Buffer) -> None:
        self._check_open()
        self._disk.write(self._inode, self.path, position, bytes(data))

    def read_at(self, position: int, size: int) -> bytes:
        self._check_open()
        return bytes(self._inode.cached[position : position + size])

    def read_at_nowait(self, position: int, size: int) -> bytes | None:
        self._check_open()
        return None if self._disk.is_cold() else bytes(self._inode.cached[position : position + size])

    def is_cached(self, position: int) -> bool:
        return not self._disk.is_cold()

    def warm(self, position: int, size: int) -> None:
        self._check_open()

    def datasync(self) -> None:
        self._check_open()
        self._disk.sync(self._inode, self.path)

    def truncate(self, size: int) -> None:
        self._check_open()
        self._inode.truncate(size)

    def size(self) -> int:
        return len(self._inode.cached)

    def close(self) -> None:
        self._check_open()
        self.is_closed = True

    def _check_open(self) -> None:
        if self.is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.path))


class SimDirectoryLock:
    def __init__(self, disk: SimDisk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory

    def release(self) -> None:
        self._disk.locked.discard(self._directory)


class SimDisk:
    """The file system of one simulated machine."""

    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.root = SimDirectory()
        self.capacity_bytes = CAPACITY_BYTES
        self.used_bytes = 0
        """Bytes ever written, less those that were removed on purpose (`free`): enough to have a disk fill up."""
        self.full_share = 0.0
        """How many of the writes find the disk full, at random."""
        self.fail_writes = 0
        """How many of the next writes fail with EIO."""
        self.fail_syncs = 0
        """How many of the next syncs fail with EIO."""
        self.has_sync_failed = False
        """Since the machine was booted."""
        self.cold_share = 0.0
        """How often what is asked for without waiting is not in the page cache."""
        self.syncs = 0
        self.on_replaced: Callable[[Path, bytes], object] | None = None
        """Told of each small file that was replaced as a whole."""
        self.locked: set[Path] = set()
        self.now_ms: Callable[[], int] = lambda: 0
        """The machine's wall clock, for the times of files."""

    # Faults

    def power_cut(self, *, reordered: bool = False) -> None:
        """What was not synced is gone, or some of it; every open file is void."""
        self.root.lose_power(self.random, reordered=reordered)
        self.locked.clear()
        self.has_sync_failed = False

    def sync_all(self) -> None:
        """Make everything safe: a machine that was set up long ago."""
        directories = [self.root]
        while directories:
            directory = directories.pop()
            directory.sync()
            for each in directory.cached.values():
                if isinstance(each, SimDirectory):
                    directories.append(each)
                else:
                    each.sync()

    def process_died(self) -> None:
        """kill -9: locks are released, and the page cache stays."""
        self.locked.clear()

    def wipe(self) -> None:
        """Another, empty disk in its place."""
        self.capacity_bytes, self.used_bytes, self.full_share = CAPACITY_BYTES, 0, 0.0
        self.root = SimDirectory()
        self.locked.clear()

    def damage(self, path: Path, position: int) -> None:
        """Flip a bit that the platter holds."""
        inode = self._file(path)
        inode.cached[position] ^= 0x10
        if position < len(inode.safe):
            inode.safe[position] ^= 0x10

    def is_cold(self) -> bool:
        return self.cold_share > 0 and self.random.random() < self.cold_share

    def write(self, inode: SimInode, path: Path, position: int, data: bytes) -> None:
        inode.modified_ms = self.now_ms()
        if self.fail_writes > 0:
            self.fail_writes -= 1
            inode.write(position, data[: self.random.randrange(len(data) + 1)])
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        room = self.capacity_bytes - self.used_bytes
        if self.full_share and self.random.random() < self.full_share:
            room = self.random.randrange(len(data)) if data else -1
        if len(data) > room:
            # A full disk takes what fits and then says no.
            inode.write(position, data[: max(0, room)])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if self.capacity_bytes != CAPACITY_BYTES:
            self.used_bytes += len(data)
        inode.write(position, data)

    def _take_block(self, path: Path) -> None:
        """Take room for a new name, which a full disk may not have."""
        if self.full_share and self.random.random() < self.full_share:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def sync(self, inode: SimInode, path: Path) -> None:
        self.syncs += 1
        if self.fail_syncs > 0:
            self.fail_syncs -= 1
            self.has_sync_failed = True
            inode.forget_unsynced()
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        inode.sync()

    # The Disk protocol

    def open(self, path: Path, *, create: bool = False) -> SimFile:
        directory, name = self._parent(path), path.name
        inode = directory.cached.get(name)
        if inode is None and create:
            self._take_block(path)
            inode = SimInode()
            directory.change(_link(name, inode))
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if isinstance(inode, SimDirectory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return SimFile(self, path, inode)

    def exists(self, path: Path) -> bool:
        return self._find(path) is not None

    def size(self, path: Path) -> int:
        return len(self._file(path).cached)

    def modified_ms(self, path: Path) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        self._file(path).modified_ms = modified_ms

    def names(self, directory: Path) -> list[str]:
        return sorted(self._directory(directory).cached)

    def is_directory(self, path: Path) -> bool:
        return isinstance(self._find(path), SimDirectory)

    def make_directory(self, path: Path) -> None:
        current = self.root
        for name in path.parts:
            found = current.cached.get(name)
            if found is None:
                self._take_block(path)
                found = SimDirectory()
                current.change(_link(name, found))
            if not isinstance(found, SimDirectory):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            current = found

    def read_whole(self, path: Path) -> bytes:
        return bytes(self._file(path).cached)

    def write_whole(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        """As the real disk does it: a new file beside the old one, and a rename."""
        directory = self._parent(path)
        temporary = path.name + ".tmp"
        self._take_block(path)
        inode = SimInode()
        directory.change(_link(temporary, inode))
        self.write(inode, path, 0, bytes(data))
        if sync:
            self.sync(inode, path)
        directory.change(_rename(temporary, path.name))
        if sync:
            self.sync_directory(path.parent)
        if self.on_replaced is not None:
            self.on_replaced(path, data)

    def rename(self, source: Path, target: Path) -> None:
        directory = self._parent(source)
        if source.parent != target.parent:
            raise NotImplementedError("a simulated rename stays in its directory")
        if source.name not in directory.cached:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
        directory.change(_rename(source.name, target.name))

    def remove(self, path: Path) -> None:
        directory = self._find(path.parent)
        if isinstance(directory, SimDirectory) and path.name in directory.cached:
            directory.change(_unlink(path.name))

    def remove_tree(self, path: Path) -> None:
        self._directory(path)
        self._parent(path).change(_unlink(path.name))

    def sync_directory(self, path: Path) -> None:
        self.syncs += 1
        self._directory(path).sync()

    def space(self, path: Path) -> tuple[int, int]:
        return self.capacity_bytes, max(0, self.capacity_bytes - self.used_bytes)

    def lock(self, directory: Path) -> SimDirectoryLock:
        if directory in self.locked:
            raise DirectoryLocked(f"{directory} is in use")
        self.locked.add(directory)
        return SimDirectoryLock(self, directory)

    # Finding

    def _find(self, path: Path) -> SimInode | SimDirectory | None:
        current: SimInode | SimDirectory | None = self.root
        for name in path.parts:
            if not isinstance(current, SimDirectory):
                return None
            current = current.cached.get(name)
        return current

    def _parent(self, path: Path) -> SimDirectory:
        return self._directory(path.parent)

    def _directory(self, path: Path) -> SimDirectory:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if not isinstance(found, SimDirectory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return found

    def _file(self, path: Path) -> SimInode:
        found = self._find(path)
        if not isinstance(found, SimInode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return found


Names = dict[str, SimInode | SimDirectory]


def _link(name: str, target: SimInode | SimDirectory) -> Callable[[Names], object]:
    def step(names: Names) -> None:
        names[name] = target

    return step


def _unlink(name: str) -> Callable[[Names], object]:
    def step(names: Names) -> None:
        names.pop(name, None)

    return step


def _rename(source: str, target: str) -> Callable[[Names], object]:
    def step(names: Names) -> None:
        if source in names:
            names[target] = names.pop(source)

    return step
