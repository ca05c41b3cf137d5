"""Repairs of Avro schemas."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, Final

from strandline.schemas.evolve.repairs import Reason, Repair, find, restored

_EMPTY: Final[dict[str, Any]] = {
    "null": None,
    "boolean": False,
    "int": 0,
    "long": 0,
    "float": 0.0,
    "double": 0.0,
    "string": "",
    "bytes": "",
    "array": [],
    "map": {},
}


def avro_repairs(old_text: str, new_text: str, reason: Reason) -> Iterator[Repair]:
    """Yield repairs for one reason, the one that keeps most of the new schema first."""
    old, new = json.loads(old_text), json.loads(new_text)
    path = [part for part in reason.incompatibility.path.split("/") if part]
    kind = reason.incompatibility.kind
    try:
        if reason.is_backward:
            yield from _backward(old, new, path, kind)
        elif kind == "READER_FIELD_MISSING_DEFAULT_VALUE":
            yield from _kept_field(old, new, path)
    except (LookupError, TypeError, ValueError):
        pass
    for changed, place in restored(old, new, path):
        yield Repair(json.dumps(changed), f"Keep {_named(new, place)} as it was.")


def _backward(old: Any, new: Any, path: list[str], kind: str) -> Iterator[Repair]:
    changed = copy.deepcopy(new)
    match kind:
        case "READER_FIELD_MISSING_DEFAULT_VALUE":
            yield from _with_default(changed, path)
        case "MISSING_ENUM_SYMBOLS":
            holder, before = find(changed, path[:-1]), find(old, path[:-1])
            missing = [each for each in before["symbols"] if each not in holder["symbols"]]
            holder["symbols"] = [*holder["symbols"], *missing]
            yield Repair(json.dumps(changed), f"Keep the symbols {', '.join(missing)} in the enum {holder['name']!r}.")
        case "NAME_MISMATCH":
            holder, before = find(changed, path[:-1]), find(old, path[:-1])
            space = before.get("namespace")
            name = before["name"] if "." in before["name"] or not space else f"{space}.{before['name']}"
            holder["aliases"] = [*holder.get("aliases", []), name]
            yield Repair(json.dumps(changed), f"Give {holder['name']!r} its old name {name!r} as an alias.")
        case "TYPE_MISMATCH" | "MISSING_UNION_BRANCH":
            place = path if path[-1:] == ["type"] else [*path, "type"]
            holder = find(changed, place[:-1])
            before = _field_named(find(old, place[:-2]), holder["name"])["type"]
            branches = [
                each for part in (before, holder["type"]) for each in (part if isinstance(part, list) else [part])
            ]
            holder["type"] = [each for n, each in enumerate(branches) if each not in branches[:n]]
            yield Repair(
                json.dumps(changed), f"Accept the old type of the field {holder['name']!r} beside the new one."
            )


def _with_default(changed: Any, path: list[str]) -> Iterator[Repair]:
    field = find(changed, path)
    kind = field["type"][0] if isinstance(field["type"], list) else field["type"]
    kind = kind["type"] if isinstance(kind, dict) else kind
    if kind in _EMPTY:
        field["default"] = _EMPTY[kind]
    else:
        field["type"] = ["null", *field["type"]] if isinstance(field["type"], list) else ["null", field["type"]]
        field["default"] = None
    step = f"Add a default to the field {field['name']!r}, as {json.dumps(field['default'])}."
    yield Repair(json.dumps(changed), step)


def _kept_field(old: Any, new: Any, path: list[str]) -> Iterator[Repair]:
    changed = copy.deepcopy(new)
    field = find(old, path)
    holder = find(changed, path[:-2])
    if all(each["name"] != field["name"] for each in holder["fields"]):
        holder["fields"].append(copy.deepcopy(field))
        yield Repair(
            json.dumps(changed), f"Keep the field {field['name']!r}, because old readers have no default for it."
        )


def _field_named(fields: Any, name: str) -> Any:
    return next((each for each in fields if each["name"] == name), None) or _no_field(name)


def _no_field(name: str) -> Any:
    raise LookupError(name)


def _named(document: Any, path: list[str]) -> str:
    for length in range(len(path), 1, -1):
        if path[length - 2] == "fields":
            try:
                return f"the field {find(document, path[:length])['name']!r}"
            except (LookupError, TypeError):
                break
    return f"/{'/'.join(path)}"
