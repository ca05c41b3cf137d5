"""Every change that was asked for: who, from where, what, the command that does the same, and how it ended.

The newest are in memory for the page Audit. `console.audit.file` keeps all, a line of JSON each. A cluster with an
audit log of its own has them, too, because the console acts as the visitor.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

log = logging.getLogger("strandline.console")

ENTRIES_MAX: Final = 1000


class AuditEntry(NamedTuple):
    """One change, login or refusal."""

    at_ms: int
    user: str
    address: str
    cluster: str
    action: str
    target: str
    command: str
    outcome: str
    """done, denied, failed, or refused."""
    detail: str = ""


class AuditTrail:
    """The entries of this process. Used by one event loop."""

    def __init__(self, file: Path | None, now_ms: Callable[[], int]) -> None:
        self._file = file
        self._now_ms = now_ms
        self.entries: deque[AuditEntry] = deque(maxlen=ENTRIES_MAX)

    def note(
        self,
        *,
        user: str,
        address: str,
        cluster: str,
        action: str,
        outcome: str,
        target: str = "",
        command: str = "",
        detail: str = "",
    ) -> None:
        """Keep an entry. An action is noted before it is done and after: a process that dies leaves the first."""
        entry = AuditEntry(self._now_ms(), user, address, cluster, action, target, command, outcome, detail)
        self.entries.append(entry)
        line = json.dumps(entry._asdict(), ensure_ascii=True)
        log.info("audit %s", line)
        if self._file is not None:
            # Opened each time, so that a file that was rotated away is not written to.
            descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line.encode() + b"\n")
            finally:
                os.close(descriptor)
