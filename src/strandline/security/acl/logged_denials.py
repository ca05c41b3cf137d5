"""The denials of a node, in its log: a line for each client, operation and resource, and a count of the repeats.

A client that is denied tries again, often many times a second. The first denial is a line. Another line follows when
the same is denied again after `REPEAT_S`, with the number of denials between the two.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from strandline.security.acl.authorizer import Authorizer
from strandline.security.acl.denial_log import LOGGER, Denial, denial_line
from strandline.security.acl.kinds import Operation, ResourceType
from strandline.security.principal import Principal

REPEAT_S: Final = 60.0
DENIALS_KEPT_MAX: Final = 1_000
"""Denials whose repeats are counted. Beyond that the oldest is forgotten, and its next repeat is a line again."""

log = logging.getLogger(LOGGER)


class LoggedDenials:
    """Writes the denials of an authorizer to the log."""

    def __init__(self, authorizer: Authorizer, monotonic: Callable[[], float]) -> None:
        self._authorizer = authorizer
        self._monotonic = monotonic
        self._logged: dict[Denial, tuple[float, int]] = {}
        """When a denial was logged last, and how often it was repeated since."""

    def on_denied(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str, api: str
    ) -> None:
        """Log a denial, or count it."""
        denial = Denial(str(principal), host, operation, kind, name)
        logged_at, repeats = self._logged.pop(denial, (None, 0))
        now = self._monotonic()
        if logged_at is not None and now - logged_at < REPEAT_S:
            self._logged[denial] = logged_at, repeats + 1
            return
        if len(self._logged) >= DENIALS_KEPT_MAX:
            del self._logged[next(iter(self._logged))]
        self._logged[denial] = now, 0
        rule = self._authorizer.explain(principal, host, operation, kind, name).rule
        line = denial_line(denial, is_enforced=not self._authorizer.reports_only)
        repeated = f", {repeats} more since the last line" if repeats else ""
        facts = {**denial._asdict(), "operation": operation.name, "resource_type": kind.name}
        # `name` would be the logger's in a line of JSON.
        facts["resource_name"] = facts.pop("name")
        log.warning("%s in %s: %s%s", line, api, rule, repeated, extra={"fields": {**facts, "api": api, "rule": rule}})
