"""Filesystems that a test may cut the power of or fill up; each is mounted for the length of a `with` block."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

# _IOR('X', 125, __u32): "shut the filesystem down"; with flag 2 nothing is written any more, not even the journal.
_EXT4_IOC_SHUTDOWN = 0x8004587D
_GOING_DOWN_WITHOUT_LOG_FLUSH = 2


def why_not_mountable(*, loop: bool) -> str:
    """Empty if this machine lets us mount; else the reason to skip, in words."""
    if os.geteuid() != 0:
        return "mounting needs root"
    if loop and not Path("/dev/loop-control").exists():
        return "there are no loop devices"
    missing = [tool for tool in ("mount", "umount", "mkfs.ext4" if loop else "mount") if shutil.which(tool) is None]
    if missing:
        return f"missing {', '.join(missing)}"
    return ""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


class LoopFilesystem:
    """An ext4 filesystem in a file, whose power can be cut."""

    def __init__(self, image: Path, mount_point: Path) -> None:
        self.image = image
        self.mount_point = mount_point

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self.image), str(self.mount_point))

    def unmount(self) -> None:
        _run("umount", str(self.mount_point))

    def cut_power(self) -> None:
        """From here on nothing reaches the image: what was not flushed is lost, and every later write fails."""
        directory = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, _EXT4_IOC_SHUTDOWN, struct.pack("I", _GOING_DOWN_WITHOUT_LOG_FLUSH))
        finally:
            os.close(directory)

    def power_on(self) -> None:
        """What the machine finds after the cut: a fresh mount, with the journal replayed and the page cache gone."""
        self.unmount()
        self.mount()


@contextlib.contextmanager
def loop_filesystem(directory: Path, *, size_mb: int = 256) -> Iterator[LoopFilesystem]:
    image = directory / "disk.img"
    with image.open("wb") as file:
        file.truncate(size_mb << 20)
    _run("mkfs.ext4", "-q", "-F", str(image))
    mount_point = directory / "disk"
    mount_point.mkdir()
    filesystem = LoopFilesystem(image, mount_point)
    filesystem.mount()
    try:
        yield filesystem
    finally:
        # Lazily, so that a test that failed with open files leaves no mount behind.
        _run("umount", "-l", str(mount_point))


@contextlib.contextmanager
def small_tmpfs(directory: Path, *, size_mb: int) -> Iterator[Path]:
    mount_point = directory / "small"
    mount_point.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(mount_point))
    try:
        yield mount_point
    finally:
        _run("umount", "-l", str(mount_point))
