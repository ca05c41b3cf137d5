"""What is read from a running process: CPU time, memory; and what is computed from samples."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path

MB = 1_000_000

_PROC = Path("/proc")


def process_family(pid: int) -> list[int]:
    """The process and all its living descendants: a broker may keep worker processes, and they count."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # It ended while we looked; it is no child of a broker that still runs.
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    family = [pid]
    for member in family:
        family.extend(children.get(member, []))
    return family


def cpu_seconds(pid: int) -> float:
    """User plus system time of the process and its descendants.

    This is the sum that /proc/PID/stat shows as utime + stime, read through the process's CPU clock, because stat
    rounds each of the two down to 10 ms.
    """
    return sum(time.clock_gettime_ns((~member << 3) | 2) for member in process_family(pid)) / 1e9


def resident_mb(pid: int) -> float:
    """Resident memory (RSS) of the process and its descendants, in MB."""
    return _rollup(pid, "Rss")


def proportional_mb(pid: int) -> float:
    """Proportional memory (PSS): pages that processes share are split between them, in MB."""
    return _rollup(pid, "Pss")


def _rollup(pid: int, field: str) -> float:
    total_kib = 0
    for member in process_family(pid):
        for line in (_PROC / str(member) / "smaps_rollup").read_text().splitlines():
            if line.startswith(f"{field}:"):
                total_kib += int(line.split()[1])
    return total_kib * 1024 / MB


def open_files(pid: int) -> int:
    return len(list((_PROC / str(pid) / "fd").iterdir()))


def percentile(samples: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: a value that was really measured."""
    if not samples:
        return math.nan
    ordered = sorted(samples)
    rank = math.ceil(percent / 100 * len(ordered))
    return ordered[max(rank, 1) - 1]


def median(samples: Sequence[float]) -> float:
    return percentile(samples, 50) if len(samples) % 2 else _middle_mean(samples)


def _middle_mean(samples: Sequence[float]) -> float:
    if not samples:
        return math.nan
    ordered = sorted(samples)
    half = len(ordered) // 2
    return (ordered[half - 1] + ordered[half]) / 2


def evict_from_page_cache(directory: Path) -> int:
    """Write the directory's files out and drop their clean pages; return the bytes asked for.

    Dirty pages cannot be dropped, so each file is synced first. Pages that a process has mapped stay.
    """
    evicted_bytes = 0
    for path in directory.rglob("*"):
        if path.suffix == ".log" and path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                evicted_bytes += os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
    return evicted_bytes


def resident_fraction(directory: Path) -> float:
    """The share of the directory's log bytes that the page cache holds.

    Asked by mincore, because reading with RWF_NOWAIT starts a read-ahead on newer kernels and so changes the answer.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    pages = resident = 0
    for path in directory.rglob("*.log"):
        size_bytes = path.stat().st_size
        if size_bytes == 0:
            continue
        with path.open("rb") as file:
            address = libc.mmap(None, size_bytes, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        vector = ctypes.create_string_buffer(-(-size_bytes // mmap.PAGESIZE))
        if libc.mincore(address, size_bytes, vector) != 0:
            raise OSError(ctypes.get_errno(), "mincore", str(path))
        libc.munmap(address, size_bytes)
        pages += len(vector.raw)
        resident += sum(byte & 1 for byte in vector.raw)
    return resident / pages if pages else math.nan
