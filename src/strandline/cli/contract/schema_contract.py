"""A subject of the schema registry as a contract describes it, and what changes of it (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from strandline.cli.contract.kinds import Detail
from strandline.documents.fields import Fields, kind_of
from strandline.schemas.compatibility import LEVELS

TYPES: Final = ("AVRO", "JSON", "PROTOBUF")
LINES_SHOWN: Final = 20
LEVELS_DEEP: Final = 20
"""Levels of a schema that is exported as YAML; a deeper one is exported as text, because documents have a limit."""
_PARTS: Final = ("value", "key")
_PROMISES: Final = {
    ("backward", "last"): "that a reader with the new schema reads what the last version wrote",
    ("backward", "all"): "that a reader with the new schema reads what every earlier version wrote",
    ("forward", "last"): "that a reader with the last version reads what the new schema writes",
    ("forward", "all"): "that a reader with any earlier version reads what the new schema writes",
}


@dataclass(frozen=True)
class SubjectContract:
    """A subject that a contract wants. Without a schema, or without a level, what is there is left as it is."""

    subject: str
    topic: str | None = None
    """The topic whose records it is for."""
    is_absent: bool = False
    compatibility: str | None = None
    type: str | None = None
    file: str | None = None
    text: str | None = None
    references: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class SubjectState:
    """A subject of a registry: its last version as the registry answers it, and its compatibility level."""

    latest: Mapping[str, Any] | None
    level: str
    """The one in force."""
    is_own_level: bool = False
    """Whether it was set for the subject itself."""


@dataclass(frozen=True)
class SubjectChange:
    """What a contract changes of a subject."""

    wanted: SubjectContract
    before: SubjectState
    body: Mapping[str, Any] | None = None
    """The schema to register."""
    level: str | None = None
    """The level to set."""
    removed: tuple[int, ...] = ()
    """Versions behind the one that the contract has."""
    unreadable: tuple[str, ...] = ()
    """Why a reader with the last version could not read what the new schema writes."""
    changed_lines: tuple[str, ...] = ()
    """How the schema differs from the last version."""

    @property
    def is_empty(self) -> bool:
        return not (self.body or self.level or self.removed or self.wanted.is_absent)


def parse_subject(fields: Fields) -> SubjectContract:
    """Return the subject of an entry. DocumentFailed says what is wrong with a field."""
    subject, topic = _names(fields)
    state = fields.choice("state", ("present", "absent"))
    level = fields.parsed("compatibility", lambda text: _one_of(text, LEVELS))
    kind = fields.parsed("type", lambda text: _one_of(text, TYPES))
    file, inline = fields.text("file"), fields.take("schema")
    references = tuple(_reference(each) for each in fields.parts("references", of="a reference"))
    fields.text("about")
    fields.done()
    if file is not None and inline is not None:
        raise fields.failure("file", "a subject has a file or a schema, and not both")
    if state == "absent":
        return SubjectContract(subject, topic, is_absent=True)
    if file is None and inline is None and level is None:
        raise fields.failure("subject", f"nothing is said of {subject}: give it a file, a schema or a compatibility")
    return SubjectContract(subject, topic, False, level, kind, file, _inline_text(fields, inline), references)


def _names(fields: Fields) -> tuple[str, str | None]:
    subject, topic, part = fields.text("subject"), fields.text("topic"), fields.choice("of", _PARTS)
    if subject is None:
        if topic is None:
            raise fields.failure("subject", "an entry of schemas needs topic: NAME, or subject: NAME")
        return f"{topic}-{part or _PARTS[0]}", topic
    if part is not None:
        raise fields.failure("of", "of (key or value) goes with topic, and not with subject")
    return subject, topic or topic_of(subject)


def topic_of(subject: str) -> str | None:
    """Return the topic that a subject is for, as serializers name it by default; None if it is named otherwise."""
    for part in _PARTS:
        if subject.endswith(f"-{part}") and subject != f"-{part}":
            return subject.removesuffix(f"-{part}")
    return None


def _one_of(text: str, known: Sequence[str]) -> str:
    if text.upper() not in known:
        raise ValueError(f"{text!r} is none of {', '.join(known)}")
    return text.upper()


def _inline_text(fields: Fields, inline: Any) -> str | None:
    if inline is None or isinstance(inline, str):
        return inline
    if isinstance(inline, dict | list | bool):
        return json.dumps(inline, ensure_ascii=False)
    raise fields.failure("schema", f"schema is a mapping, a list or a text, not {kind_of(inline)}")


def _reference(fields: Fields) -> Mapping[str, Any]:
    name, subject = fields.needed_text("name", "com.shop.Item"), fields.needed_text("subject", "items-value")
    version = fields.whole("version", least=1)
    fields.done()
    if version is None:
        raise fields.failure("version", "a reference needs version: N")
    return {"name": name, "subject": subject, "version": version}


def lost_promises(before: str, after: str) -> list[str]:
    """Return what a level promises and another does not."""
    lost = _promises(before) - _promises(after)
    # Of each direction the larger promise contains the smaller one.
    return [
        f"the promise {_PROMISES[direction, 'all' if (direction, 'all') in lost else 'last']}"
        for direction in ("backward", "forward")
        if any(each == direction for each, _ in lost)
    ]


def _promises(level: str) -> set[tuple[str, str]]:
    if level == "NONE":
        return set()
    name = level.removesuffix("_TRANSITIVE").lower()
    directions = ("backward", "forward") if name == "full" else (name,)
    reach = ("last", "all") if level.endswith("_TRANSITIVE") else ("last",)
    return {(direction, each) for direction in directions for each in reach}


def subject_details(change: SubjectChange) -> list[Detail]:
    """Return each part of the change, in words."""
    found = []
    if change.level is not None:
        default = "" if change.before.is_own_level else " (the default)"
        found.append(Detail("compatibility", f"{change.before.level}{default}", change.level))
    if change.body is not None:
        name = change.wanted.file or "the one in the contract"
        latest = change.before.latest
        found.append(Detail("schema", None if latest is None else f"version {latest['version']}", name))
        found += [Detail(line) for line in change.changed_lines[:LINES_SHOWN]]
        if len(change.changed_lines) > LINES_SHOWN:
            found.append(Detail(f"... and {len(change.changed_lines) - LINES_SHOWN:,} more lines"))
    if change.removed and change.before.latest is not None:
        kept = change.removed[0] - 1
        found.append(Detail("last version", str(change.before.latest["version"]), f"{kept} or an earlier one"))
    return found


def subject_losses(change: SubjectChange) -> list[str]:
    """Return what the change takes away, or makes weaker."""
    if change.wanted.is_absent:
        return ["every version of the subject; records of them can still be read by id"]
    found = lost_promises(change.before.level, change.level) if change.level is not None else []
    if change.removed:
        numbers = ", ".join(str(each) for each in change.removed)
        found.append(f"version {numbers}, newer than the contract; records of it can still be read by its id")
    return found


def export_subject(
    subject: str, latest: Mapping[str, Any], own_level: str | None, topics: set[str]
) -> tuple[str, dict[str, Any]]:
    """Return the file that suits a subject, and its entry that plans to nothing."""
    topic = topic_of(subject)
    entry: dict[str, Any] = {"subject": subject}
    if topic in topics:
        entry = {"topic": topic} | ({"of": "key"} if subject.endswith("-key") else {})
    kind = latest.get("schemaType") or "AVRO"
    if kind != "AVRO":
        entry["type"] = kind
    if own_level is not None:
        entry["compatibility"] = own_level
    if latest.get("references"):
        entry["references"] = [
            {name: each[name] for name in ("name", "subject", "version")} for each in latest["references"]
        ]
    entry["schema"] = _exported(latest["schema"], kind)
    return (topic if topic is not None and topic in topics else "schemas"), entry


def _exported(text: str, kind: str) -> Any:
    if kind == "PROTOBUF":
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict | list) and _is_plain(value) else text


def _is_plain(value: Any) -> bool:
    """Return whether YAML, as documents are read, has the same value: it is flat enough, and its numbers are plain."""
    level = [value]
    for _ in range(LEVELS_DEEP):
        if any(isinstance(each, float) or (isinstance(each, int) and abs(each) >= 10**18) for each in level):
            return False
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return True
    return False
