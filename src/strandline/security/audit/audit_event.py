"""An event of the audit topic, and its line: one JSON object in the value of a record.

    {"id": "1-1763417447000-17", "node": 1, "time_ms": 1763417450123, "type": "change", "outcome": "success",
     "principal": "User:admin", "host": "10.0.0.7", "listener": "SASL_SSL", "client_id": "adminclient-1",
     "api": "CreateTopics", "resource_type": "TOPIC", "resource": "orders", "details": {"partitions": 3}, "count": 1}

Fields without a value are left out. `docs/security.md` lists all of them. The key of the record is the id.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

TEXT_CHARACTERS_MAX: Final = 1_000
"""Characters of a text in a line. Clients choose names and values, so longer ones are cut."""
DETAILS_MAX: Final = 50
"""Names in `details` of a line, and elements of a list there."""

CHANGE: Final = "change"
LOGIN: Final = "login"
DENIAL: Final = "denial"
AUDIT: Final = "audit"
"""The types of events. The last is about the audit itself: it begins, it ends, lines were lost."""

SUCCESS: Final = "success"
FAILURE: Final = "failure"
DENIED: Final = "denied"
REPORTED: Final = "reported"
UNKNOWN: Final = "unknown"
STARTED: Final = "started"
STOPPED: Final = "stopped"
LOST: Final = "lost"
"""The outcomes. REPORTED is a denial that `authorizer.mode=report` did not enforce. UNKNOWN is a change that was not
finished in time, and may have been made."""

Details = tuple[tuple[str, Any], ...]


class AuditEvent(NamedTuple):
    """What a client did or tried. Events that are equal are counted together."""

    type: str
    outcome: str
    principal: str = ""
    host: str = ""
    listener: str = ""
    client_id: str = ""
    mechanism: str = ""
    api: str = ""
    operation: str = ""
    resource_type: str = ""
    resource: str = ""
    error: str = ""
    details: Details = ()


class CountedEvent(NamedTuple):
    """An event, how often it happened, and when for the first and the last time."""

    event: AuditEvent
    times: int
    first_ms: int
    last_ms: int


def audit_line(counted: CountedEvent, *, node_id: int, line_id: str) -> bytes:
    """Return the value of the record that tells of these events."""
    line: dict[str, Any] = {"id": line_id, "node": node_id, "time_ms": counted.last_ms}
    line |= {name: value for name, value in counted.event._asdict().items() if value}
    if counted.event.details:
        line["details"] = dict(counted.event.details)
    line["count"] = counted.times
    if counted.times > 1:
        line["first_ms"] = counted.first_ms
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def clipped(text: str | None) -> str:
    """Return a text that is short enough for a line."""
    if text is None:
        return ""
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[:TEXT_CHARACTERS_MAX]}..."


def details_of(facts: dict[str, Any]) -> Details:
    """Return details that are bounded and can be compared."""
    shown = list(facts.items())[:DETAILS_MAX]
    made = tuple((clipped(name), _value(value)) for name, value in shown)
    return made if len(facts) <= DETAILS_MAX else (*made, ("more", len(facts) - DETAILS_MAX))


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return clipped(value)
    if isinstance(value, list | tuple):
        shown = tuple(_value(each) for each in value[:DETAILS_MAX])
        return shown if len(value) <= DETAILS_MAX else (*shown, f"{len(value) - DETAILS_MAX} more")
    return value
