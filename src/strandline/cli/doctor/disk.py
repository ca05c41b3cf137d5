"""What `doctor` looks at on a disk: room, kind of filesystem, how it is mounted, and what a flush takes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from strandline.cli.common.plain_words import size
from strandline.cli.doctor.findings import Finding, note, ok, problem, warning

PROBES = 50
PROBE_TIME_S = 1.0
PROBE_BYTES = 4096
FLUSH_SLOW_MS = 20.0
FLUSH_BAD_MS = 100.0
# No disk that keeps data over a power cut is faster; a cache that loses it is.
FLUSH_TOO_GOOD_MS = 0.005
FREE_WANTED = 0.10
FREE_NEEDED = 0.03

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "fuse.sshfs", "fuse.glusterfs"}
_KNOWN_GOOD = {"ext4", "xfs", "ext3", "apfs"}
_COPY_ON_WRITE = {"btrfs", "zfs", "bcachefs"}


class Mount(NamedTuple):
    point: str
    kind: str
    options: tuple[str, ...]


def disk_findings(directory: Path) -> Iterator[Finding]:
    existing = directory
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if existing != directory:
        yield note("data", f"{directory} does not exist yet; looking at {existing}")
    yield from _room(existing)
    mount = mount_of(existing)
    if mount is not None:
        yield from mount_findings(mount)
    if not os.access(existing, os.W_OK):
        yield problem("data", f"{existing} cannot be written to", "give it to the user that runs the node")
        return
    yield from flush_findings(measure_flushes(existing))


def room_findings(free: int, total: int, where: str) -> Iterator[Finding]:
    text = f"{size(free)} of {size(total)} free {where}"
    advice = "add room, delete topics, or shorten retention.ms: a full disk takes its partitions offline"
    share = free / total if total else 1.0
    if share < FREE_NEEDED:
        yield problem("disk-room", text, advice)
    elif share < FREE_WANTED:
        yield warning("disk-room", text, advice)
    else:
        yield ok("disk-room", text)


def _room(directory: Path) -> Iterator[Finding]:
    usage = os.statvfs(directory)
    yield from room_findings(usage.f_bavail * usage.f_frsize, usage.f_blocks * usage.f_frsize, f"on {directory}")
    if usage.f_files and usage.f_favail / usage.f_files < FREE_NEEDED:
        yield problem("disk-files", f"only {usage.f_favail:,} more files fit on {directory}", "remove small files")


def mount_of(directory: Path, mounts: Path = Path("/proc/self/mounts")) -> Mount | None:
    """Return the filesystem of `directory`: of all mount points above it the deepest, and of those the last."""
    if not mounts.exists():
        return None
    resolved = str(directory.resolve())
    found: Mount | None = None
    for line in mounts.read_text().splitlines():
        _, point, kind, options, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        inside = resolved == point or resolved.startswith(point.rstrip("/") + "/")
        if inside and (found is None or len(point) >= len(found.point)):
            found = Mount(point, kind, tuple(options.split(",")))
    return found


def mount_findings(mount: Mount) -> Iterator[Finding]:
    text = f"{mount.point} is {mount.kind}"
    if mount.kind in ("tmpfs", "ramfs"):
        yield problem("filesystem", f"{text}: it is gone at the next boot", "keep the data on a disk")
    elif mount.kind in _NETWORK:
        yield problem(
            "filesystem", f"{text}: locks and flushes over a network are not to be trusted", "use a local disk"
        )
    elif mount.kind in ("overlay", "aufs"):
        yield warning("filesystem", f"{text}: a container's own layer goes with the container", "mount a volume for it")
    elif mount.kind in _COPY_ON_WRITE:
        yield note("filesystem", f"{text}: it copies on write, so appends cost more", "ext4 or xfs are what we measure")
    elif mount.kind in _KNOWN_GOOD:
        yield ok("filesystem", text)
    else:
        yield note("filesystem", f"{text}, of which we know nothing", "ext4 or xfs are what we measure")
    if "ro" in mount.options:
        yield problem("mount", f"{mount.point} is mounted read-only", "a disk error does that: look at `dmesg`")
    unsafe = {"nobarrier", "barrier=0"} & set(mount.options)
    if unsafe:
        yield problem(
            "mount",
            f"{mount.point} is mounted with {unsafe.pop()}: a power cut takes what was flushed",
            "mount it without",
        )


def measure_flushes(directory: Path) -> list[float]:
    """Milliseconds of `fdatasync` behind small appends, as a log makes them; bounded in number and time."""
    path = directory / f".strandline-doctor-{os.getpid()}"
    taken: list[float] = []
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        flush = getattr(os, "fdatasync", os.fsync)
        until = time.monotonic() + PROBE_TIME_S
        while len(taken) < PROBES and (not taken or time.monotonic() < until):
            os.write(descriptor, b"\xa5" * PROBE_BYTES)
            began = time.perf_counter()
            flush(descriptor)
            taken.append((time.perf_counter() - began) * 1000)
    finally:
        os.close(descriptor)
        path.unlink()
    return taken


def flush_findings(taken: list[float]) -> Iterator[Finding]:
    ordered = sorted(taken)
    median, worst = ordered[len(ordered) // 2], ordered[-1]
    text = f"a flush takes {_ms(median)} ({_ms(worst)} at worst of {len(ordered)})"
    if median > FLUSH_BAD_MS:
        advice = "use another disk; acks wait for it unless flush.mode=async, which a power cut makes pay for"
        yield problem("flush", text, advice)
    elif median > FLUSH_SLOW_MS:
        yield warning("flush", text, "an SSD, or one with power-loss protection, answers in a millisecond or less")
    elif median < FLUSH_TOO_GOOD_MS:
        yield note(
            "flush", f"{text}: too fast for a disk, so nothing may be kept", "is it memory, or a volatile cache?"
        )
    else:
        yield ok("flush", text)


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.3g} ms"
