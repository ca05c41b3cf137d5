"""Which file system a path is on, and whether another machine has it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_REMOTE: Final = re.compile(
    r"nfs\d?|cifs|smb\w*|ceph|afs|lustre|gpfs|ocfs2|9p|glusterfs|fuse\.(sshfs|gluster\w*|s3fs|rclone)"
)


def network_file_system(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """Return the type of a path's file system if it is one of the network; None also where mounts are not listed."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    found = ("", "")
    for line in lines:
        mounted, _, kind = line.partition(" - ")
        place = re.sub(r"\\([0-7]{3})", lambda each: chr(int(each[1], 8)), mounted.split(" ")[4])
        # Of two mounts at one place the later hides the earlier.
        if _is_below(str(path), place) and len(place) >= len(found[0]):
            found = place, kind.split(" ")[0]
    return found[1] if _REMOTE.fullmatch(found[1]) else None


def _is_below(path: str, place: str) -> bool:
    return place == os.sep or path == place or path.startswith(place.rstrip(os.sep) + os.sep)
