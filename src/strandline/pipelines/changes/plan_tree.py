"""A plan of Spark's as it tells it in JSON: a list of nodes, each before its children (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class PlanNode:
    """A node of a plan, or of an expression."""

    kind: str
    fields: Mapping[str, Any]
    children: Sequence[PlanNode]

    @property
    def id(self) -> int | None:
        return id_of(self.fields.get("exprId"))

    @property
    def name(self) -> str:
        return str(self.fields.get("name", ""))

    def below(self) -> Iterator[PlanNode]:
        """Itself and everything below it, each before its children."""
        yield self
        for each in self.children:
            yield from each.below()

    def expressions(self, name: str) -> list[PlanNode]:
        """Return the expressions in one field."""
        return expressions_in(self.fields.get(name))

    def all_expressions(self) -> list[PlanNode]:
        return [each for name in self.fields for each in self.expressions(name)]


def tree_of(told: Sequence[Mapping[str, Any]]) -> PlanNode:
    nodes = iter(told)

    def read() -> PlanNode:
        fields = dict(next(nodes))
        kind = str(fields.pop("class")).rstrip("$").rpartition(".")[2].rpartition("$")[2]
        return PlanNode(kind, fields, [read() for _ in range(fields.pop("num-children"))])

    return read()


def references(of: Iterable[PlanNode]) -> set[int]:
    """Return the columns that expressions are made of, and those that they define."""
    return {each.id for top in of for each in top.below() if each.id is not None}


def expressions_in(value: Any) -> list[PlanNode]:
    """Return a field that is an expression, or a list of them."""
    if not isinstance(value, list) or not value:
        return []
    if isinstance(value[0], dict):
        return [tree_of(value)] if "class" in value[0] else []
    return [each for inner in value for each in expressions_in(inner)]


def id_of(told: Any) -> int | None:
    return told["id"] if isinstance(told, dict) and isinstance(told.get("id"), int) else None


def word_of(told: Any) -> str:
    """Return the name of one of Spark's objects: `Inner`."""
    if not isinstance(told, dict):
        return str(told or "")
    return str(told.get("object") or told.get("product-class") or "").rpartition(".")[2].rstrip("$")
