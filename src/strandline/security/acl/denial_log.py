"""The log of denials: a line for each client, operation and resource, and a count of the repeats.

A client that is denied tries again, often many times a second. The first denial is a line. Another line follows when
the same is denied again after `REPEAT_S`, with the number of denials between the two.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from strandline.security.acl.authorizer import Authorizer
from strandline.security.acl.kinds import Operation, ResourceType
from strandline.security.principal import Principal

REPEAT_S: Final = 60.0
DENIALS_KEPT_MAX: Final = 1_000
"""Denials whose repeats are counted. Beyond that the oldest is forgotten, and its next repeat is a line again."""

log = logging.getLogger("strandline.authorizer")

Denial = tuple[Principal, str, Operation, ResourceType, str]


class DenialLog:
    """Writes the denials of an authorizer to the log."""

    def __init__(self, authorizer: Authorizer, monotonic: Callable[[], float]) -> None:
        self._authorizer = authorizer
        self._monotonic = monotonic
        self._seen: dict[Denial, tuple[float, int]] = {}
        """When a denial was logged last, and how often it was repeated since."""

    def on_denied(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str, api: str
    ) -> None:
        """Log a denial, or count it."""
        denial = principal, host, operation, kind, name
        logged_at, repeats = self._seen.pop(denial, (None, 0))
        now = self._monotonic()
        if logged_at is not None and now - logged_at < REPEAT_S:
            self._seen[denial] = logged_at, repeats + 1
            return
        if len(self._seen) >= DENIALS_KEPT_MAX:
            del self._seen[next(iter(self._seen))]
        self._seen[denial] = now, 0
        self._log(denial, api, repeats)

    def _log(self, denial: Denial, api: str, repeats: int) -> None:
        principal, host, operation, kind, name = denial
        rule = self._authorizer.explain(principal, host, operation, kind, name).rule
        verdict = "would be denied" if self._authorizer.reports_only else "denied"
        log.warning(
            "%s from %s: %s on %s %r %s (%s): %s%s",
            principal,
            host,
            operation.name,
            kind.name,
            name,
            verdict,
            api,
            rule,
            f"; {repeats} times before" if repeats else "",
            extra={
                "fields": {
                    "principal": str(principal),
                    "host": host,
                    "operation": operation.name,
                    "resource_type": kind.name,
                    "resource_name": name,
                    "api": api,
                    "rule": rule,
                    "repeats": repeats,
                }
            },
        )
