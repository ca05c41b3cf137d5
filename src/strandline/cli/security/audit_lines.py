"""Lines of the audit topic: each once, and those that are wanted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from strandline.cli.records.record import ReadRecord

AUDIT_TOPIC: Final = "__strandline_audit"
_REFUSED: Final = ("denied", "reported")


class AuditLines:
    """Reads lines out of records. A line that a node wrote twice comes once."""

    def __init__(self, *, user: str | None, denied: bool, anchors: bool = False) -> None:
        self._principal = None if user is None else user if ":" in user else f"User:{user}"
        self._denied = denied
        self._anchors = anchors
        self._newest: dict[str, int] = {}
        """By node and start: the number of the last line."""

    def wanted(self, records: Sequence[ReadRecord]) -> Iterator[dict[str, Any]]:
        """Yield the lines that are wanted."""
        for record in records:
            try:
                line = json.loads(record.value or b"")
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict) and not self._is_repeated(str(line.get("id", ""))) and self._is_wanted(line):
                yield line

    def _is_repeated(self, line_id: str) -> bool:
        start, _, number = line_id.rpartition("-")
        if not number.isdecimal():
            return False
        if int(number) <= self._newest.get(start, -1):
            return True
        self._newest[start] = int(number)
        return False

    def _is_wanted(self, line: dict[str, Any]) -> bool:
        if line.get("type") == "anchor" and not self._anchors:
            # `topic verify` reads them; here they would hide the rest.
            return False
        if self._principal is not None and line.get("principal") != self._principal:
            return False
        is_failed_login = line.get("type") == "login" and line.get("outcome") == "failure"
        return not self._denied or line.get("outcome") in _REFUSED or is_failed_login
