"""The seven compatibility levels: which earlier versions a new schema is compared with, and in which direction.

BACKWARD: the new schema reads what the last version wrote. FORWARD: the last version reads what the new schema writes.
FULL: both. With _TRANSITIVE every earlier version counts, not only the last one. NONE: nothing is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from strandline.schemas.engines import Engines, SchemaSource
from strandline.schemas.types import Incompatibility

LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
MESSAGES_MAX: Final = 100
"""Reasons in one answer."""
_TEXT_CHARACTERS_MAX: Final = 10_000
"""Characters of an earlier schema that are repeated in an answer."""


def explain(engines: Engines, level: str, new: SchemaSource, earlier: Sequence[tuple[int, SchemaSource]]) -> list[str]:
    """Return why a schema is not compatible with the earlier versions, oldest first; nothing if it is."""
    conflict = find_conflict(engines, level, new, earlier)
    if conflict is None:
        return []
    version, old, reasons = conflict
    told = [_words(each) for each in reasons[:MESSAGES_MAX]]
    text = old.text if len(old.text) <= _TEXT_CHARACTERS_MAX else f"{old.text[:_TEXT_CHARACTERS_MAX]}..."
    return [*told, f"{{oldSchemaVersion: {version}}}", f"{{oldSchema: '{text}'}}", f"{{compatibility: '{level}'}}"]


def find_conflict(
    engines: Engines, level: str, new: SchemaSource, earlier: Sequence[tuple[int, SchemaSource]]
) -> tuple[int, SchemaSource, list[Incompatibility]] | None:
    """Return the newest version that a schema is not compatible with, and why; None if there is none."""
    for version, old in reversed(compared_versions(level, earlier)):
        reasons = _reasons(engines, level, new, old)
        if reasons:
            return version, old, reasons
    return None


def compared_versions(level: str, earlier: Sequence[tuple[int, SchemaSource]]) -> Sequence[tuple[int, SchemaSource]]:
    """Return the versions that a level compares with: none, the last one, or all."""
    if level == "NONE":
        return []
    return earlier if level.endswith("_TRANSITIVE") else earlier[-1:]


def _reasons(engines: Engines, level: str, new: SchemaSource, old: SchemaSource) -> list[Incompatibility]:
    if new.type != old.type:
        kind, message = "TYPE_MISMATCH", f"Incompatible because of different schema type: {new.type}, not {old.type}"
        return [Incompatibility(kind, "/", message)]
    new_parsed, old_parsed = engines.parse(new), engines.parse(old)
    reasons = [] if level.startswith("FORWARD") else new_parsed.differences(old_parsed)
    if not reasons and not level.startswith("BACKWARD"):
        reasons = old_parsed.differences(new_parsed)
    return reasons


def _words(reason: Incompatibility) -> str:
    return f"{{errorType:'{reason.kind}', description:\"{reason.message}\", path:'{reason.path}'}}"
