"""What the registry asks of an engine for one schema type, and the limits that all engines share.

An engine parses text into a `ParsedSchema`. It never sees subjects, versions or ids: the registry resolves references
and hands in the text of each by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

TEXT_BYTES_MAX: Final = 1_000_000
"""Bytes of one schema's text. A broker takes records of 1 MiB by default, so a longer text could not be stored."""
DEPTH_MAX: Final = 64
"""Levels of nesting in one schema."""
REFERENCES_MAX: Final = 500
"""Schemas that one schema reaches through references, counted once each."""
RESOLVED_BYTES_MAX: Final = 4_000_000
"""Bytes of a schema's text together with every text that it reaches through references."""


@dataclass(frozen=True)
class Reference:
    """A name that a schema uses, and the subject and version where the named schema is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Incompatibility:
    """One reason why a reader can not read what a writer wrote."""

    kind: str
    """Confluent's name, as READER_FIELD_MISSING_DEFAULT_VALUE."""
    path: str
    message: str


@dataclass(frozen=True)
class SchemaChange:
    """One change from an old schema to a new one, compatible or not."""

    kind: str
    """Confluent's name, as PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL."""
    path: tuple[str, ...] = ()
    old: str = ""
    new: str = ""

    @property
    def place(self) -> str:
        """Return the path as Confluent writes it."""
        return "#/" + "/".join(self.path)


class InvalidSchema(Exception):
    """A text that is no schema of its type; the message is one sentence that says what is wrong."""


class ParsedSchema(Protocol):
    """A schema that was parsed, with all its references."""

    def canonical(self) -> str:
        """Return the text that is stored and compared."""

    def normalized(self) -> str:
        """Return the text that is stored and compared with `normalize=true`."""

    # The writer is one of the same engine: the registry never compares schemas of different types.
    def differences(self, writer: Any) -> list[Incompatibility]:
        """Return why this schema, as reader, can not read what `writer` wrote; empty if it can."""


class SchemaType(Protocol):
    """An engine for one schema type."""

    @property
    def name(self) -> str:
        """Return AVRO, JSON or PROTOBUF."""

    def parse(self, text: str, references: Mapping[str, str]) -> ParsedSchema:
        """Parse `text`, or raise InvalidSchema.

        `references` has the text of every referenced schema by its name, each after those that it needs itself.
        """
