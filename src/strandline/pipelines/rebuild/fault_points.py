"""Named points at which a test kills, fails or halts a rebuild.

`STRANDLINE_FAULT=point:action:file`, more of them separated by commas; actions and files are those of the sink's points
(`spark.sink.fault_points`). The variable is read at each point, so that a test may set it in its own process.
"""

from __future__ import annotations

import os
from typing import Final

from strandline.spark.sink.fault_points import PlantedFault, act

__all__ = ["POINTS", "VARIABLE", "PlantedFault", "fault_point"]

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
    "turn-decided",
    "remove-begun",
    "remove-half",
    "remove-done",
)


def fault_point(name: str) -> None:
    planned = os.environ.get(VARIABLE)
    if planned:
        assert name in POINTS, name
        for each in planned.split(","):
            point, action, path = each.split(":", 2)
            if point == name:
                act(name, action, path)
