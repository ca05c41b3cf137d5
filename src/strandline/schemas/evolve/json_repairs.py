"""Repairs of JSON schemas."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from strandline.schemas.evolve.repairs import Reason, Repair, find, restored
from strandline.schemas.json_schema.documents import dump, load

_OTHER_NAMES: Final = {
    "dependencies": ("dependentRequired", "dependentSchemas"),
    "items": ("prefixItems",),
    "additionalItems": ("items",),
}


def json_repairs(old_text: str, new_text: str, reason: Reason) -> Iterator[Repair]:
    """Yield repairs for one reason, the one that keeps most of the new schema first."""
    old, new = load(old_text), load(new_text)
    path = written_path(new, [part for part in reason.incompatibility.path.removeprefix("#/").split("/") if part])
    if reason.is_backward:
        yield from _specific(old, new, path, reason.incompatibility.kind)
    if path[-2:-1] == ["required"]:
        path = path[:-1]
    for place in [*_changed_keywords(old, new, path), path]:
        for changed, kept in restored(old, new, place):
            yield Repair(dump(changed), f"Keep {_named(kept)} as it was.")


def written_path(document: Any, path: list[str]) -> list[str]:
    """Return where the text has what a path names, which leads through references and parts that no text has."""
    found: list[str] = []
    here = document
    waiting = list(path)
    while True:
        ref = here.get("$ref") if isinstance(here, dict) else None
        if isinstance(ref, str) and ref.startswith("#/") and (not waiting or waiting[0] not in here):
            found = [part.replace("~1", "/").replace("~0", "~") for part in ref[2:].split("/")]
            try:
                here = find(document, found)
            except LookupError:
                return path
            continue
        if not waiting:
            return found
        segment = waiting.pop(0)
        if isinstance(here, dict) and segment not in here:
            if segment in ("allOf", "anyOf") and waiting:
                # A type beside an enum, or a list of types, is combined without a keyword.
                waiting.pop(0)
                continue
            segment = next((name for name in _OTHER_NAMES.get(segment, ()) if name in here), segment)
        found.append(segment)
        try:
            here = find(here, [segment])
        except LookupError:
            return found + waiting


def _changed_keywords(old: Any, new: Any, path: list[str]) -> Iterator[list[str]]:
    """Yield the keywords that differ, if a path names a whole schema."""
    try:
        before, after = find(old, path), find(new, path)
    except LookupError:
        return
    if isinstance(before, dict) and isinstance(after, dict) and path[-1:] != ["properties"]:
        yield from ([*path, name] for name in dict.fromkeys([*after, *before]) if before.get(name) != after.get(name))


def _specific(old: Any, new: Any, path: list[str], kind: str) -> Iterator[Repair]:
    changed = copy.deepcopy(new)
    try:
        match kind:
            case "REQUIRED_ATTRIBUTE_ADDED":
                holder = find(changed, path[:-2])
                holder["required"] = [name for name in holder["required"] if name != path[-1]]
                yield Repair(dump(changed), f"Make the property {path[-1]!r} optional.")
            case "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL" | "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL":
                holder = find(changed, path[:-2])
                holder["required"] = [name for name in holder["required"] if name != path[-1]]
                if kind.endswith("TO_OPEN_CONTENT_MODEL"):
                    holder["properties"][path[-1]] = {}
                yield Repair(dump(changed), f"Make the new property {path[-1]!r} optional{_any_value(kind)}.")
            case (
                "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
                | "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL"
            ):
                holder = find(changed, path[:-2])
                holder["properties"][path[-1]] = {}
                holder["required"] = [name for name in holder.get("required", []) if name != path[-1]]
                if not holder["required"]:
                    del holder["required"]
                step = (
                    f"Let the new property {path[-1]!r} have any value, because the old schema is open and allowed it."
                )
                yield Repair(dump(changed), step)
            case "TYPE_NARROWED":
                find(changed, path)["type"] = "number"
                yield Repair(dump(changed), f"Accept every number at {_named(path)}.")
            case "ENUM_ARRAY_NARROWED" | "COMBINED_TYPE_SUBSCHEMAS_CHANGED" | "ENUM_ARRAY_CHANGED":
                yield from _wider_enum(old, changed, path[:-1] if path[-1:] == ["enum"] else path)
            case "TYPE_CHANGED" if path:
                *outer, last = path
                alternatives = [find(old, path), find(changed, path)]
                find(changed, outer)[last] = {"anyOf": alternatives}
                yield Repair(dump(changed), f"Accept the old type of {_named(path)} beside the new one.")
    except (LookupError, TypeError, ValueError):
        return


def _any_value(kind: str) -> str:
    return " and let it have any value" if kind.endswith("TO_OPEN_CONTENT_MODEL") else ""


def _wider_enum(old: Any, changed: Any, path: list[str]) -> Iterator[Repair]:
    holder, before = find(changed, path), find(old, path)
    if isinstance(holder, dict) and "enum" in holder and "enum" in before:
        missing = [each for each in before["enum"] if each not in holder["enum"]]
        holder["enum"] = [*holder["enum"], *missing]
        yield Repair(dump(changed), f"Keep the values {dump(missing)[1:-1]} in the enum of {_named(path)}.")


def _named(path: list[str]) -> str:
    if len(path) >= 2 and path[-2] == "properties":
        return f"the property {path[-1]!r}"
    return f"#/{'/'.join(path)}" if path else "the schema"
