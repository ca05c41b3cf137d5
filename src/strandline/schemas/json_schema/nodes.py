"""What a JSON Schema says, in one form for all drafts.

A schema with keywords of several groups (an `enum` beside a `type`, an `anyOf` beside `properties`) becomes a
`Combination` by `allOf` of one node for each group. A list of types becomes one by `anyOf`. So every node has one
subject, and two nodes are compared group by group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from strandline.schemas.json_schema.documents import Json

NO_DEFAULT = object()
Number = int | Decimal


@dataclass(eq=False, kw_only=True)
class SchemaNode:
    """A schema, with the annotations that all kinds share. Nodes are equal only if they are the same object."""

    id: str | None = None
    title: str | None = None
    description: str | None = None
    default: Json = NO_DEFAULT
    connect_type: str | None = None

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT


@dataclass(eq=False)
class Pointer(SchemaNode):
    """A `$ref`, and the schema that it names."""

    ref: str
    target: SchemaNode | None = None


class AnyValue(SchemaNode):
    """The schema that accepts everything: `true` or `{}`."""


class NoValue(SchemaNode):
    """The schema that accepts nothing: `false`."""


class BooleanValue(SchemaNode):
    """A boolean."""


class NullValue(SchemaNode):
    """The value null."""


@dataclass(eq=False, kw_only=True)
class StringValue(SchemaNode):
    """A string with its bounds."""

    max_length: Number | None = None
    min_length: Number | None = None
    pattern: str | None = None


@dataclass(eq=False, kw_only=True)
class NumericValue(SchemaNode):
    """A number or an integer with its bounds."""

    is_integer: bool = False
    maximum: Number | None = None
    minimum: Number | None = None
    exclusive_maximum: Number | None = None
    exclusive_minimum: Number | None = None
    multiple_of: Number | None = None


@dataclass(eq=False, kw_only=True)
class Enumeration(SchemaNode):
    """The values of `enum`, each as sorted JSON text."""

    values: frozenset[str]


@dataclass(eq=False, kw_only=True)
class Constant(SchemaNode):
    """The value of `const`, as sorted JSON text."""

    value: str


@dataclass(eq=False, kw_only=True)
class Negation(SchemaNode):
    """A `not`."""

    negated: SchemaNode


@dataclass(eq=False, kw_only=True)
class Conditional(SchemaNode):
    """An `if` with its `then` and `else`; `condition_text` is its sorted JSON text."""

    condition: SchemaNode
    condition_text: str
    then: SchemaNode | None = None
    otherwise: SchemaNode | None = None


@dataclass(eq=False, kw_only=True)
class Combination(SchemaNode):
    """An `allOf`, `anyOf` or `oneOf` without repeated members."""

    criterion: str
    members: list[SchemaNode]


@dataclass(eq=False, kw_only=True)
class ObjectValue(SchemaNode):
    """An object with its properties."""

    properties: dict[str, SchemaNode] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    pattern_properties: dict[str, SchemaNode] = field(default_factory=dict)
    permits_additional: bool = True
    additional: SchemaNode | None = None
    unevaluated: SchemaNode | None = None
    names: SchemaNode | None = None
    max_properties: Number | None = None
    min_properties: Number | None = None
    dependent_required: dict[str, frozenset[str]] = field(default_factory=dict)
    dependent_schemas: dict[str, SchemaNode] = field(default_factory=dict)


@dataclass(eq=False, kw_only=True)
class ArrayValue(SchemaNode):
    """An array: a list (`all_items`) or a tuple (`items` by position, then `additional`)."""

    all_items: SchemaNode | None = None
    items: list[SchemaNode] = field(default_factory=list)
    permits_additional: bool = True
    additional: SchemaNode | None = None
    unevaluated: SchemaNode | None = None
    contains: SchemaNode | None = None
    max_contains: Number | None = None
    min_contains: Number | None = None
    max_items: Number | None = None
    min_items: Number | None = None
    unique_items: bool = False
