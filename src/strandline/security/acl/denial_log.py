"""The log line of a denial, which a node writes and `strandline acl suggest` reads.

    would deny {"principal": "User:billing", "host": "10.0.0.7", "operation": "READ", "resource_type": "TOPIC",
                "name": "orders"}

It is one line. `would deny` is the word of `authorizer.mode=report`, `denied` that of a denial which was enforced. The
object has these five fields. Lines of Kafka's own authorizer log (`kafka.authorizer.logger`) are read as well.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from strandline.security.acl.kinds import Operation, ResourceType

LOGGER: Final = "strandline.authorizer"
_OURS: Final = re.compile(r"\b(?:would deny|denied) (\{.*\})")
_KAFKAS: Final = re.compile(
    r"Principal = (?P<principal>.+?) is Denied operation = (?P<operation>[A-Za-z_]+) from host = (?P<host>\S+) "
    r"on resource = (?P<resource_type>[A-Za-z]+):LITERAL:(?P<name>.+) for request = \w+ with resourceRefCount"
)


class Denial(NamedTuple):
    """What a client asked for and no ACL allows."""

    principal: str
    host: str
    operation: Operation
    resource_type: ResourceType
    name: str


def denial_line(denial: Denial, *, is_enforced: bool) -> str:
    """Return the message to log for a denial."""
    facts = {
        "principal": denial.principal,
        "host": denial.host,
        "operation": denial.operation.name,
        "resource_type": denial.resource_type.name,
        "name": denial.name,
    }
    return f"{'denied' if is_enforced else 'would deny'} {json.dumps(facts)}"


def read_denial(line: str) -> Denial | None:
    """Return the denial of a line of a log, as text or as JSON; None for any other line."""
    if line.startswith("{"):
        line = _message(line)
    ours = _OURS.search(line)
    if ours is not None:
        try:
            facts: Any = json.loads(ours[1])
            return _denial(facts)
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            return None
    kafkas = _KAFKAS.search(line)
    if kafkas is None:
        return None
    try:
        return _denial(kafkas.groupdict())
    except KeyError:
        return None


def _message(line: str) -> str:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return line
    message = event.get("message")
    return message if isinstance(message, str) else line


def _denial(facts: dict[str, str]) -> Denial:
    # Kafka's log has `TransactionalId` and `DELEGATION_TOKEN` alike, so names are compared without case and marks.
    operation = _named(Operation, facts["operation"])
    resource_type = _named(ResourceType, facts["resource_type"])
    return Denial(str(facts["principal"]), str(facts["host"]), operation, resource_type, str(facts["name"]))


def _named(kind: Any, text: str) -> Any:
    names = {each.name.replace("_", ""): each for each in kind}
    return names[text.replace("_", "").upper()]
