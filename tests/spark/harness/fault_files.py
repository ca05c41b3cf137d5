"""Arms the sink's named points, one at a time, by files that the processes of a driver look for."""

from __future__ import annotations

import os
from pathlib import Path

from strandline.runtime.fault_points import SINK_POINTS, VARIABLE


class FaultFiles:
    """Of all processes that come to an armed point one takes the fault, and does it once."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory

    @property
    def environ(self) -> dict[str, str]:
        return {VARIABLE: ",".join(f"{point}:told:{self.directory / point}" for point in SINK_POINTS)}

    def arm(self, point: str, action: str) -> None:
        self.disarm(point)
        prepared = self.directory / f"{point}.prepared"
        prepared.write_text(action)
        os.rename(prepared, self.directory / point)

    def disarm(self, point: str) -> None:
        for suffix in ("", ".done", ".go"):
            (self.directory / f"{point}{suffix}").unlink(missing_ok=True)

    def was_taken(self, point: str) -> bool:
        return (self.directory / f"{point}.done").exists()

    def let_go(self, point: str) -> None:
        """Who paused there goes on, also if it is a process that nobody waits for any more."""
        (self.directory / f"{point}.go").touch()
