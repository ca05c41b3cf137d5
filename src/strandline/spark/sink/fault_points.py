"""Named points at which a test kills or fails the sink.

`STRANDLINE_SINK_FAULT=point:action:file`, more of them separated by commas, in the environment of the driver, from
which Spark's workers have it. The action is done by the first process that comes to the point and can create the file,
so once for all processes, and again when a test removes the file. Without the variable a point is one look-up.

    where     points, in the order in which they are reached
    task      before-produce  after-produce  before-flush  after-flush  before-return  after-return
    driver    before-commit  commit-sent  after-commit  before-abort  after-abort
    actions   kill (SIGKILL of the process), fail (an exception), pause (until a file has the name with .go behind it),
              told (the file is not there; who finds it adds .done to its name and does what stands in it)
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

LOOK_EVERY_S: Final = 0.005

VARIABLE: Final = "STRANDLINE_SINK_FAULT"
POINTS: Final = (
    "before-produce",
    "after-produce",
    "before-flush",
    "after-flush",
    "before-return",
    "after-return",
    "before-commit",
    "commit-sent",
    "after-commit",
    "before-abort",
    "after-abort",
)


class PlantedFault(Exception):
    """What a test asked for."""


def _plan(text: str) -> dict[str, tuple[str, str]]:
    plan = {}
    for each in filter(None, text.split(",")):
        point, action, path = each.split(":", 2)
        if point not in POINTS or action not in ("kill", "fail", "pause", "told"):
            raise ValueError(f"{VARIABLE} names no fault: {each!r}")
        plan[point] = (action, path)
    return plan


_PLANNED = _plan(os.environ.get(VARIABLE, ""))


def fault_point(name: str) -> None:
    if _PLANNED and name in _PLANNED:
        act(name, *_PLANNED[name])


def act(name: str, action: str, path: str) -> None:
    """Do what is planned for the point `name`, unless another process was there first."""
    try:
        if action == "told":
            os.rename(path, f"{path}.done")
            action = Path(f"{path}.done").read_text()
        else:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except (FileExistsError, FileNotFoundError):
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "pause":
        while not os.path.exists(f"{path}.go"):
            time.sleep(LOOK_EVERY_S)
        return
    raise PlantedFault(f"the fault that was asked for at {name}")
