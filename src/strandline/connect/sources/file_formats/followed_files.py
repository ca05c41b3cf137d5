"""Files that are followed as `tail -F` does: appended, truncated, rotated and deleted ones.

An offset is `{"position", "inode", "fingerprint"}`. The fingerprint is a checksum of what is before the position, so it
tells whether a file is still the one that was read. The inode finds that file again under another name:

    app.log (inode 1) is renamed to app.log.1, and app.log (inode 2) is made
        while the source runs: the open descriptor is read to its end, then app.log from 0
        after a restart: the file with inode 1 is searched, and read on from the position; then app.log from 0

Kafka's plain `{"position"}` works, too; then only a file that is too short counts as another one.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from strandline.connect.failures import ConnectFailed
from strandline.connect.paths import PathRules
from strandline.connect.records import AnyBatch, Batch, SourcePosition
from strandline.connect.sources.file_formats.byte_source import DescriptorBytes
from strandline.connect.sources.file_formats.format_config import POSITION, ROW, FormatConfig, FormatReader, batch_of
from strandline.connect.sources.file_formats.readers import reader_of

log = logging.getLogger("strandline.connect.files")

FILENAME: Final = "filename"
INODE: Final = "inode"
FINGERPRINT: Final = "fingerprint"
OPEN_FILES_MAX: Final = 200
"""More are closed while they are idle, and opened again when they change."""
MISSING_S_MAX: Final = 60.0
"""A file of a directory that was moved elsewhere for so long is forgotten."""
KNOWN_FILES_MAX: Final = 10_000
"""Files whose offsets are kept after they have vanished, because they may have been renamed."""
_TRIES_MAX: Final = 10
_ROTATED: Final = re.compile(r"[.\-_]\d[\d.\-_T:]*")
_ROTATED_END: Final = re.compile(f"{_ROTATED.pattern}$")
_NUMBERED: Final = re.compile(r"\.(\d{1,5})")

Listing = Mapping[str, os.stat_result]
Offset = Mapping[str, Any]


@dataclass(eq=False)
class FollowedFile:
    """A file that is open."""

    name: str
    bytes: DescriptorBytes
    reader: FormatReader
    offset: Offset
    inode: int
    is_replaced: bool = False
    """Whether its name is that of another file by now."""
    missing_since: float | None = None
    idle_at: tuple[int, int] | None = None
    """Size and time of change when everything of it was read."""
    idle_since: float = 0.0
    is_open: bool = True

    @property
    def partition(self) -> dict[str, str]:
        return {FILENAME: self.name}

    def state(self) -> tuple[int, int]:
        found = os.fstat(self.bytes.descriptor)
        return found.st_size, found.st_mtime_ns

    def is_same(self, offset: Offset) -> bool:
        """Return whether this is the file that an offset was stored for."""
        return is_same(self.reader, offset)

    def close(self) -> None:
        self.is_open = False
        os.close(self.bytes.descriptor)


class FollowedFiles:
    """The files of one task. Its methods block; call them from one thread at a time."""

    def __init__(
        self,
        config: FormatConfig,
        paths: PathRules,
        listing: Callable[[], Listing],
        stored: Sequence[tuple[Offset, Offset]],
        *,
        is_followed: bool,
        grace_s: float,
        forgets_missing: bool,
    ) -> None:
        """`listing` returns the files there are now, `stored` the partitions and offsets of the whole connector.

        A file that was renamed is followed for `grace_s` longer, because its writer may have it open.
        """
        self._config = config
        self._paths = paths
        self._list = listing
        self._is_followed = is_followed
        self._grace_s = grace_s
        self._forgets_missing = forgets_missing
        self._offsets = {each[FILENAME]: _checked(each, offset) for each, offset in stored if FILENAME in each}
        self._known = _by_inode(self._offsets.values())
        """Offsets by inode, because files are renamed while they are looked at, and names are used again."""
        self._open: dict[str, FollowedFile] = {}
        self._settled: dict[str, tuple[int, int, int]] = {}
        """Inode, size and time of change of files that are closed, because all of them was read."""
        self._moved: list[SourcePosition] = []
        """Positions to store for files that were found under another name."""

    def scan(self) -> list[FollowedFile]:
        """Look at the files there are. Return those to read, and close what is idle if too many are open."""
        listing = self._list()
        now = time.monotonic()
        for each in self._open.values():
            found = listing.get(each.name)
            each.is_replaced = each.is_replaced or (found is not None and found.st_ino != each.inode)
            if found is not None:
                each.missing_since = None
            elif each.missing_since is None:
                each.missing_since = now
        for name, found in listing.items():
            if name not in self._open and self._settled.get(name) != _state(found) and not self._is_held(found.st_ino):
                self._start(name, listing)
        if len(self._known) > KNOWN_FILES_MAX:
            there = {each.st_ino for each in listing.values()} | {each.inode for each in self._open.values()}
            self._known = {inode: offset for inode, offset in self._known.items() if inode in there}
        self._settle_idle()
        return list(self._open.values())

    def _is_held(self, inode: int) -> bool:
        """Return whether a file is open under another name: it was renamed, or has two names."""
        return any(each.inode == inode for each in self._open.values())

    def read(self, file: FollowedFile) -> list[AnyBatch]:
        """Read some of a file; nothing if there is nothing new."""
        batches = self._read(file)
        if self._moved:
            batches.insert(0, Batch((), offsets=self._moved))
            self._moved = []
        return batches

    def _read(self, file: FollowedFile, *, is_last_call: bool = False) -> list[AnyBatch]:
        """`is_last_call` says that the file is complete, so that its last line needs no newline."""
        state = file.state()
        if file.idle_at == state and not is_last_call:
            return self._finish(file) if self._is_over(file) else []
        chunks = file.reader.read(file.offset, is_final=is_last_call)
        # Checked after the read: had the file been truncated before it, the bytes before the position would differ.
        if not file.is_same(file.offset):
            log.warning("%s was truncated or written again; it is read from its beginning", file.name)
            file.reader = reader_of(file.bytes, self._config)
            file.offset, file.idle_at = {POSITION: 0}, None
            self._offsets.pop(file.name, None)
            self._known.pop(file.inode, None)
            return []
        if not chunks:
            file.idle_at, file.idle_since = state, time.monotonic()
            if is_last_call:
                return []
            return self._finish(file) if self._is_over(file) else []
        file.idle_at = None
        batches = []
        for each in chunks:
            file.offset = self._whole_offset(file, each.offset)
            batches.append(batch_of(each, self._config, file.partition, file.offset))
        self._offsets[file.name] = self._known[file.inode] = file.offset
        return batches

    def close(self) -> None:
        """Close all files."""
        for each in self._open.values():
            each.close()
        self._open.clear()

    def _whole_offset(self, file: FollowedFile, offset: Offset) -> Offset:
        return {**offset, INODE: file.inode, FINGERPRINT: file.reader.fingerprint(offset)}

    def _is_over(self, file: FollowedFile) -> bool:
        """Return whether a file will not grow any more. A writer may keep a file open that was just renamed."""
        if not self._is_followed:
            return True
        if file.is_replaced or os.fstat(file.bytes.descriptor).st_nlink == 0:
            return time.monotonic() - file.idle_since >= self._grace_s
        if file.missing_since is None or not self._forgets_missing:
            return False
        return time.monotonic() - max(file.missing_since, file.idle_since) > MISSING_S_MAX

    def _finish(self, file: FollowedFile) -> list[AnyBatch]:
        """Read the last line, and close a file. Return its last batches, and the position of its new name."""
        batches = self._read(file, is_last_call=True)
        if batches or file.idle_at is None:
            return batches
        listing = self._list()
        del self._open[file.name]
        if _inode(listing.get(file.name)) == file.inode:
            self._settled[file.name] = (file.inode, *file.idle_at)
        else:
            self._offsets.pop(file.name, None)
            self._settled_names(file, file.idle_at, listing)
            self._open_next(file, listing)
        file.close()
        return batches

    def _settled_names(self, file: FollowedFile, state: tuple[int, int], listing: Listing) -> None:
        """Store the positions of files under the names that they have now, before others take their former ones."""
        for name, found in listing.items():
            known = self._known.get(found.st_ino)
            if known is not None and name not in self._open and self._offsets.get(name, {}).get(INODE) != found.st_ino:
                self._moved.append(({FILENAME: name}, known))
                self._offsets[name] = known
            if found.st_ino == file.inode and INODE in file.offset:
                self._moved.append(({FILENAME: name}, file.offset))
                self._offsets[name] = file.offset
                self._settled[name] = (file.inode, *state)
        is_deleted = os.fstat(file.bytes.descriptor).st_nlink == 0
        if file.name not in listing and (is_deleted or self._forgets_missing):
            self._moved.append((file.partition, None))

    def _start(self, name: str, listing: Listing) -> None:
        """Open a file that is new, or has changed since it was closed."""
        opened = self._opened(name, Path(name))
        if opened is None:
            return
        self._settled.pop(name, None)
        stored = self._offsets.get(name)
        if stored is not None and stored.get(INODE) in (None, opened.inode) and opened.is_same(stored):
            opened.offset = stored
        elif not self._go_on(opened) and stored is not None and stored.get(INODE) not in map(_inode, listing.values()):
            opened = self._unlisted_or_copied(opened, stored, listing)
        self._open[name] = opened

    def _go_on(self, opened: FollowedFile) -> bool:
        """Go on in a file that was read under another name, if it was."""
        known = self._known.get(opened.inode)
        if known is None or not opened.is_same(known):
            return False
        opened.offset = self._offsets[opened.name] = known
        # Stored at once, because the former name is soon that of another file.
        self._moved.append((opened.partition, known))
        return True

    def _unlisted_or_copied(self, opened: FollowedFile, stored: Offset, listing: Listing) -> FollowedFile:
        """Return the file that an offset was stored for, or the one that has its name now."""
        older = self._former_file(opened.name, stored, listing)
        if older is not None:
            opened.close()
            return older
        if opened.is_same(stored):
            # The same bytes in another file: it was copied or restored.
            opened.offset = stored
        else:
            log.warning(
                "%s is not the file that was read to position %s; it is read from 0", opened.name, stored[POSITION]
            )
        return opened

    def _former_file(self, name: str, stored: Offset, listing: Listing) -> FollowedFile | None:
        """Open the file that an offset was stored for, if it was renamed to a name that is not listed."""
        listed = {each.st_ino for each in listing.values()}
        for path, found in _directory(Path(name).parent).items():
            if found.st_ino != stored.get(INODE) or found.st_ino in listed:
                continue
            opened = self._opened(name, path)
            if opened is not None and opened.is_same(stored):
                opened.offset, opened.is_replaced = stored, True
                return opened
            if opened is not None:
                opened.close()
        return None

    def _open_next(self, file: FollowedFile, listing: Listing) -> None:
        """Open the file that followed this one under the same name.

        That is one that was rotated in the meantime, or while the source was stopped, or the one of that name now. It
        is opened here, and not at the next scan, because it may be renamed before that.
        """
        current = Path(file.name)
        listed = {each.st_ino for name, each in listing.items() if name != file.name}
        own_stat = os.fstat(file.bytes.descriptor)
        for _ in range(_TRIES_MAX):
            found = _directory(current.parent)
            own = next((path for path, each in found.items() if each.st_ino == file.inode), None)
            later = [
                (each.st_mtime_ns, -_number(path, current), path)
                for path, each in found.items()
                if each.st_ino not in listed
                and each.st_ino != file.inode
                and path.name.startswith(current.name)
                and _ROTATED.fullmatch(path.name, len(current.name))
                and _is_later(path, each, own, own_stat, current)
            ]
            path = min(later)[2] if later else current
            opened = self._opened(file.name, path) if path in found else None
            if opened is not None and self._is_held(opened.inode):
                opened.close()
                return
            if opened is not None and opened.inode == found[path].st_ino:
                opened.is_replaced = path != current
                self._go_on(opened)
                self._open[file.name] = opened
                return
            if opened is not None:
                opened.close()

    def _opened(self, name: str, path: Path) -> FollowedFile | None:
        """Open a file; None if it has vanished or is not allowed."""
        try:
            descriptor = os.open(self._paths.check(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConnectFailed(f"{path} cannot be read: {error.strerror}") from None
        source = DescriptorBytes(str(path), descriptor)
        reader = reader_of(source, self._config)
        return FollowedFile(name, source, reader, {POSITION: 0}, os.fstat(descriptor).st_ino)

    def _settle_idle(self) -> None:
        """Close idle files if too many are open, those that changed longest ago first."""
        extra = len(self._open) - OPEN_FILES_MAX
        if extra <= 0:
            return
        idle = [each for each in self._open.values() if each.idle_at is not None and not each.is_replaced]
        for each in sorted(idle, key=lambda file: file.state()[1])[:extra]:
            assert each.idle_at is not None
            self._settled[each.name] = (each.inode, *each.idle_at)
            del self._open[each.name]
            each.close()


def is_same(reader: FormatReader, offset: Offset) -> bool:
    """Return whether a file is the one that an offset was stored for."""
    fingerprint = offset.get(FINGERPRINT)
    return reader.holds(offset) and (fingerprint is None or fingerprint == reader.fingerprint(offset))


def family(name: str) -> str:
    """Return a name without what rotation appends, so that one task reads a file and those it is renamed to."""
    return _ROTATED_END.sub("", name)


def _state(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns


def _inode(found: os.stat_result | None) -> int | None:
    return None if found is None else found.st_ino


def _directory(path: Path) -> dict[Path, os.stat_result]:
    """Return the regular files of a directory. It is read until two readings agree, because renames show in part."""
    before: dict[Path, int] | None = None
    for _ in range(_TRIES_MAX):
        found = {}
        with suppress(FileNotFoundError), os.scandir(path) as entries:
            for each in entries:
                with suppress(FileNotFoundError):
                    # Not `each.stat()`, nor `each.inode()`, which may be those of another moment.
                    state = os.stat(each.path, follow_symlinks=False)
                    if stat.S_ISREG(state.st_mode):
                        found[Path(each.path)] = state
        inodes = {name: state.st_ino for name, state in found.items()}
        if inodes == before:
            break
        before = inodes
    return found


def _checked(partition: Mapping[str, Any], offset: Offset) -> Offset:
    if isinstance(offset.get(POSITION), int) and offset[POSITION] >= 0:
        return offset
    raise ConnectFailed(f"the stored offset of {partition[FILENAME]} has no {POSITION}: {dict(offset)}")


def _by_inode(offsets: Iterable[Offset]) -> dict[int, Offset]:
    """Return offsets by inode; of several the furthest."""
    ordered = sorted(offsets, key=lambda offset: (offset[POSITION], offset.get(ROW, 0)))
    return {offset[INODE]: offset for offset in ordered if INODE in offset}


def _number(path: Path, current: Path) -> int:
    """Return the number that rotation has appended to a name, 0 if none."""
    found = _NUMBERED.fullmatch(path.name, len(current.name))
    return int(found[1]) if found is not None else 0


def _is_later(path: Path, found: os.stat_result, own: Path | None, own_stat: os.stat_result, current: Path) -> bool:
    """Return whether a file was rotated after another one: `.1` is later than `.2`; dates go by time."""
    if own is not None and _number(own, current) and _number(path, current):
        return _number(path, current) < _number(own, current)
    return (found.st_mtime_ns, path.name) > (own_stat.st_mtime_ns, path.name if own is None else own.name)
