"""Named points at which a test kills, fails or pauses a process.

`STRANDLINE_FAULT=point:action:file`, several separated by commas, in the environment. Spark's workers inherit it from
the driver. The first process that reaches the point and can create the file performs the action, so it happens once,
and again after a test removes the file. Without the variable a point costs one look-up.

    action    effect
    kill      SIGKILL of the process
    fail      raises `PlantedFault`
    pause     waits until a file exists that has the same name with `.go` appended
    told      the file names one of the actions above; the process that finds it appends `.done` to its name
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

LOOK_EVERY_S: Final = 0.005

VARIABLE: Final = "STRANDLINE_FAULT"
ACTIONS: Final = ("kill", "fail", "pause", "told")
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
"""In the replacement of log segments, in the order in which they are reached."""
TIER_POINTS: Final = (
    "tier-compaction-learned",
    "tier-compaction-cleaned",
    "tier-swap-begun",
    "tier-swap-uploaded",
    "tier-swap-done",
    "tier-deletion-begun",
    "tier-objects-deleted",
    "tier-compaction-done",
)
"""In the compaction of a tiered topic's segments in the object store, and in the deletion of those it replaced."""
SINK_POINTS: Final = (
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
"""In the Spark sink: up to `after-return` in each task, then in the driver."""
REBUILD_POINTS: Final = (
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
"""In the rebuild of a pipeline, the switch to the new version and the removal of the old one."""
SQL_SINK_POINTS: Final = (
    "sql-sink-begun",
    "sql-sink-rows-written",
    "sql-sink-offsets-stored",
    "sql-sink-committed",
)
"""In the transaction in which a SQL sink writes a batch, and behind it."""
SQL_SWAP_POINTS: Final = (
    "sql-swap-old-renamed",
    "sql-swap-new-renamed",
    "sql-swap-offsets-moved",
    "sql-swap-committed",
)
"""In the transaction in which a SQL sink puts fresh tables in the place of the old ones, and behind it."""
FILE_SWAP_POINTS: Final = ("file-swap-kept", "file-swap-decided", "file-swap-replaced")
"""Where a file sink puts a fresh file in the place of an old one."""
CONNECT_POINTS: Final = (
    "connect-before-commit",
    "connect-after-commit",
    "connect-before-write",
    "connect-before-offset-commit",
)
"""In the tasks of connectors: the first two of sources, the others of sinks."""
CDC_POINTS: Final = (
    "cdc-slot-created",
    "cdc-snapshot-page",
    "cdc-snapshot-end",
    "cdc-stream-batch",
    "cdc-before-confirm",
    "mariadb-cdc-snapshot",
)
"""In sources that capture changes of a database."""
OUTBOX_POINTS: Final = ("outbox-taken-over", "outbox-read", "outbox-sent", "outbox-committed", "outbox-settled")
"""In the relay of an outbox, in the order in which they are reached."""
SQLITE_POINTS: Final = (
    "sqlite-snapshot-part",
    "sqlite-part-written",
    "sqlite-before-commit",
    "sqlite-after-commit",
    "sqlite-before-checkpoint",
    "sqlite-after-checkpoint",
)
"""In the shipping of an SQLite file."""
_POINTS: Final = frozenset(
    (
        *SWAP_POINTS,
        *TIER_POINTS,
        *SINK_POINTS,
        *REBUILD_POINTS,
        *SQL_SINK_POINTS,
        *SQL_SWAP_POINTS,
        *FILE_SWAP_POINTS,
        *CONNECT_POINTS,
        *CDC_POINTS,
        *OUTBOX_POINTS,
        *SQLITE_POINTS,
    )
)


class PlantedFault(Exception):
    """The failure that a test asked for."""


def fault_point(name: str) -> None:
    """Perform the action that the environment plans for this point, if any."""
    planned = os.environ.get(VARIABLE)
    if planned:
        assert name in _POINTS, name
        for each in planned.split(","):
            point, action, path = each.split(":", 2)
            if point not in _POINTS or action not in ACTIONS:
                raise ValueError(f"{VARIABLE} names no fault: {each!r}")
            if point == name:
                act(name, action, path)


def act(name: str, action: str, path: str) -> None:
    """Perform one action, unless another process has taken it."""
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
    raise PlantedFault(f"planted fault at {name}")
