"""How each column of a plan is computed from those of the inputs, in words that two runs can compare (pure)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any, Final

from strandline.pipelines.changes.plan_tree import PlanNode, expressions_in, id_of, word_of

NAMED_QUERY: Final = "CTERelationDef"
"""`WITH name AS (...)`, which stands beside the query that refers to it."""

_LEFT_ONLY: Final = ("LeftSemi", "LeftAnti")
# Where children are, what only names something, and what depends on the session or the machine.
_NOT_TOLD: Final = (
    *("child", "left", "right", "children", "aggregateFunction"),
    *("exprId", "resultId", "nodeId", "qualifier", "metadata", "explicitMetadata", "nonInheritableMetadataKeys"),
    *("timeZoneId", "evalMode", "evalContext", "ansiEnabled", "failOnError", "nullable", "mode"),
    *("mutableAggBufferOffset", "inputAggBufferOffset"),
)
_OF_WINDOWS: Final = "PreciseTimestampConversion"
_ADDRESS: Final = "[B@"
"""How Java shows a literal of bytes: by its address."""


class PlanColumns:
    def __init__(self, plan: PlanNode, inputs: Mapping[str, str], functions: Mapping[int, str]) -> None:
        self._functions = functions
        self._computed: dict[int, list[PlanNode]] = {}
        """More than one where each row becomes several, as with sliding windows."""
        self._named: dict[int, str] = {}
        self._meant: dict[int, tuple[int, str]] = {}
        """Columns that refer to those of a named query."""
        self._of_inputs: set[int] = set()
        self._under_way: set[int] = set()
        self._streaming: dict[int, bool] = {}
        named = {each.fields.get("id"): each for each in plan.below() if each.kind == NAMED_QUERY}
        for node in plan.below():
            if node.kind == "CTERelationRef" and (meant := named.get(node.fields.get("cteId"))) is not None:
                pairs = zip(self.outputs(node), self.outputs(meant), strict=True)
                self._meant.update({one: other for (one, _), other in pairs if one != other[0]})
            for top in node.all_expressions():
                for each in top.below():
                    if each.kind == "Alias" and each.id is not None:
                        self._computed[each.id] = [each.children[0]]
            if node.kind == "Expand":
                rows = [expressions_in(each) for each in node.fields["projections"]]
                for (each, _), *computed in zip(self.outputs(node), *rows, strict=True):
                    # What is only passed on keeps its id.
                    if all(one.id != each for one in computed):
                        self._computed[each] = computed
            if node.kind == "SubqueryAlias" and self._is_input(node, inputs):
                self._of_inputs.update(id(each) for each in node.below())
                label = inputs[str(_alias_of(node))]
                self._named.update({each: f"{label}.{name}" for each, name in self.outputs(node)})

    @staticmethod
    def _is_input(node: PlanNode, inputs: Mapping[str, str]) -> bool:
        """Return whether it is an input. The innermost alias is ours; a function may use the name of an input again."""
        is_inner = not any(each.kind == "SubqueryAlias" for top in node.children for each in top.below())
        return is_inner and _alias_of(node) in inputs

    def is_of_input(self, node: PlanNode) -> bool:
        """Return whether it only reads and decodes an input, which is the same whatever the file says."""
        return id(node) in self._of_inputs

    def is_streaming(self, node: PlanNode) -> bool:
        if id(node) not in self._streaming:
            inner = [self.is_streaming(each) for each in node.children]
            is_leaf = "Streaming" in node.kind or bool(node.fields.get("isStreaming"))
            self._streaming[id(node)] = any(inner) if inner else is_leaf
        return self._streaming[id(node)]

    def outputs(self, node: PlanNode) -> list[tuple[int, str]]:
        """Ids and names of the columns of a node."""
        for name in ("projectList", "aggregateExpressions", "output", "outputAttrs"):
            if name in node.fields:
                return _named(node.expressions(name))
        if node.kind == "Union" or word_of(node.fields.get("joinType")) in _LEFT_ONLY:
            return self.outputs(node.children[0])
        found = [each for inner in node.children for each in self.outputs(inner)]
        return found + _named([*node.expressions("generatorOutput"), *node.expressions("windowExpressions")])

    def text_of(self, column: int, name: str) -> str:
        if column in self._named:
            return self._named[column]
        if column in self._meant:
            return self.text_of(*self._meant[column])
        computed = self._computed.get(column)
        if computed is None or column in self._under_way:
            return name
        self._under_way.add(column)
        try:
            return " or ".join(self.text(each) for each in computed)
        finally:
            self._under_way.discard(column)

    def text(self, node: PlanNode, variables: dict[int, str] | None = None) -> str:
        """Return how an expression is computed: `sum(orders.amount)`."""
        variables = {} if variables is None else variables
        if node.kind == "Alias":
            return self.text(node.children[0], variables)
        if node.kind == "Literal":
            return _literal(node)
        if node.kind == "NamedLambdaVariable" and node.id is not None:
            # Its name is numbered over the whole session.
            return variables.setdefault(node.id, f"x{len(variables)}")
        if node.id is not None and not node.children:
            return self.text_of(node.id, node.name)
        if node.kind == "AggregateExpression" and not node.fields.get("isDistinct") and len(node.children) == 1:
            return self.text(node.children[0], variables)
        inner = [self.text(each, variables) for each in node.children]
        if node.kind == "CreateNamedStruct" and any(each.kind == _OF_WINDOWS for each in node.below()):
            read = [self.text(each) for each in node.below() if each.kind == "AttributeReference"]
            return _window(node, ", ".join(dict.fromkeys(read)), ", ".join(inner))
        told = [f"{name}={json.dumps(value)}" for name, value in sorted(node.fields.items()) if _is_told(name, value)]
        code = [self.code_of(node)] if node.kind.startswith("Python") else []
        return f"{node.kind.lower()}({', '.join([*inner, *told, *code])})"

    def code_of(self, node: PlanNode) -> str:
        found = id_of(node.fields.get("resultId"))
        return f"{node.name} {self._functions.get(found, '') if found is not None else ''}".strip()


def _window(node: PlanNode, column: str, text: str) -> str:
    """Return a window of time in few words: Spark makes a page of arithmetic of it."""
    numbers = {str(each.fields.get("value")) for each in node.below() if each.kind == "Literal"}
    lengths = sorted(int(each) / 1_000_000 for each in numbers if each.isdigit() and int(each) > 1)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"window({column}, {', '.join(f'{each:g} s' for each in lengths)}, #{digest})"


def _is_told(name: str, value: Any) -> bool:
    """Return whether a field says something. Expressions in it are children, too, and have ids."""
    is_expression = "num-children" in json.dumps(value)
    return name not in _NOT_TOLD and value not in (None, [], False) and not is_expression and not _is_places(value)


def _is_places(value: Any) -> bool:
    """Return whether it says at which places the children are."""
    return isinstance(value, list) and all(type(each) is int for each in value)


def _literal(node: PlanNode) -> str:
    value, of = node.fields.get("value"), node.fields.get("dataType")
    if isinstance(value, str) and value.startswith(_ADDRESS):
        value = "bytes"
    return repr(value) if of == "string" else f"{value}" if of == "integer" else f"{value} {_type(of)}"


def _type(of: Any) -> str:
    return of if isinstance(of, str) else json.dumps(of, sort_keys=True)


def _named(of: Iterable[PlanNode]) -> list[tuple[int, str]]:
    unknown = count(-1, -1)
    return [(next(unknown) if each.id is None else each.id, each.name) for each in of]


def _alias_of(node: PlanNode) -> str | None:
    told = node.fields.get("identifier")
    return told.get("name") if isinstance(told, dict) else None
