"""A filesystem of its own for each node, so that one node's power can be cut and one node's disk filled."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

from tests.crash.filesystems import LoopFilesystem

SIZE_MB = 2048
_CHUNK_BYTES = 16 << 20


class NodeDisk(LoopFilesystem):
    @classmethod
    def create(cls, directory: Path) -> NodeDisk:
        directory.mkdir(parents=True)
        image, mount_point = directory / "disk.img", directory / "disk"
        with image.open("wb") as file:
            file.truncate(SIZE_MB << 20)
        # Nothing is kept back for root: a full disk shall be full.
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True, capture_output=True)
        mount_point.mkdir()
        disk = cls(image, mount_point)
        disk.mount()
        return disk

    @property
    def _filler(self) -> Path:
        return self.mount_point / "filler"

    def fill(self) -> None:
        """Take every free block."""
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT)
        try:
            end, size_bytes = 0, _CHUNK_BYTES
            while size_bytes >= 4096:
                try:
                    os.posix_fallocate(descriptor, end, size_bytes)
                    end += size_bytes
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size_bytes //= 2
        finally:
            os.close(descriptor)

    def empty(self) -> None:
        """Give back what `fill` took."""
        self._filler.unlink(missing_ok=True)

    def release(self) -> None:
        """Unmount, even if something still holds a file."""
        subprocess.run(["umount", "-l", str(self.mount_point)], capture_output=True, check=False)


def unmount_below(directory: Path) -> None:
    """Unmount whatever an earlier run left mounted below the directory."""
    for line in Path("/proc/mounts").read_text().splitlines():
        mount_point = line.split()[1].replace("\\040", " ")
        if Path(mount_point).is_relative_to(directory):
            subprocess.run(["umount", "-l", mount_point], capture_output=True, check=False)
