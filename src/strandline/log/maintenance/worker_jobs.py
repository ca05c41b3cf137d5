"""What a worker can do with the files of logs, by name. Jobs and their reports are plain JSON.

A job only reads sealed segments and writes files of names that count for nothing; the owner of the log decides what
becomes of them. Recovery alone changes a log, which no broker has open then. A job may be killed at any moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from strandline.log.disk import Disk

CLEAN: Final = "clean"
CLEAN_STEP: Final = "clean-step"
SCRUB: Final = "scrub"
RECOVER: Final = "recover"

Report = Callable[[dict[str, Any]], None]


def load(kind: str) -> None:
    """Import what a job of that kind needs."""
    if kind == CLEAN:
        import strandline.log.cleaning.clean
    elif kind == CLEAN_STEP:
        import strandline.log.cleaning.stepwise
    elif kind == SCRUB:
        import strandline.log.maintenance.scrubbing
    elif kind == RECOVER:
        import strandline.log.maintenance.recovery_job  # noqa: F401


def run(
    kind: str,
    params: dict[str, Any],
    *,
    disk: Disk,
    report: Report,
    is_stopped: Callable[[], bool],
    sleep: Callable[[float], None],
) -> dict[str, Any]:
    """Run a job of that kind, and return its result; `report` is called with each step that is done."""
    if kind == CLEAN:
        from strandline.log.cleaning.clean import clean
        from strandline.log.cleaning.job import CleaningJob

        job = CleaningJob.from_dict(params)
        return clean(
            job, disk, on_group=lambda group: report(group.to_dict()), is_stopped=is_stopped, sleep=sleep
        ).to_dict()
    if kind == CLEAN_STEP:
        from strandline.log.cleaning.stepwise import step

        return step(params, disk=disk, is_stopped=is_stopped, sleep=sleep)
    if kind == SCRUB:
        from strandline.log.maintenance.scrubbing import scrub

        return scrub(params, disk=disk, report=report, is_stopped=is_stopped, sleep=sleep)
    if kind == RECOVER:
        from strandline.log.maintenance.recovery_job import recover

        return recover(params, disk=disk)
    raise ValueError(f"a worker knows no job {kind!r}")
