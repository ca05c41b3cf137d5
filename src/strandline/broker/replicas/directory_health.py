"""Whether the data directory can be written to: a disk that is full, or fails, takes no more appends.

While it cannot, heartbeats name the directory as offline, so that the controller lets others lead; what is here can
still be read. From time to time a little is written and synced to see whether there is room again. Then the directory
is no longer named, its partitions catch up as followers do, and logs that found no room to be opened are opened. A log
whose sync failed stays offline until a restart, and the directory with it: what its files hold is unknown.
"""

from __future__ import annotations

import errno
import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from strandline.log.disk import Disk
from strandline.log.log_directory import LogDirectory
from strandline.runtime.runtime import Runtime, TimerHandle

PROBE_S: Final = 2.0
"""Between two attempts to write."""
PROBE_S_MAX: Final = 16.0
"""Between two attempts at most. The pause doubles where an attempt found room, and what came next did not."""
PROBE_BYTES: Final = 4 * 1024 * 1024
"""Room for less than this would be full again at once."""
PROBE_NAME: Final = "space-probe"
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS))

log = logging.getLogger("strandline.node")


class DirectoryHealth:
    def __init__(self, runtime: Runtime, directory: LogDirectory, directory_id: uuid.UUID) -> None:
        self._runtime = runtime
        self._directory = directory
        self._directory_id = directory_id
        self.is_full = False
        """Whether the disk refused a write, and has not taken an attempt since."""
        self.on_room: Callable[[], object] = lambda: None
        """Called when the disk takes writes again: `Replicas` opens the logs that found no room."""
        self.on_change: Callable[[], object] = lambda: None
        """Called when the directory goes offline or comes back; `Lifecycle` sends a heartbeat at once."""
        self._timer: TimerHandle | None = None
        self._pause_s = PROBE_S
        self._full_until: float | None = None
        """When an attempt last found room."""
        self._has_failed = False
        self._is_closed = False

    @property
    def is_offline(self) -> bool:
        return self.is_full or self._has_failed

    def offline_dirs(self) -> tuple[uuid.UUID, ...]:
        """For the heartbeat."""
        return (self._directory_id,) if self.is_offline else ()

    def on_write_failed(self, error: OSError) -> None:
        if error.errno in _FULL:
            self.on_full(str(error.strerror))

    def on_full(self, reason: str) -> None:
        """The disk refused a write, or had no room for a log to be opened: see from time to time whether it has."""
        if self.is_full or self._is_closed:
            return
        log.error("%s takes no more appends: %s", self._directory.path, reason)
        was_offline = self.is_offline
        is_soon = self._full_until is not None and self._runtime.monotonic() < self._full_until + PROBE_S_MAX
        self._pause_s = min(2 * self._pause_s, PROBE_S_MAX) if is_soon else PROBE_S
        self.is_full = True
        self._timer = self._runtime.call_later(self._pause_s, self._probe)
        if not was_offline:
            self.on_change()

    def on_log_failed(self, where: str, reason: str) -> None:
        """A sync failed, or what a failed write left could not be cut: until a restart others had better lead."""
        if self._has_failed or self._is_closed:
            return
        log.error("%s is offline until a restart: %s: %s", self._directory.path, where, reason)
        was_offline, self._has_failed = self.is_offline, True
        if not was_offline:
            self.on_change()

    def _probe(self) -> None:
        path, disk = self._directory.path / PROBE_NAME, self._directory.disk
        self._runtime.in_thread(lambda: _write(disk, path), self._on_probed)

    def _on_probed(self, _: None, error: BaseException | None) -> None:
        if self._is_closed:
            return
        if error is not None:
            self._timer = self._runtime.call_later(self._pause_s, self._probe)
            return
        log.warning("%s takes appends again", self._directory.path)
        self.is_full = False
        self._full_until = self._runtime.monotonic()
        self.on_room()
        if not self.is_offline:
            self.on_change()

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()


def _write(disk: Disk, path: Path) -> None:
    try:
        disk.write_whole(path, bytes(PROBE_BYTES), sync=True)
    finally:
        disk.remove(path)
        # What a full disk took of it.
        disk.remove(path.with_name(path.name + ".tmp"))
