"""Reads the schema texts. Runs when the message classes are generated, never in a broker.

    ## MetadataResponse (id 3) response versions 0-13 flexible 9+
    Topics: []MetadataResponseTopic 0+
      Name: string 0+ null 12+ key
    struct Voter 0+
      VoterId: int32 0+

A message opens with `##`: its name, id, kind, versions and the first flexible version. A field line holds name, type
(`[]` before it for an array) and versions, and then in this order what applies: `null` and the versions in which null
is allowed, `tag` with number and versions, `=` and the default, `ign` (may be dropped in versions without the field),
`key` (identifies an element), `plain` (never compact). Indented lines are the fields of the struct that the line above
names; `struct` gives the fields of a struct that more than one line names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib.resources import files

VERSION_LAST = 0x7FFF
TEXTS = ("protocol", "metadata", "coordinator", "storage", "strandline")

_MESSAGE = re.compile(r"## (\w+)(?: \(id (\d+)\))? ([\w-]+) versions (\S+) flexible (\S+)")
_STRUCT = re.compile(r"struct (\w+) (\S+)")
_FIELD = re.compile(
    r"(?P<name>\w+): (?P<array>\[\])?(?P<type>\w+) (?P<versions>\S+)(?: null (?P<nullable>\S+))?"
    r"(?: tag (?P<tag>\d+) \((?P<tagged>\S+)\))?(?: = (?P<default>\S+))?(?P<ignorable> ign)?(?: key)?(?P<plain> plain)?"
)
_PRIMITIVES = frozenset(
    ["bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "string", "bytes", "records", "uuid"]
)


@dataclass(frozen=True)
class Versions:
    first: int
    last: int


@dataclass
class FieldSchema:
    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions | None
    tag: int | None
    default: str | None
    ignorable: bool
    plain: bool

    @property
    def is_struct(self) -> bool:
        return self.type not in _PRIMITIVES


@dataclass
class MessageSchema:
    name: str
    id: int | None
    kind: str
    versions: Versions
    flexible_from: int | None
    fields: list[FieldSchema] = field(default_factory=list)
    structs: dict[str, list[FieldSchema]] = field(default_factory=dict)


class SchemaFault(Exception):
    """A line of a schema text that makes no sense."""


def load_schemas() -> dict[str, MessageSchema]:
    """Return every message of every text, by name."""
    schemas: dict[str, MessageSchema] = {}
    for text in TEXTS:
        for schema in parse(files("strandline.codec.schema").joinpath(f"{text}.txt").read_text()):
            if schema.name in schemas:
                raise SchemaFault(f"{schema.name} is described twice")
            schemas[schema.name] = schema
    return schemas


def parse(text: str) -> list[MessageSchema]:
    messages: list[MessageSchema] = []
    # levels[n] takes the fields that are indented n times; a struct line opens a level below itself.
    levels: list[list[FieldSchema]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("# "):
            continue
        try:
            if line.startswith("## "):
                messages.append(_parse_message(line))
                levels = [messages[-1].fields]
            elif match := _STRUCT.fullmatch(line):
                levels = [levels[0], messages[-1].structs.setdefault(match[1], [])]
            else:
                _add_field(messages[-1], levels, line)
        except (ValueError, IndexError, KeyError) as error:
            raise SchemaFault(f"line {number}: {line!r}: {error}") from error
    for message in messages:
        _check(message)
    return messages


def _parse_message(line: str) -> MessageSchema:
    match = _MESSAGE.fullmatch(line)
    if match is None:
        raise ValueError("no message line")
    name, identifier, kind, versions, flexible = match.groups()
    return MessageSchema(
        name=name,
        id=None if identifier is None else int(identifier),
        kind=kind,
        versions=_parse_versions(versions),
        flexible_from=None if flexible == "none" else _parse_versions(flexible).first,
    )


def _add_field(message: MessageSchema, levels: list[list[FieldSchema]], line: str) -> None:
    level = (len(line) - len(line.lstrip())) // 2
    match = _FIELD.fullmatch(line.strip())
    if match is None:
        raise ValueError("no field line")
    tagged = match["tagged"]
    if tagged is not None and tagged != match["versions"]:
        raise ValueError("a field that is tagged in some versions only")
    parsed = FieldSchema(
        name=match["name"],
        type=match["type"],
        is_array=match["array"] is not None,
        versions=_parse_versions(match["versions"]),
        nullable=None if match["nullable"] is None else _parse_versions(match["nullable"]),
        tag=None if match["tag"] is None else int(match["tag"]),
        default=match["default"],
        ignorable=match["ignorable"] is not None,
        plain=match["plain"] is not None,
    )
    levels[level].append(parsed)
    del levels[level + 1 :]
    if parsed.is_struct:
        # The fields may follow indented, or stand below a struct line; both fill the same list.
        levels.append(message.structs.setdefault(parsed.type, []))


def _parse_versions(text: str) -> Versions:
    if text.endswith("+"):
        return Versions(int(text[:-1]), VERSION_LAST)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


def _check(message: MessageSchema) -> None:
    for name, fields in message.structs.items():
        if not fields:
            raise SchemaFault(f"{message.name}: struct {name} has no fields")
    for spec in [*message.fields, *(spec for fields in message.structs.values() for spec in fields)]:
        if spec.tag is not None and (message.flexible_from is None or spec.versions.first < message.flexible_from):
            raise SchemaFault(f"{message.name}.{spec.name} is tagged in a version that is not flexible")
