"""Texts with parts of a record in them: keys of a cache, URLs, names of indexes.

${topic} ${partition} ${offset}   where the record is
${key}                            the whole key
${key:name}                       a field of the key, by its path: a.b is the field b of a
${field:name}                     a field of the value
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from strandline.connect.failures import RecordFailed
from strandline.connect.records import SinkRecord
from strandline.connect.sinks.plain_json import value_bytes

_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
_WHOLE: Final = frozenset({"topic", "partition", "offset", "key"})
_KNOWN: Final = "${topic}, ${partition}, ${offset}, ${key}, ${key:name}, ${field:name}"
_NAMED: Final = ("key:", "field:")


class RecordTemplate:
    """A text with placeholders, taken apart once."""

    def __init__(self, text: str) -> None:
        pieces = _PLACEHOLDER.split(text)
        self._literals = [piece.encode() for piece in pieces[::2]]
        self.placeholders = tuple(pieces[1::2])
        self._takes_everything = text == "${key}"

    def uses(self, name: str) -> bool:
        """Return whether `${name}` or `${name:...}` is in the text."""
        return any(each == name or each.startswith(f"{name}:") for each in self.placeholders)

    @property
    def beginning(self) -> bytes:
        """What every filled text begins with."""
        return self._literals[0]

    def wildcards(self, wildcard: str, expression_of: Callable[[str], str]) -> tuple[str, str]:
        """Return a pattern and a regular expression of all filled texts; the latter has a part for each placeholder."""
        literals = [each.decode() for each in self._literals]
        first, rest = literals[0], list(zip(self.placeholders, literals[1:], strict=True))
        pattern = first + "".join(wildcard + literal for _, literal in rest)
        return pattern, re.escape(first) + "".join(expression_of(name) + re.escape(literal) for name, literal in rest)

    def fill(self, record: SinkRecord, escape: Callable[[bytes], bytes] = bytes) -> bytes:
        """Return the text for a record. Raise RecordFailed if it lacks a part, or the part is empty."""
        if self._takes_everything and isinstance(record.key, bytes) and record.key:
            return escape(record.key)
        made = [self._literals[0]]
        for name, literal in zip(self.placeholders, self._literals[1:], strict=True):
            part = _part(record, name)
            if part is None or part == b"":
                raise RecordFailed(f"the record of {record.place} has no ${{{name}}}, or it is empty", record)
            made += (escape(part), literal)
        return b"".join(made)


def template_problem(text: str) -> str | None:
    """Return what is wrong with a template; None if nothing is. It serves as the `check` of an option."""
    if not text:
        return "String must be non-empty"
    for name in RecordTemplate(text).placeholders:
        if name not in _WHOLE and not any(name.startswith(each) and name != each for each in _NAMED):
            return f"${{{name}}} is unknown: use one of {_KNOWN}"
    return None


def field_at(value: Any, path: str) -> Any:
    """Return a field of nested structs by its path; None if there is none. A field of the whole name comes first."""
    if not isinstance(value, Mapping):
        return None
    if path in value:
        return value[path]
    first, dot, rest = path.partition(".")
    return field_at(value.get(first), rest) if dot else None


def _part(record: SinkRecord, name: str) -> bytes | None:
    match name:
        case "topic":
            return record.topic.encode()
        case "partition":
            return str(record.original_partition).encode()
        case "offset":
            return str(record.offset).encode()
        case "key":
            value = record.key
        case _:
            kind, _, path = name.partition(":")
            value = field_at(record.key if kind == "key" else record.value, path)
    return None if value is None else value_bytes(value, record)
