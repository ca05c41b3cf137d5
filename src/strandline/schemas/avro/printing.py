"""Nodes as text: in the order in which the Java library prints a schema, which is what Confluent's registry stores.

The canonical form keeps docs, aliases and properties, and names a namespace only where it changes. The normalised form
has full names and sorted properties, so that schemas which mean the same have the same text.
"""

from __future__ import annotations

import json
from typing import Any

from strandline.schemas.avro.nodes import PRIMITIVES, AvroField, AvroNode


def canonical_text(node: AvroNode, known: frozenset[str]) -> str:
    """Return the stored form; names in `known` belong to references and are not printed out."""
    return _text(_Printer(set(known), is_normal=False).schema(node, ""))


def normalized_text(node: AvroNode, known: frozenset[str]) -> str:
    return _text(_Printer(set(known), is_normal=True).schema(node, ""))


class _Printer:
    """One pass over the nodes; a named one is printed once, and then only its name."""

    def __init__(self, printed: set[str], *, is_normal: bool) -> None:
        self._printed = printed
        self._is_normal = is_normal

    def schema(self, node: AvroNode, namespace: str) -> Any:
        match node.kind:
            case "union":
                return [self.schema(each, namespace) for each in node.branches]
            case "array" | "map" as kind:
                assert node.items is not None
                inner = "items" if kind == "array" else "values"
                return {"type": kind, inner: self.schema(node.items, namespace), **self._properties(node.properties)}
            case kind if kind in PRIMITIVES:
                return {"type": kind, **self._properties(node.properties)} if node.properties else kind
        if node.name in self._printed:
            return self._relative(node.name, namespace)
        self._printed.add(node.name)
        return self._definition(node, namespace)

    def _definition(self, node: AvroNode, namespace: str) -> dict[str, Any]:
        found: dict[str, Any] = {"type": node.kind, "name": node.name if self._is_normal else node.short_name}
        if not self._is_normal and node.namespace != namespace:
            found["namespace"] = node.namespace
        if node.doc is not None:
            found["doc"] = node.doc
        if node.kind == "enum":
            found["symbols"] = node.symbols
            if node.default_symbol is not None:
                found["default"] = node.default_symbol
        elif node.kind == "fixed":
            found["size"] = node.size
        else:
            found["fields"] = [self._field(each, node.namespace) for each in node.fields]
        found |= self._properties(node.properties)
        if node.aliases:
            aliases = [self._relative(each, node.namespace) for each in node.aliases]
            found["aliases"] = sorted(set(aliases)) if self._is_normal else aliases
        return found

    def _field(self, field: AvroField, namespace: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": field.name, "type": self.schema(field.type, namespace)}
        if field.doc is not None:
            found["doc"] = field.doc
        if field.has_default:
            found["default"] = field.default
        if field.order not in (None, "ascending"):
            found["order"] = field.order
        if field.aliases:
            found["aliases"] = sorted(set(field.aliases)) if self._is_normal else field.aliases
        return found | self._properties(field.properties)

    def _relative(self, name: str, namespace: str) -> str:
        own, _, short = name.rpartition(".")
        return short if not self._is_normal and own == namespace and short not in PRIMITIVES else name

    def _properties(self, properties: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(properties.items())) if self._is_normal else properties


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
