"""One comparison of two schemas: which rule applies to a pair of nodes, and what bounds the work."""

from __future__ import annotations

from typing import Final

from strandline.schemas.json_schema.diff import arrays, combinations, objects, values
from strandline.schemas.json_schema.diff.kinds import LIMIT_REACHED, Differences, SchemaDifference, are_compatible
from strandline.schemas.json_schema.diff.rules import Rule
from strandline.schemas.json_schema.nodes import (
    AnyValue,
    ArrayValue,
    Combination,
    Conditional,
    Constant,
    Enumeration,
    Negation,
    NoValue,
    NumericValue,
    ObjectValue,
    Pointer,
    SchemaNode,
    StringValue,
)

WORK_MAX: Final = 1_500_000
"""Work of one comparison, a few seconds. A pair of schemas counts ten, one that was compared before counts one."""
PAIR_DIFFERENCES_MAX: Final = 100
"""Differences that a pair keeps. One difference has a path for each way that leads to it, and the ways can double."""


class _LimitReachedError(Exception):
    """More work than a comparison may take."""


def compare(old: SchemaNode, new: SchemaNode) -> Differences:
    """Return the differences between `old` and `new`, compatible ones included.

    A pair that contains itself counts as compatible inside itself. If it then turns out incompatible, what relied on
    it may be wrong. So the comparison runs again with the pairs known to be incompatible, until it finds no more.
    """
    known: dict[tuple[int, int], Differences] = {}
    work = 0
    while True:
        comparison = _Comparison(known, work)
        try:
            found = comparison.run(old, new)
        except _LimitReachedError:
            return [SchemaDifference(LIMIT_REACHED)]
        incompatible = {pair: each for pair, each in comparison.memory.items() if not are_compatible(each)}
        if not comparison.has_assumed or incompatible.keys() <= known.keys():
            return found
        known = incompatible
        work = comparison.work


class _Comparison:
    """One pass over two schemas. A pair of nodes is compared once, wherever it occurs."""

    def __init__(self, known: dict[tuple[int, int], Differences], work: int) -> None:
        self.memory: dict[tuple[int, int], Differences] = {}
        self.has_assumed = False
        self.work = work
        self._known = known
        self._waiting: list[tuple[tuple[int, int], Rule]] = []
        self._under_way: set[tuple[int, int]] = set()

    def run(self, old: SchemaNode, new: SchemaNode) -> Differences:
        """Return the differences between two nodes."""
        found = self._begin(old, new)
        while self._waiting:
            pair, rule = self._waiting[-1]
            try:
                # None starts a rule, and is what a pair returns that was just begun.
                inner = rule.send(found)  # type: ignore[arg-type]
            except StopIteration as end:
                found = self.memory[pair] = _shortened(end.value)
                self._under_way.remove(pair)
                self._waiting.pop()
            else:
                found = self._begin(*inner)
        assert found is not None
        return found

    def _begin(self, old: SchemaNode | None, new: SchemaNode | None) -> Differences | None:
        """Return the differences of a pair if they are known, else begin to compare it."""
        if old is None or new is None:
            return [] if old is new else [SchemaDifference("SCHEMA_ADDED" if old is None else "SCHEMA_REMOVED")]
        self._count(1)
        old, new = _end(old), _end(new)
        pair = (id(old), id(new))
        if (found := self.memory.get(pair)) is not None:
            return found
        if pair in self._under_way:
            if (found := self._known.get(pair)) is not None:
                return found
            self.has_assumed = True
            return []
        self._count(10)
        self._under_way.add(pair)
        self._waiting.append((pair, _rule(old, new)))
        return None

    def _count(self, work: int) -> None:
        self.work += work
        if self.work > WORK_MAX:
            raise _LimitReachedError


def _shortened(found: Differences) -> Differences:
    if len(found) <= PAIR_DIFFERENCES_MAX:
        return found
    return sorted(found, key=lambda each: (each.is_compatible, len(each.path)))[:PAIR_DIFFERENCES_MAX]


def _rule(old: SchemaNode, new: SchemaNode) -> Rule:
    if type(old) is not type(new) and (isinstance(old, NoValue) or isinstance(new, AnyValue)):
        return []
    if isinstance(old, Combination) != isinstance(new, Combination):
        found = yield from combinations.compare_with_single(old, new)
        if found is not None:
            return found
    if type(old) is not type(new):
        # Kafka Connect wrote bytes in two ways, and both stand for the same values.
        if old.connect_type == new.connect_type == "bytes":
            return []
        return [SchemaDifference("TYPE_CHANGED", old=described(old), new=described(new))]
    return [*values.annotation_changes(old, new), *(yield from _same_kind(old, new))]


def _same_kind(old: SchemaNode, new: SchemaNode) -> Rule:
    match old, new:
        case StringValue(), StringValue():
            return values.strings(old, new)
        case NumericValue(), NumericValue():
            return values.numbers(old, new)
        case Enumeration(), Enumeration():
            return values.enumerations(old, new)
        case Constant(), Constant():
            return values.constants(old, new)
        case ObjectValue(), ObjectValue():
            return (yield from objects.compare(old, new))
        case ArrayValue(), ArrayValue():
            return (yield from arrays.compare(old, new))
        case Combination(), Combination():
            return (yield from combinations.compare(old, new))
        case Negation(), Negation():
            return (yield from combinations.negations(old, new))
        case Conditional(), Conditional():
            return (yield from combinations.conditionals(old, new))
    return []


def _end(node: SchemaNode) -> SchemaNode:
    if isinstance(node, Pointer):
        assert node.target is not None
        return node.target
    return node


def described(node: SchemaNode) -> str:
    """Return a few words for what a node accepts."""
    match node:
        case Combination():
            return f"{node.criterion} of {len(node.members)} schemas"
        case NumericValue():
            return "integer" if node.is_integer else "number"
    return _WORDS.get(type(node).__name__, "another schema")


_WORDS: Final = {
    "AnyValue": "any value",
    "NoValue": "no value",
    "BooleanValue": "boolean",
    "NullValue": "null",
    "StringValue": "string",
    "Enumeration": "enum",
    "Constant": "const",
    "Negation": "not",
    "Conditional": "if",
    "ObjectValue": "object",
    "ArrayValue": "array",
}
