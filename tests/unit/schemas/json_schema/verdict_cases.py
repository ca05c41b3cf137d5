"""Pairs of JSON schemas with the differences that make the second unable to read data of the first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Case = tuple[str, Any, Any, set[str]]
"""Name, old schema, new schema, kinds of the incompatible differences."""

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
NULL = {"type": "null"}
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def obj(properties: dict[str, Any] | None = None, **keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties or {}, **keywords}


def closed(properties: dict[str, Any] | None = None, **keywords: Any) -> dict[str, Any]:
    return obj(properties, additionalProperties=False, **keywords)


def tuple_of(*items: Any, **keywords: Any) -> dict[str, Any]:
    return {"type": "array", "items": list(items), **keywords}


def modern(**keywords: Any) -> dict[str, Any]:
    return {"$schema": DRAFT_2020, **keywords}


WITH_DEFAULT = {"type": "string", "default": "x"}
TREE = obj({"value": STRING, "left": {"$ref": "#"}}, additionalProperties=False)

CASES: list[Case] = [
    ("the same", obj({"a": STRING}), obj({"a": STRING}), set()),
    ("annotations", STRING, {**STRING, "title": "t", "description": "d", "$id": "i", "default": "x"}, set()),
    ("integer to number", INTEGER, NUMBER, set()),
    ("number to integer", NUMBER, INTEGER, {"TYPE_NARROWED"}),
    ("string to integer", STRING, INTEGER, {"TYPE_CHANGED"}),
    ("string to anything", STRING, {}, set()),
    ("anything to string", {}, STRING, {"TYPE_CHANGED"}),
    ("true to {}", True, {}, set()),
    ("nothing to string", False, STRING, set()),
    ("string to nothing", STRING, False, {"TYPE_CHANGED"}),
    ("pattern added", STRING, {**STRING, "pattern": "a"}, {"PATTERN_ADDED"}),
    ("pattern removed", {**STRING, "pattern": "a"}, STRING, set()),
    ("pattern changed", {**STRING, "pattern": "a"}, {**STRING, "pattern": "b"}, {"PATTERN_CHANGED"}),
    ("multiple added", NUMBER, {**NUMBER, "multipleOf": 2}, {"MULTIPLE_OF_ADDED"}),
    ("multiple removed", {**NUMBER, "multipleOf": 2}, NUMBER, set()),
    ("multiple expanded", {**NUMBER, "multipleOf": 2}, {**NUMBER, "multipleOf": 4}, {"MULTIPLE_OF_EXPANDED"}),
    ("multiple reduced", {**NUMBER, "multipleOf": 4}, {**NUMBER, "multipleOf": 2}, set()),
    ("multiple reduced to a fraction", {**NUMBER, "multipleOf": 0.3}, {**NUMBER, "multipleOf": 0.1}, set()),
    ("multiple changed", {**NUMBER, "multipleOf": 4}, {**NUMBER, "multipleOf": 3}, {"MULTIPLE_OF_CHANGED"}),
    ("multiple with zeros", {**NUMBER, "multipleOf": 0.5}, {**NUMBER, "multipleOf": 0.50}, set()),
    ("enum extended", {"enum": ["a"]}, {"enum": ["b", "a"]}, set()),
    ("enum reordered", {"enum": ["a", "b"]}, {"enum": ["b", "a"]}, set()),
    ("enum narrowed", {"enum": ["a", "b"]}, {"enum": ["a"]}, {"ENUM_ARRAY_NARROWED"}),
    ("enum changed", {"enum": ["a", "b"]}, {"enum": ["a", "c"]}, {"ENUM_ARRAY_CHANGED"}),
    ("enum of 1.0", {"enum": [1]}, {"enum": [1.0]}, set()),
    ("enum of true is not 1", {"enum": [1]}, {"enum": [True]}, {"ENUM_ARRAY_CHANGED"}),
    ("const changed", {"const": 1}, {"const": 2}, {"ENUM_ARRAY_CHANGED"}),
    ("const the same", {"const": {"a": 1, "b": 2}}, {"const": {"b": 2, "a": 1}}, set()),
    ("typed enum extended", {**STRING, "enum": ["a"]}, {**STRING, "enum": ["a", "b"]}, set()),
    (
        "typed enum narrowed",
        {**STRING, "enum": ["a", "b"]},
        {**STRING, "enum": ["a"]},
        {"COMBINED_TYPE_SUBSCHEMAS_CHANGED"},
    ),
    ("enum added", STRING, {**STRING, "enum": ["a"]}, {"TYPE_CHANGED"}),
    ("enum removed", {**STRING, "enum": ["a"]}, STRING, set()),
    ("format is not compared", STRING, {**STRING, "format": "date"}, set()),
    # Objects.
    ("optional property to open", obj(), obj({"a": STRING}), {"OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"}),
    (
        "required property to open",
        obj(),
        obj({"a": STRING}, required=["a"]),
        {"REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"},
    ),
    (
        "required property with default to open",
        obj(),
        obj({"a": WITH_DEFAULT}, required=["a"]),
        {"REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL"},
    ),
    ("empty property to open", obj(), obj({"a": {}}), set()),
    ("property removed from open", obj({"a": STRING}), obj(), set()),
    ("optional property to closed", closed(), closed({"a": STRING}), set()),
    (
        "required property to closed",
        closed(),
        closed({"a": STRING}, required=["a"]),
        {"REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"},
    ),
    ("required with default to closed", closed(), closed({"a": WITH_DEFAULT}, required=["a"]), set()),
    (
        "property removed from closed",
        closed({"a": STRING}),
        closed(),
        {"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"},
    ),
    ("false property removed from closed", closed({"a": False}), closed(), set()),
    ("property type changed", obj({"a": STRING}), obj({"a": INTEGER}), {"TYPE_CHANGED"}),
    ("became required", obj({"a": STRING}), obj({"a": STRING}, required=["a"]), {"REQUIRED_ATTRIBUTE_ADDED"}),
    (
        "became required with default",
        obj({"a": WITH_DEFAULT}),
        obj({"a": WITH_DEFAULT}, required=["a"]),
        set(),
    ),
    ("became optional", obj({"a": STRING}, required=["a"]), obj({"a": STRING}), set()),
    ("undeclared became required", obj(), obj(required=["a"]), {"REQUIRED_ATTRIBUTE_ADDED"}),
    ("open to closed", obj(), closed(), {"ADDITIONAL_PROPERTIES_REMOVED"}),
    ("closed to open", closed(), obj(), set()),
    ("open to partially open", obj(), obj(additionalProperties=STRING), {"ADDITIONAL_PROPERTIES_NARROWED"}),
    ("partially open to open", obj(additionalProperties=STRING), obj(), set()),
    ("others widened", obj(additionalProperties=INTEGER), obj(additionalProperties=NUMBER), set()),
    ("others narrowed", obj(additionalProperties=NUMBER), obj(additionalProperties=INTEGER), {"TYPE_NARROWED"}),
    (
        "added property is covered",
        obj(additionalProperties=INTEGER),
        obj({"a": NUMBER}, additionalProperties=INTEGER),
        set(),
    ),
    (
        "added property is not covered",
        obj(additionalProperties=NUMBER),
        obj({"a": INTEGER}, additionalProperties=NUMBER),
        {"TYPE_NARROWED", "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"},
    ),
    (
        "removed property is covered",
        obj({"a": INTEGER}, additionalProperties=NUMBER),
        obj(additionalProperties=NUMBER),
        set(),
    ),
    (
        "removed property is not covered",
        obj({"a": STRING}, additionalProperties=NUMBER),
        obj(additionalProperties=NUMBER),
        {"TYPE_CHANGED", "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"},
    ),
    (
        "removed property matches a pattern",
        closed({"x_a": STRING}, patternProperties={"^x_": STRING}),
        closed(patternProperties={"^x_": STRING}),
        set(),
    ),
    (
        "removed property matches no pattern",
        closed({"a": STRING}, patternProperties={"^x_": STRING}),
        closed(patternProperties={"^x_": STRING}),
        {"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"},
    ),
    (
        "pattern property removed",
        closed(patternProperties={"^x_": STRING}),
        closed(),
        {"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"},
    ),
    (
        "pattern over a declared property",
        closed({"x_a": STRING}),
        closed({"x_a": STRING}, patternProperties={"^x_": INTEGER}),
        {"TYPE_CHANGED"},
    ),
    (
        "unevaluated to closed",
        modern(type="object"),
        modern(type="object", unevaluatedProperties=False),
        {"UNEVALUATED_PROPERTIES_REMOVED"},
    ),
    ("unevaluated to open", modern(type="object", unevaluatedProperties=False), modern(type="object"), set()),
    (
        "unevaluated narrowed",
        modern(type="object"),
        modern(type="object", unevaluatedProperties=STRING),
        {"UNEVALUATED_PROPERTIES_NARROWED"},
    ),
    ("dependency added", obj(), obj(dependencies={"a": ["b"]}), {"DEPENDENCY_ARRAY_ADDED"}),
    ("dependency removed", obj(dependencies={"a": ["b"]}), obj(), set()),
    (
        "dependency extended",
        obj(dependencies={"a": ["b"]}),
        obj(dependencies={"a": ["b", "c"]}),
        {"DEPENDENCY_ARRAY_EXTENDED"},
    ),
    ("dependency narrowed", obj(dependencies={"a": ["b", "c"]}), obj(dependencies={"a": ["b"]}), set()),
    (
        "dependency changed",
        obj(dependencies={"a": ["b"]}),
        obj(dependencies={"a": ["c"]}),
        {"DEPENDENCY_ARRAY_CHANGED"},
    ),
    ("dependency schema added", obj(), obj(dependencies={"a": obj()}), {"DEPENDENCY_SCHEMA_ADDED"}),
    ("dependency schema removed", obj(dependencies={"a": obj()}), obj(), set()),
    (
        "dependent required added",
        modern(type="object"),
        modern(type="object", dependentRequired={"a": ["b"]}),
        {"DEPENDENCY_ARRAY_ADDED"},
    ),
    ("names added", obj(), obj(propertyNames={"pattern": "a"}), {"SCHEMA_ADDED"}),
    # Arrays.
    ("items added", {"type": "array"}, {"type": "array", "items": STRING}, {"SCHEMA_ADDED"}),
    ("items removed", {"type": "array", "items": STRING}, {"type": "array"}, set()),
    ("items widened", {"type": "array", "items": INTEGER}, {"type": "array", "items": NUMBER}, set()),
    ("items narrowed", {"type": "array", "items": NUMBER}, {"type": "array", "items": INTEGER}, {"TYPE_NARROWED"}),
    ("unique added", {"type": "array"}, {"type": "array", "uniqueItems": True}, {"UNIQUE_ITEMS_ADDED"}),
    ("unique removed", {"type": "array", "uniqueItems": True}, {"type": "array"}, set()),
    ("item to open tuple", tuple_of(STRING), tuple_of(STRING, STRING), {"ITEM_ADDED_TO_OPEN_CONTENT_MODEL"}),
    ("empty item to open tuple", tuple_of(STRING), tuple_of(STRING, {}), set()),
    (
        "item to closed tuple",
        tuple_of(STRING, additionalItems=False),
        tuple_of(STRING, STRING, additionalItems=False),
        set(),
    ),
    (
        "item removed from closed tuple",
        tuple_of(STRING, STRING, additionalItems=False),
        tuple_of(STRING, additionalItems=False),
        {"ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"},
    ),
    ("item removed from open tuple", tuple_of(STRING, STRING), tuple_of(STRING), set()),
    (
        "item removed is covered",
        tuple_of(STRING, INTEGER, additionalItems=NUMBER),
        tuple_of(STRING, additionalItems=NUMBER),
        set(),
    ),
    (
        "item removed is not covered",
        tuple_of(STRING, STRING, additionalItems=NUMBER),
        tuple_of(STRING, additionalItems=NUMBER),
        {"TYPE_CHANGED", "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"},
    ),
    (
        "item added is not covered",
        tuple_of(STRING, additionalItems=NUMBER),
        tuple_of(STRING, INTEGER, additionalItems=NUMBER),
        {"TYPE_NARROWED", "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"},
    ),
    ("other items closed", tuple_of(STRING), tuple_of(STRING, additionalItems=False), {"ADDITIONAL_ITEMS_REMOVED"}),
    ("other items opened", tuple_of(STRING, additionalItems=False), tuple_of(STRING), set()),
    (
        "other items narrowed",
        tuple_of(STRING),
        tuple_of(STRING, additionalItems=STRING),
        {"ADDITIONAL_ITEMS_NARROWED"},
    ),
    (
        "prefix items closed",
        modern(type="array", prefixItems=[STRING]),
        modern(type="array", prefixItems=[STRING], items=False),
        {"ADDITIONAL_ITEMS_REMOVED"},
    ),
    (
        "prefix item to closed",
        modern(type="array", prefixItems=[STRING], items=False),
        modern(type="array", prefixItems=[STRING, NUMBER], items=False),
        set(),
    ),
    (
        "contains added",
        modern(type="array"),
        modern(type="array", contains=STRING),
        {"SCHEMA_ADDED", "MIN_CONTAINS_ADDED"},
    ),
    (
        "contains narrowed",
        modern(type="array", contains=NUMBER),
        modern(type="array", contains=INTEGER),
        {"TYPE_NARROWED"},
    ),
    (
        "contains widened under a maximum",
        modern(type="array", contains=INTEGER, maxContains=2),
        modern(type="array", contains=NUMBER, maxContains=2),
        {"MAX_CONTAINS_DECREASED"},
    ),
    # Combinations.
    ("single to union", STRING, {"oneOf": [INTEGER, STRING]}, set()),
    ("single to union without it", STRING, {"oneOf": [INTEGER, NULL]}, {"TYPE_CHANGED"}),
    ("union to single", {"anyOf": [INTEGER, STRING]}, STRING, {"TYPE_CHANGED"}),
    ("singleton union", {"oneOf": [STRING]}, STRING, set()),
    ("nullable", STRING, {"type": ["null", "string"]}, set()),
    ("no longer nullable", {"type": ["null", "string"]}, STRING, {"TYPE_CHANGED"}),
    ("list of one type", STRING, {"type": ["string"]}, set()),
    ("product to one of it", {"allOf": [STRING, {"enum": ["a"]}]}, STRING, set()),
    ("single to product", STRING, {"allOf": [STRING, {"enum": ["a"]}]}, {"TYPE_CHANGED"}),
    ("union reordered", {"oneOf": [STRING, INTEGER]}, {"oneOf": [INTEGER, STRING]}, set()),
    ("union repeated", {"oneOf": [STRING, INTEGER]}, {"oneOf": [INTEGER, STRING, STRING]}, set()),
    ("union extended", {"anyOf": [STRING]}, {"anyOf": [STRING, NULL]}, set()),
    ("union narrowed", {"anyOf": [STRING, INTEGER, NULL]}, {"anyOf": [STRING, NULL]}, {"SUM_TYPE_NARROWED"}),
    (
        "union changed",
        {"anyOf": [STRING, INTEGER]},
        {"anyOf": [STRING, NULL]},
        {"COMBINED_TYPE_SUBSCHEMAS_CHANGED"},
    ),
    (
        "product extended",
        {"allOf": [STRING, {"enum": ["a"]}]},
        {"allOf": [STRING, {"enum": ["a"]}, {"not": NULL}]},
        {"PRODUCT_TYPE_EXTENDED"},
    ),
    (
        "product narrowed",
        {"allOf": [STRING, {"enum": ["a"]}, {"not": NULL}]},
        {"allOf": [STRING, {"not": NULL}]},
        set(),
    ),
    ("one to any", {"oneOf": [STRING, INTEGER]}, {"anyOf": [STRING, INTEGER]}, set()),
    ("any to one", {"anyOf": [STRING, INTEGER]}, {"oneOf": [STRING, INTEGER]}, {"COMBINED_TYPE_CHANGED"}),
    ("all to any", {"allOf": [STRING, INTEGER]}, {"anyOf": [STRING, INTEGER]}, set()),
    ("any to all", {"anyOf": [STRING, INTEGER]}, {"allOf": [STRING, INTEGER]}, {"COMBINED_TYPE_CHANGED"}),
    ("not narrowed", {"not": NUMBER}, {"not": INTEGER}, set()),
    ("not extended", {"not": INTEGER}, {"not": NUMBER}, {"NOT_TYPE_EXTENDED"}),
    (
        "then narrowed",
        {"if": {"const": 1}, "then": NUMBER},
        {"if": {"const": 1}, "then": INTEGER},
        {"TYPE_NARROWED"},
    ),
    ("condition changed", {"if": {"const": 1}, "then": NUMBER}, {"if": {"const": 2}, "then": NUMBER}, {"TYPE_CHANGED"}),
    # References.
    ("reference to the same", {"$ref": "#/definitions/a", "definitions": {"a": STRING}}, STRING, set()),
    (
        "referenced type changed",
        {"$ref": "#/definitions/a", "definitions": {"a": STRING}},
        {"$ref": "#/definitions/a", "definitions": {"a": INTEGER}},
        {"TYPE_CHANGED"},
    ),
    (
        "unused definition changed",
        {**STRING, "definitions": {"a": STRING}},
        {**STRING, "definitions": {"a": INTEGER}},
        set(),
    ),
    ("recursive, the same", TREE, {**TREE}, set()),
    (
        "recursive, changed",
        TREE,
        {**TREE, "properties": {**TREE["properties"], "value": INTEGER}},
        {"TYPE_CHANGED"},
    ),
    (
        "recursive, unrolled once",
        TREE,
        {**closed({"value": STRING, "left": {"$ref": "#/definitions/t"}}), "definitions": {"t": {"$ref": "#"}}},
        set(),
    ),
    # Other drafts.
    (
        "draft 4 exclusive",
        {"$schema": DRAFT_4, **NUMBER, "maximum": 5},
        {"$schema": DRAFT_4, **NUMBER, "maximum": 5, "exclusiveMaximum": True},
        {"EXCLUSIVE_MAXIMUM_ADDED"},
    ),
    ("from draft 4 to 2020-12", {"$schema": DRAFT_4, **STRING}, modern(**STRING), set()),
    (
        "reference beside keywords",
        modern(**{"$ref": "#/$defs/a"}, maxLength=3, **{"$defs": {"a": STRING}}),
        STRING,
        set(),
    ),
]

BOUNDS = {
    "maxLength": ("string", True),
    "minLength": ("string", False),
    "maximum": ("number", True),
    "minimum": ("number", False),
    "exclusiveMaximum": ("number", True),
    "exclusiveMinimum": ("number", False),
    "maxItems": ("array", True),
    "minItems": ("array", False),
    "maxProperties": ("object", True),
    "minProperties": ("object", False),
}


def bound_cases() -> Iterator[Case]:
    """Yield each bound with each pair of values, at several places of a schema."""
    for keyword, (type_name, is_upper) in BOUNDS.items():
        kind = "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in keyword)
        for old in (None, 0, 1, 7, 8, 10**20):
            for new in (None, 0, 1, 7, 8, 10**20):
                if old == new or new is None:
                    wanted = set()
                elif old is None:
                    wanted = {f"{kind}_ADDED"}
                elif is_upper:
                    wanted = {f"{kind}_DECREASED"} if new < old else set()
                else:
                    wanted = {f"{kind}_INCREASED"} if new > old else set()
                schemas = [{"type": type_name} | ({} if value is None else {keyword: value}) for value in (old, new)]
                for where, wrap in WRAPPERS.items():
                    yield f"{keyword} {old} to {new} {where}", wrap(schemas[0]), wrap(schemas[1]), wanted


WRAPPERS = {
    "at the root": lambda schema: schema,
    "in a property": lambda schema: closed({"a": schema}),
    "in items": lambda schema: {"type": "array", "items": schema},
    "in a tuple": lambda schema: tuple_of(STRING, schema, additionalItems=False),
    "behind a reference": lambda schema: {"$ref": "#/definitions/a", "definitions": {"a": schema}},
    "in other properties": lambda schema: obj(additionalProperties=schema),
    "in 2020-12": lambda schema: modern(**schema),
}
