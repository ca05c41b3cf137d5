"""Which topic names are allowed. They become directory names, so what is refused here never reaches a disk."""

from __future__ import annotations

import re
from typing import Final

from strandline.errors import ErrorCode, RequestError

CLUSTER_METADATA: Final = "__cluster_metadata"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
AUDIT_TOPIC: Final = "__strandline_audit"
OBJECT_COMMITS: Final = "__strandline_object_commits"
"""What the objects of object topics mean. Brokers and tools write to it as clients do, so it is not internal."""
INTERNAL_TOPICS: Final = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE, AUDIT_TOPIC))

TOPIC_NAME_LENGTH_MAX: Final = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def why_invalid(name: str) -> str | None:
    """Return what is wrong with `name`; None if it is a valid topic name."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"its {len(name)} characters are more than the {TOPIC_NAME_LENGTH_MAX} allowed"
    if not _LEGAL.fullmatch(name):
        return f"{name!r} has characters other than ASCII letters and digits, '.', '_' and '-'"
    return None


def check_topic_name(name: str) -> None:
    """RequestError INVALID_TOPIC_EXCEPTION unless a topic may be called so."""
    reason = why_invalid(name)
    if reason is not None:
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def collision_key(name: str) -> str:
    """Names that differ only in `.` and `_` collide: Kafka's metrics cannot tell them apart."""
    return name.replace(".", "_")
