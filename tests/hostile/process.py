"""What a process uses, as the kernel tells it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

MIB = 1 << 20
WAIT_S_MAX = 60.0
SETTLED_S = 0.25


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_resident_bytes(pid: int) -> int:
    """The most that was resident since the start, or since `forget_peak`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no VmHWM")


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def settled_descriptors(pid: int) -> int:
    """Descriptors, when their number has stopped changing: peers of an earlier test may still be on their way out."""
    count, since = descriptors(pid), time.monotonic()
    deadline = since + WAIT_S_MAX
    while time.monotonic() - since < SETTLED_S:
        time.sleep(0.01)
        if (now := descriptors(pid)) != count:
            assert time.monotonic() < deadline, f"descriptors never stop changing: {count}, then {now}"
            count, since = now, time.monotonic()
    return count


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that the other process does in its own time."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_S_MAX:.0f} s"
        os.sched_yield()
        time.sleep(0.01)


def standard_error(pid: int) -> str:
    """All that a process wrote to a standard error that is a file."""
    return Path(f"/proc/{pid}/fd/2").read_text(errors="replace")
