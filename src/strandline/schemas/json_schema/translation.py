"""Make nodes from a document, and resolve every `$ref` that the document reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urljoin

import referencing.exceptions
from jsonschema_specifications import REGISTRY

from strandline.schemas.json_schema.documents import Json, dump, identity
from strandline.schemas.json_schema.drafts import DRAFT_4, Draft, draft_of
from strandline.schemas.json_schema.nodes import (
    NO_DEFAULT,
    AnyValue,
    ArrayValue,
    BooleanValue,
    Combination,
    Conditional,
    Constant,
    Enumeration,
    Negation,
    NoValue,
    NullValue,
    NumericValue,
    ObjectValue,
    Pointer,
    SchemaNode,
    StringValue,
)
from strandline.schemas.types import InvalidSchema

REFERENCE_KEYWORDS: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_STRING: Final = frozenset({"maxLength", "minLength", "pattern"})
_NUMBER: Final = frozenset({"maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"})
_ARRAY: Final = frozenset(
    {"items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems", "uniqueItems"}
    | {"contains", "minContains", "maxContains"}
)
_OBJECT: Final = frozenset(
    {"properties", "required", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"}
    | {"minProperties", "maxProperties", "dependencies", "dependentRequired", "dependentSchemas"}
)


def translate(document: Json, draft: Draft, references: Mapping[str, Json]) -> SchemaNode:
    """Return the node of `document`. Only the schemas that it reaches are translated."""
    return _Translation(document, draft, references).run()


class _Translation:
    """One document and those that it refers to, on their way to nodes."""

    def __init__(self, document: Json, draft: Draft, references: Mapping[str, Json]) -> None:
        self._document = document
        self._draft = draft
        named = document.get(draft.id_keyword) if isinstance(document, dict) else None
        self._base = named if isinstance(named, str) else ""
        resources = [(self._base, draft.specification.create_resource(document))]
        for name, each in references.items():
            resource = draft_of(each, draft).specification.create_resource(each)
            resources += [(address, resource) for address in {name, f"./{name}", urljoin(self._base, name)}]
        try:
            self._registry = REGISTRY.with_resources(resources).crawl()
        except (referencing.exceptions.CannotDetermineSpecification, ValueError, TypeError, AttributeError) as error:
            raise InvalidSchema(f"The identifiers in the schema can not be resolved: {error}.") from None
        self._nodes: dict[int, SchemaNode] = {}
        self._open: list[tuple[Pointer, Any]] = []

    def run(self) -> SchemaNode:
        root = self._node(self._document, self._registry.resolver(self._base), is_entered=True)
        pointers = []
        # Targets wait in a list, because a chain of references may be longer than the stack.
        while self._open:
            pointer, resolver = self._open.pop()
            pointers.append(pointer)
            contents, resolver = self._lookup(pointer.ref, resolver)
            pointer.target = self._node(contents, resolver, is_entered=True)
        for pointer in pointers:
            _shorten(pointer)
        return root

    def _lookup(self, ref: str, resolver: Any) -> tuple[Json, Any]:
        # A definition is found in either place, because writers mix up the names that drafts gave it.
        for spelling in (ref, ref.replace("#/$defs/", "#/definitions/"), ref.replace("#/definitions/", "#/$defs/")):
            try:
                found = resolver.lookup(spelling)
            except (referencing.exceptions.Unresolvable, ValueError, TypeError, KeyError, IndexError):
                continue
            if isinstance(found.contents, (dict, bool)):
                return found.contents, found.resolver
        raise InvalidSchema(f"The reference {ref!r} names no schema here or among the references of the request.")

    def _node(self, schema: Json, resolver: Any, *, is_entered: bool = False) -> SchemaNode:
        """Translate one schema. `is_entered` says that the resolver knows the schema's own address already."""
        if isinstance(schema, bool):
            return AnyValue() if schema else NoValue()
        if not isinstance(schema, dict):
            raise InvalidSchema(f"A schema must be an object or a boolean, and {dump(schema)[:60]} is neither.")
        # A schema has one place, so its identity is that of its JSON object; references to it share the node.
        node = self._nodes.get(id(schema))
        if node is None:
            if isinstance(schema.get(self._draft.id_keyword), str) and not is_entered:
                resolver = resolver.in_subresource(self._draft.specification.create_resource(schema))
            node = self._nodes[id(schema)] = self._annotated(schema, self._translated(schema, resolver))
        return node

    def _annotated(self, schema: dict[str, Json], node: SchemaNode) -> SchemaNode:
        node.id = _text(schema.get(self._draft.id_keyword))
        node.title = _text(schema.get("title"))
        node.description = _text(schema.get("description"))
        node.default = schema.get("default", NO_DEFAULT)
        node.connect_type = _text(schema.get("connect.type"))
        return node

    def _translated(self, schema: dict[str, Json], resolver: Any) -> SchemaNode:
        parts = list(self._parts(schema, resolver))
        if not parts:
            return AnyValue()
        return parts[0] if len(parts) == 1 else Combination(criterion="allOf", members=parts)

    def _parts(self, schema: dict[str, Json], resolver: Any) -> Iterator[SchemaNode]:
        for keyword in REFERENCE_KEYWORDS:
            if isinstance(schema.get(keyword), str):
                pointer = Pointer(schema[keyword])
                self._open.append((pointer, resolver))
                yield pointer
                if self._draft.ref_replaces_siblings:
                    return
        if "enum" in schema:
            yield Enumeration(values=frozenset(map(identity, schema["enum"])))
        if "const" in schema and self._draft is not DRAFT_4:
            yield Constant(value=identity(schema["const"]))
        for criterion in ("allOf", "anyOf", "oneOf"):
            if criterion in schema:
                distinct = {identity(each): each for each in reversed(schema[criterion])}
                members = [self._node(each, resolver) for each in reversed(distinct.values())]
                yield Combination(criterion=criterion, members=members)
        if "not" in schema:
            yield Negation(negated=self._node(schema["not"], resolver))
        if "if" in schema and ("then" in schema or "else" in schema):
            yield Conditional(
                condition=self._node(schema["if"], resolver),
                condition_text=identity(schema["if"]),
                then=self._optional(schema, "then", resolver),
                otherwise=self._optional(schema, "else", resolver),
            )
        yield from self._typed(schema, resolver)

    def _optional(self, schema: dict[str, Json], keyword: str, resolver: Any) -> SchemaNode | None:
        return self._node(schema[keyword], resolver) if keyword in schema else None

    def _typed(self, schema: dict[str, Json], resolver: Any) -> Iterator[SchemaNode]:
        types = schema.get("type")
        if types is None:
            names = [
                name
                for name, keywords in (("string", _STRING), ("number", _NUMBER), ("array", _ARRAY), ("object", _OBJECT))
                if keywords & schema.keys()
            ]
            for name in names:
                yield self._of_type(name, schema, resolver)
            return
        names = [types] if isinstance(types, str) else types
        nodes = [self._of_type(name, schema, resolver) for name in dict.fromkeys(names)]
        yield nodes[0] if len(nodes) == 1 else Combination(criterion="anyOf", members=nodes)

    def _of_type(self, name: str, schema: dict[str, Json], resolver: Any) -> SchemaNode:
        match name:
            case "string":
                return StringValue(
                    max_length=schema.get("maxLength"),
                    min_length=schema.get("minLength"),
                    pattern=schema.get("pattern"),
                )
            case "number" | "integer":
                return _numeric(schema, is_integer=name == "integer")
            case "boolean":
                return BooleanValue()
            case "null":
                return NullValue()
            case "array":
                return self._array(schema, resolver)
            case "object":
                return self._object(schema, resolver)
        raise InvalidSchema(f"{name!r} is not a type of JSON Schema.")

    def _object(self, schema: dict[str, Json], resolver: Any) -> SchemaNode:
        dependencies = schema.get("dependencies", {})
        required = {name: each for name, each in dependencies.items() if isinstance(each, list)}
        schemas = {name: each for name, each in dependencies.items() if not isinstance(each, list)}
        required |= schema.get("dependentRequired", {})
        schemas |= schema.get("dependentSchemas", {})
        additional = schema.get("additionalProperties", True)
        names = schema.get("required", [])
        return ObjectValue(
            properties=self._mapped(schema.get("properties", {}), resolver),
            required=frozenset(names if isinstance(names, list) else ()),
            pattern_properties=self._mapped(schema.get("patternProperties", {}), resolver),
            permits_additional=additional is not False,
            additional=None if isinstance(additional, bool) else self._node(additional, resolver),
            unevaluated=self._optional(schema, "unevaluatedProperties", resolver),
            names=self._optional(schema, "propertyNames", resolver),
            max_properties=schema.get("maxProperties"),
            min_properties=schema.get("minProperties"),
            dependent_required={name: frozenset(each) for name, each in required.items()},
            dependent_schemas=self._mapped(schemas, resolver),
        )

    def _mapped(self, schemas: dict[str, Json], resolver: Any) -> dict[str, SchemaNode]:
        return {name: self._node(each, resolver) for name, each in schemas.items()}

    def _array(self, schema: dict[str, Json], resolver: Any) -> SchemaNode:
        items = schema.get("items", True)
        if isinstance(items, list):
            prefix, rest = items, schema.get("additionalItems", True)
        elif "prefixItems" in schema:
            prefix, rest = schema["prefixItems"], items
        else:
            prefix, rest = [], True
        single = None if items is True or isinstance(items, list) or prefix else self._node(items, resolver)
        return ArrayValue(
            all_items=single,
            items=[self._node(each, resolver) for each in prefix],
            permits_additional=rest is not False,
            additional=None if isinstance(rest, bool) else self._node(rest, resolver),
            unevaluated=self._optional(schema, "unevaluatedItems", resolver),
            contains=self._optional(schema, "contains", resolver),
            max_contains=schema.get("maxContains"),
            min_contains=schema.get("minContains", 1) if "contains" in schema else None,
            max_items=schema.get("maxItems"),
            min_items=schema.get("minItems"),
            unique_items=schema.get("uniqueItems", False) is True,
        )


def _numeric(schema: dict[str, Json], *, is_integer: bool) -> NumericValue:
    node = NumericValue(
        is_integer=is_integer,
        maximum=schema.get("maximum"),
        minimum=schema.get("minimum"),
        multiple_of=schema.get("multipleOf"),
    )
    # Draft 4 has a boolean beside the bound, later drafts a bound of its own.
    upper, lower = schema.get("exclusiveMaximum"), schema.get("exclusiveMinimum")
    if upper is True:
        node.maximum, node.exclusive_maximum = None, node.maximum
    elif not isinstance(upper, bool):
        node.exclusive_maximum = upper
    if lower is True:
        node.minimum, node.exclusive_minimum = None, node.minimum
    elif not isinstance(lower, bool):
        node.exclusive_minimum = lower
    return node


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _shorten(pointer: Pointer) -> None:
    """Let `pointer`, and those on its way, name a schema that is no reference. Raise InvalidSchema if none is there."""
    way: dict[int, Pointer] = {}
    node: SchemaNode | None = pointer
    while isinstance(node, Pointer):
        if id(node) in way:
            raise InvalidSchema(f"The reference {pointer.ref!r} leads back to itself.")
        way[id(node)] = node
        node = node.target
    for each in way.values():
        each.target = node
