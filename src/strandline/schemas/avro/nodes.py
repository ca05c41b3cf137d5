"""Avro schemas as a graph of nodes. A name that is used again is the same node, so a schema may be recursive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
NAMED: Final = frozenset(("record", "error", "enum", "fixed"))


class NoDefault:
    """The default of a field that has none; null is a default."""


NO_DEFAULT: Final = NoDefault()


@dataclass(eq=False)
class AvroNode:
    """One schema: which attributes count depends on its kind."""

    kind: str
    """A primitive, record, error, enum, fixed, array, map or union."""
    name: str = ""
    """With its namespace."""
    doc: str | None = None
    aliases: list[str] = field(default_factory=list)
    """With their namespaces."""
    fields: list[AvroField] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    default_symbol: str | None = None
    size: int = 0
    items: AvroNode | None = None
    """Of an array or map."""
    branches: list[AvroNode] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)
    """What the specification does not name; also the logical type."""

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def label(self) -> str:
        """Return what a person calls it."""
        return self.name or self.kind

    @property
    def decimal(self) -> tuple[int, int] | None:
        """Return precision and scale of a decimal; None if it is none, or one that the specification ignores."""
        if self.properties.get("logicalType") != "decimal" or self.kind not in ("bytes", "fixed"):
            return None
        precision, scale = _count(self.properties.get("precision")), _count(self.properties.get("scale", 0))
        return (precision, scale) if 0 < precision >= scale >= 0 else None


@dataclass(eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroNode
    doc: str | None = None
    default: Any = NO_DEFAULT
    order: str | None = None
    aliases: list[str] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1
