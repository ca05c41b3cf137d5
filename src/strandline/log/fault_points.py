"""Named points at which a test kills or fails a process that changes the files of a log.

`STRANDLINE_LOG_FAULT=point:action:file`, more of them separated by commas. The action is done by the first process that
comes to the point and can create the file, so once, and again when a test removes the file. Without the variable a
point is one look-up.

    where     points, in the order in which they are reached
    swap      swap-begun  swap-half-named  swap-named  swap-synced  swap-replacing  swap-half-gone  swap-gone
              swap-half-done  swap-done  swap-safe
    actions   kill (SIGKILL of the process), fail (an OSError)
"""

from __future__ import annotations

import errno
import os
import signal
from typing import Final

VARIABLE: Final = "STRANDLINE_LOG_FAULT"
SWAP_POINTS: Final = (
    "swap-begun",
    "swap-half-named",
    "swap-named",
    "swap-synced",
    "swap-replacing",
    "swap-half-gone",
    "swap-gone",
    "swap-half-done",
    "swap-done",
    "swap-safe",
)
_PLANNED: Final = [each.split(":", 2) for each in filter(None, os.environ.get(VARIABLE, "").split(","))]


def fault_point(name: str) -> None:
    if _PLANNED:
        for point, action, path in _PLANNED:
            if point == name:
                _act(name, action, path)


def _act(name: str, action: str, path: str) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise OSError(errno.EIO, f"the fault that was asked for at {name}")
