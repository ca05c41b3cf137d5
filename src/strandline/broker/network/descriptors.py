"""How the descriptors of the process are shared out between the files of logs and the connections of clients.

Connections must not take the last descriptor: then no log could open a segment, and clients who did nothing wrong would
be told of a disk that fails. So files and the rest of the process have their share set aside before clients connect.
"""

from __future__ import annotations

import resource
from typing import Final, NamedTuple

SET_ASIDE: Final = 64
"""For the listener, the loop, the lock, indexes and checkpoints that are open for a moment, and a query or two."""


class DescriptorShare(NamedTuple):
    open_files_max: int
    connections_max: int


def share_out(limit: int, *, open_files_max: int) -> DescriptorShare:
    """The files that are wished for, at most half of `limit` descriptors, and connections in the rest."""
    room = max(32, limit - SET_ASIDE)
    files = min(open_files_max, room // 2)
    return DescriptorShare(files, room - files)


def descriptors_max() -> int:
    """What the operating system allows this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 31 if soft == resource.RLIM_INFINITY else soft
