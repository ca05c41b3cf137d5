"""Names of tasks: TOPIC-PARTITION@OFFSET (pure)."""

from __future__ import annotations

import re
from typing import Final

from strandline.cli.common.failures import UsageFailed
from strandline.cli.group.state import Place

_TASK: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,9})@(?P<offset>\d{1,18})")


def parse_task(text: str) -> tuple[Place, int]:
    """Return the partition and the offset that a task's name says."""
    found = _TASK.fullmatch(text)
    if found is None:
        raise UsageFailed(f"{text!r} names no task", hint="say TOPIC-PARTITION@OFFSET, for example mails-0@4711")
    return (found["topic"], int(found["partition"])), int(found["offset"])


def task_name(place: Place, offset: int) -> str:
    return f"{place[0]}-{place[1]}@{offset}"
