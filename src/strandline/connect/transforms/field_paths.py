"""Paths of fields (KIP-821): the name of one field, or `a.b.c` with the syntax V2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from strandline.connect.config import option
from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.records import ConnectRecord
from strandline.connect.schema import ConnectType, Schema, SchemaField
from strandline.connect.transforms.interface import ReplaceNullsConfig, field_value, required_map, required_struct

_PURPOSE: Final = "nested field access"


def _wrong_version(value: str) -> str | None:
    return None if value.upper() in ("V1", "V2") else "String must be one of (case insensitive): V1, V2"


class FieldSyntaxConfig(ReplaceNullsConfig):
    """The setting of transforms that take paths."""

    field_syntax_version: str = option(
        "V1 takes a path as the name of one field. With V2 dots separate the names of nested fields, and backticks "
        "wrap a name that has dots itself: `a.b`.c",
        default="V1",
        importance="HIGH",
        check=_wrong_version,
    )


class FieldPath:
    """The steps to a field."""

    def __init__(self, text: str, version: str) -> None:
        """Raise InvalidConnectorConfig for a backtick without its pair."""
        self._steps = _parsed(text) if version.upper() == "V2" else [text]

    def field(self, schema: Schema) -> SchemaField | None:
        """Return the field of a struct's schema; None if it has none."""
        found: SchemaField | None = None
        for step in self._steps:
            found = schema.field(step) if schema.kind is ConnectType.STRUCT else None
            if found is None:
                return None
            schema = found.schema
        return found

    def struct_value(self, schema: Schema, value: Any, record: ConnectRecord, *, with_default: bool) -> Any:
        """Return the value of the field of a struct; None if it has none."""
        for index, step in enumerate(self._steps):
            if value is None:
                return None
            struct = required_struct(schema, value, _PURPOSE, record)
            field = schema.field(step)
            if field is None:
                return None
            value = field_value(struct, field, with_default=with_default or index < len(self._steps) - 1)
            schema = field.schema
        return value

    def map_value(self, value: Mapping[str, Any], record: ConnectRecord) -> Any:
        """Return the value of the field of a map; None if it has none."""
        found: Any = value
        for step in self._steps:
            if found is None:
                return None
            found = required_map(found, _PURPOSE, record).get(step)
        return found


def _parsed(path: str) -> Sequence[str]:
    steps = []
    at = 0
    while at < len(path):
        if path[at] == "`":
            step, at = _wrapped(path, at)
        else:
            dot = path.find(".", at)
            end = len(path) if dot < 0 else dot
            step, at = path[at:end], end + 1
        steps.append(step)
    if path.endswith("."):
        steps.append("")
    return steps


def _wrapped(path: str, begin: int) -> tuple[str, int]:
    """Return a name between backticks, and where the next one begins. A backslash escapes a backtick before a dot."""
    name = ""
    start = at = begin + 1
    while True:
        at = path.find("`", at)
        is_escaped = at > 0 and path[at - 1] == "\\"
        if at < 0 or (at == len(path) - 1 and is_escaped):
            raise InvalidConnectorConfig(
                f"Incomplete backtick pair in path: [{path}], consider adding a backslash before backtick at position "
                f"{begin} to escape it"
            )
        if at == len(path) - 1:
            return name + path[start:at], at + 1
        if path[at + 1] != ".":
            at += 1
        elif is_escaped:
            name += f"{path[start : at - 1]}`"
            at += 1
            start = at
        else:
            return name + path[start:at], at + 2
