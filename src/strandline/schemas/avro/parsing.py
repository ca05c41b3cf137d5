"""From JSON to nodes, with the specification's checks. Each failure is one sentence."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from strandline.schemas.avro.defaults import is_default_of
from strandline.schemas.avro.nodes import NAMED, NO_DEFAULT, PRIMITIVES, AvroField, AvroNode
from strandline.schemas.types import InvalidSchema

LEVELS_MAX: Final = 150
"""Schemas inside schemas, in the text."""
JSON_LEVELS_MAX: Final = 500
"""Objects and lists inside one another, in the text."""
NAME_CHARACTERS_MAX: Final = 1000

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORDERS: Final = ("ascending", "descending", "ignore")
_SCHEMA_WORDS: Final = frozenset(("type", "name", "namespace", "doc", "aliases"))
_KIND_WORDS: Final = {
    "record": frozenset(("fields",)),
    "error": frozenset(("fields",)),
    "enum": frozenset(("symbols", "default")),
    "fixed": frozenset(("size",)),
    "array": frozenset(("items",)),
    "map": frozenset(("values",)),
}
_FIELD_WORDS: Final = frozenset(("name", "type", "doc", "default", "order", "aliases"))

Names = dict[str, AvroNode]


def parse_text(text: str, names: Names) -> AvroNode:
    """Parse a schema that may use `names`; those that it defines are added. Raise InvalidSchema."""
    try:
        value = json.loads(text, parse_constant=_reject_constant)
        _check_depth(value)
        return _Parser(names).schema(value, "", 0)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise InvalidSchema(f"the text is not JSON: {error}") from None


class _Parser:
    """One pass over a schema's JSON."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def schema(self, value: Any, namespace: str, level: int) -> AvroNode:
        if level > LEVELS_MAX:
            raise _too_deep()
        match value:
            case str():
                return self._named_by(value, namespace)
            case list():
                return self._union(value, namespace, level)
            case dict():
                return self._object(value, namespace, level)
        raise InvalidSchema(f"{_shown(value)} is not a schema: say a type's name, an object or a list")

    def _named_by(self, text: str, namespace: str) -> AvroNode:
        if text in PRIMITIVES:
            return AvroNode(text)
        found = self._names.get(_full_name(text, namespace)) or self._names.get(text)
        if found is None:
            raise InvalidSchema(f"the type {_shown(text)} is not defined")
        return found

    def _union(self, value: list[Any], namespace: str, level: int) -> AvroNode:
        branches = [self.schema(each, namespace, level + 1) for each in value]
        seen: set[str] = set()
        for branch in branches:
            if branch.kind == "union":
                raise InvalidSchema("a union may not directly contain another union")
            if branch.label in seen:
                raise InvalidSchema(f"a union contains {branch.label} twice")
            seen.add(branch.label)
        return AvroNode("union", branches=branches)

    def _object(self, value: dict[str, Any], namespace: str, level: int) -> AvroNode:
        kind = value.get("type")
        if kind is None:
            raise InvalidSchema(f"{_shown(value)} has no type")
        if not isinstance(kind, str):
            # {"type": {...}} is the schema inside.
            return self.schema(kind, namespace, level + 1)
        if kind in NAMED:
            return self._define(kind, value, namespace, level)
        known = _KIND_WORDS.get(kind, frozenset()) | _SCHEMA_WORDS
        properties = {name: each for name, each in value.items() if name not in known}
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            if inner not in value:
                raise InvalidSchema(f"the {kind} has no {inner}")
            items = self.schema(value[inner], namespace, level + 1)
            return AvroNode(kind, items=items, properties=properties)
        if kind in PRIMITIVES:
            return AvroNode(kind, properties=properties)
        return self._named_by(kind, namespace)

    def _define(self, kind: str, value: dict[str, Any], namespace: str, level: int) -> AvroNode:
        name = self._name_of(kind, value, namespace)
        if name in self._names:
            raise InvalidSchema(f"{name} is defined twice")
        inside = name.rpartition(".")[0]
        known = _KIND_WORDS[kind] | _SCHEMA_WORDS
        node = AvroNode(
            kind,
            name,
            doc=_doc(value),
            aliases=[_full_name(each, inside) for each in _aliases(value, f"{kind} {name}")],
            properties={each: value[each] for each in value if each not in known},
        )
        # It is known before its fields are read, because they may use it.
        self._names[name] = node
        if kind == "enum":
            _read_enum(node, value)
        elif kind == "fixed":
            _read_fixed(node, value)
        else:
            self._read_fields(node, value, inside, level)
        return node

    def _name_of(self, kind: str, value: dict[str, Any], namespace: str) -> str:
        name, own_namespace = value.get("name"), value.get("namespace")
        if not isinstance(name, str) or not name:
            raise InvalidSchema(f"a {kind} has no name")
        if own_namespace is not None and not isinstance(own_namespace, str):
            raise InvalidSchema(f"the namespace of {_shown(name)} is not a string")
        full = _full_name(name, namespace if own_namespace is None else own_namespace)
        _check_name(full, f"name of a {kind}", with_dots=True)
        if full in PRIMITIVES or full in NAMED or full in ("array", "map", "union"):
            raise InvalidSchema(f"{full} is the name of a type of Avro and can not be defined")
        return full

    def _read_fields(self, node: AvroNode, value: dict[str, Any], namespace: str, level: int) -> None:
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"{node.name} has no list of fields")
        seen: set[str] = set()
        for each in fields:
            if not isinstance(each, dict):
                raise InvalidSchema(f"{_shown(each)} is not a field of {node.name}")
            read = self._field(each, node.name, namespace, level)
            if read.name in seen:
                raise InvalidSchema(f"{node.name} has the field {read.name} twice")
            seen.add(read.name)
            node.fields.append(read)
        # Only now: a default of a recursive type needs all its fields.
        for read in node.fields:
            if read.has_default and not is_default_of(read.default, read.type):
                what = f"the default {_shown(read.default)} of the field {read.name} of {node.name}"
                raise InvalidSchema(f"{what} is no {read.type.label}")

    def _field(self, value: dict[str, Any], record: str, namespace: str, level: int) -> AvroField:
        name = value.get("name")
        if not isinstance(name, str):
            raise InvalidSchema(f"a field of {record} has no name")
        _check_name(name, f"name of a field of {record}")
        if "type" not in value:
            raise InvalidSchema(f"the field {name} of {record} has no type")
        order = value.get("order")
        if order is not None and (not isinstance(order, str) or order.lower() not in _ORDERS):
            raise InvalidSchema(f"the order of the field {name} of {record} is none of {', '.join(_ORDERS)}")
        return AvroField(
            name,
            self.schema(value["type"], namespace, level + 1),
            doc=_doc(value),
            default=value.get("default", NO_DEFAULT),
            order=None if order is None else order.lower(),
            aliases=_aliases(value, f"field {name} of {record}"),
            properties={each: value[each] for each in value if each not in _FIELD_WORDS},
        )


def _read_enum(node: AvroNode, value: dict[str, Any]) -> None:
    symbols = value.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
        raise InvalidSchema(f"the enum {node.name} has no list of symbols")
    for symbol in symbols:
        _check_name(symbol, f"symbol of {node.name}")
    if len(set(symbols)) < len(symbols):
        raise InvalidSchema(f"the enum {node.name} has a symbol twice")
    default = value.get("default")
    if default is not None and default not in symbols:
        raise InvalidSchema(f"the default {_shown(default)} of the enum {node.name} is not among its symbols")
    node.symbols, node.default_symbol = symbols, default


def _read_fixed(node: AvroNode, value: dict[str, Any]) -> None:
    size = value.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
        raise InvalidSchema(f"the fixed {node.name} has no size")
    node.size = size


def _aliases(value: dict[str, Any], owner: str) -> list[str]:
    aliases = value.get("aliases") or []
    if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
        raise InvalidSchema(f"the aliases of the {owner} are no list of names")
    for each in aliases:
        _check_name(each, f"alias of the {owner}", with_dots=True)
    return aliases


def _doc(value: dict[str, Any]) -> str | None:
    doc = value.get("doc")
    return doc if isinstance(doc, str) else None


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _check_name(name: str, what: str, *, with_dots: bool = False) -> None:
    parts = name.split(".") if with_dots else [name]
    if len(name) > NAME_CHARACTERS_MAX or not all(_NAME.fullmatch(part) for part in parts):
        raise InvalidSchema(f"{_shown(name)} is illegal as {what}")


def _reject_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number of JSON")


def _check_depth(value: Any) -> None:
    """Reject JSON that is nested too deep to be walked, also in what is no schema: properties and defaults."""
    waiting = [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        if depth > JSON_LEVELS_MAX:
            raise _too_deep()
        if isinstance(each, dict):
            waiting += [(inner, depth + 1) for inner in each.values()]
        elif isinstance(each, list):
            waiting += [(inner, depth + 1) for inner in each]


def _too_deep() -> InvalidSchema:
    return InvalidSchema(f"the schema is nested too deep: {LEVELS_MAX} levels are allowed")


def _shown(value: Any) -> str:
    """Return a value for a sentence, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
