"""Whether the data directory can be written to: a disk that is full, or fails, takes no more appends.

While it cannot, heartbeats name the directory as offline, so that the controller lets others lead; what is here can
still be read. From time to time a little is written and synced to see whether there is room again. Then the directory
is no longer named, and its partitions catch up as followers do. A log whose sync failed stays offline until a restart,
and the directory with it: nobody knows what its files hold.
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
from strandline.runtime import Runtime, TimerHandle

PROBE_S: Final = 2.0
"""Between two attempts to write."""
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
        self.is_offline = False
        self.on_change: Callable[[], object] = lambda: None
        """Told that the directory is offline now, or no longer; `Lifecycle` sends a heartbeat at once."""
        self._timer: TimerHandle | None = None
        self._has_failed = False
        self._is_closed = False

    def offline_dirs(self) -> tuple[uuid.UUID, ...]:
        """For the heartbeat."""
        return (self._directory_id,) if self.is_offline else ()

    def on_write_failed(self, error: OSError) -> None:
        if self.is_offline or error.errno not in _FULL or self._is_closed:
            return
        log.error("%s takes no more appends: %s", self._directory.path, error.strerror)
        self.is_offline = True
        self._timer = self._runtime.call_later(PROBE_S, self._probe)
        self.on_change()

    def on_log_failed(self, where: str, reason: str) -> None:
        """A sync failed, or what a failed write left could not be cut: until a restart others had better lead."""
        if self._has_failed or self._is_closed:
            return
        log.error("%s is offline until a restart: %s: %s", self._directory.path, where, reason)
        self._has_failed = True
        if not self.is_offline:
            self.is_offline = True
            self.on_change()

    def _probe(self) -> None:
        path, disk = self._directory.path / PROBE_NAME, self._directory.disk
        self._runtime.in_thread(lambda: _write(disk, path), self._on_probed)

    def _on_probed(self, _: None, error: BaseException | None) -> None:
        if self._is_closed:
            return
        if error is not None:
            self._timer = self._runtime.call_later(PROBE_S, self._probe)
            return
        log.warning("%s takes appends again", self._directory.path)
        if not self._has_failed:
            self.is_offline = False
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
