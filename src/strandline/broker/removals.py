"""Directories of deleted partitions are removed one after the other, in one thread.

To remove a tree is some Python between many system calls. Done by several threads at once it takes the interpreter
from the loop again and again, and a thousand deleted topics would be a stall. What is left at a stop, or by a crash,
bears the name of something that is being deleted, and the next start removes it.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from pathlib import Path
from typing import Final

from strandline.log.disk import Disk
from strandline.runtime import Runtime

TREES_PER_JOB: Final = 8
"""Directories removed in one trip to the thread."""

log = logging.getLogger("strandline.node")


class Removals:
    def __init__(self, runtime: Runtime, disk: Disk) -> None:
        self._runtime = runtime
        self._disk = disk
        self._paths: deque[Path] = deque()
        self._is_removing = False

    def remove(self, path: Path) -> None:
        self._paths.append(path)
        if not self._is_removing:
            self._start()

    def _start(self) -> None:
        paths = [self._paths.popleft() for _ in range(min(TREES_PER_JOB, len(self._paths)))]
        self._is_removing = bool(paths)
        if paths:
            self._runtime.in_thread(partial(_remove_all, self._disk, paths), self._on_removed)

    def _on_removed(self, left: list[tuple[Path, OSError]] | None, error: BaseException | None) -> None:
        assert left is not None, f"removing cannot fail as a whole: {error}"
        for path, reason in left:
            log.error("%s is left behind: %s", path, reason)
        self._start()


def _remove_all(disk: Disk, paths: list[Path]) -> list[tuple[Path, OSError]]:
    """In a thread: remove each; those that could not be, with the reason."""
    left = []
    for path in paths:
        try:
            disk.remove_tree(path)
        except OSError as error:
            left.append((path, error))
    return left
