"""Named points at which a test kills, fails or halts a rebuild.

`STRANDLINE_FAULT=point:action:file`, more of them separated by commas. The action is done by the first process that
comes to the point and can create the file, so once, and again when a test removes the file. Without the variable a
point is one look-up.

    actions   kill (SIGKILL of the process), fail (an exception), pause (until a file has the name with .go behind it)
"""

from __future__ import annotations

import os
import signal
import time
from typing import Final

VARIABLE: Final = "STRANDLINE_FAULT"
POINTS: Final = (
    "rebuild-begun",
    "rebuild-topics-made",
    "rebuild-caught-up",
    "switch-letting-go",
    "switch-let-go",
    "switch-drained",
    "switch-ends-noted",
    "switch-copy-written",
    "switch-copied",
    "switch-copy-named",
    "switch-differences-written",
    "switch-committed",
    "switch-settled",
    "switch-moved",
    "switch-made",
    "return-begun",
    "remove-begun",
    "remove-half",
    "remove-done",
)
LOOK_EVERY_S: Final = 0.01


class PlantedFault(Exception):
    """What a test asked for."""


def fault_point(name: str) -> None:
    planned = os.environ.get(VARIABLE)
    if planned:
        assert name in POINTS, name
        _act(name, planned)


def _act(name: str, planned: str) -> None:
    for each in planned.split(","):
        point, action, path = each.split(":", 2)
        if point != name or not _is_first(path):
            continue
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "pause":
            while not os.path.exists(f"{path}.go"):
                time.sleep(LOOK_EVERY_S)
            return
        raise PlantedFault(f"the fault that was asked for at {name}")


def _is_first(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
