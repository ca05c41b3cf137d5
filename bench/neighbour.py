"""A neighbour on the machine: one process that keeps a core busy while a scenario measures beside it.

It competes as any process of the same user does: it has no core of its own, and no other priority than the brokers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TURNS = 100_000
"""Some milliseconds of spinning between two looks for the bench."""


@contextmanager
def busy_core() -> Iterator[int]:
    """Keep one core busy during the block; yield the id of the process that does it."""
    process = subprocess.Popen([sys.executable, "-SP", __file__, str(os.getpid())])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def spin(parent: int) -> None:
    """Spin until the bench ends the process, or is gone itself: a kill -9 of the bench must leave no load behind."""
    while os.getppid() == parent:
        for _ in range(TURNS):
            pass


if __name__ == "__main__":
    spin(int(sys.argv[1]))
