"""What a converter of a type is made for, and what it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from strandline.cdc.postgres.types.settings import TypeSettings
from strandline.connect.schema import ConnectType, Schema

Convert = Callable[[bytes], Any]
"""Makes the value of the text that PostgreSQL has for it."""


@dataclass(frozen=True)
class TypeUse:
    """A type as a column, or an array's elements, have it."""

    column: str
    modifier: int
    is_optional: bool
    settings: TypeSettings


@dataclass(frozen=True)
class ColumnForm:
    """The schema of a type and its converter."""

    schema: Schema
    convert: Convert
    placeholder: Any = None
    """Set where the placeholder does not follow from the schema."""


def semantic(kind: ConnectType, name: str, **parameters: str) -> Schema:
    """Return the schema of one of Debezium's own types."""
    return Schema(kind, name=name, version=1, parameters=parameters)
