"""What a query keeps from batch to batch, in words that two runs can compare (pure).

Spark tells a plan as JSON: a list of nodes, each before its children. Ids of columns differ from run to run, so a
column is named by how it is computed from the columns of the inputs. Filters say which rows come in, and names of
columns in between say nothing: neither is part of the state's form. What counts:

    grouping, functions     of aggregates and state functions; functions whose result is not used are never computed
    keys                    of deduplication
    join                    of two streams: its type, its condition, and the columns of both sides that are kept
    watermark               below one of these
    code                    of state functions, and of functions in any of the above

State is read by position, so the order of all of them counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from strandline.pipelines.changes.plan_columns import NAMED_QUERY, PlanColumns
from strandline.pipelines.changes.plan_tree import PlanNode, references, tree_of, word_of

TEXT_LENGTH_MAX: Final = 200
"""Of one part. Of a longer one its beginning is kept, for people, and a digest of all of it."""

_STATE_FUNCTIONS: Final = (
    "FlatMapGroupsInPandasWithState",
    "TransformWithStateInPySpark",
    "TransformWithStateInPandas",
)
_DEDUPLICATIONS: Final = ("Deduplicate", "DeduplicateWithinWatermark")
_WHOLE: Final = ("Distinct", NAMED_QUERY)
"""All columns of these are used; of a named query because what refers to it is elsewhere in the plan."""
_NO_PART: Final = ("SubqueryAlias", "View", "WithCTE", "CTERelationRef", NAMED_QUERY)
"""They give names, and do nothing."""


@dataclass(frozen=True)
class PlanForm:
    state: tuple[str, ...] = ()
    """`aspect: text`, from the output to the inputs; none: nothing is kept from batch to batch."""
    digest: str = ""
    """Of everything that the query does with its inputs, filters among it."""


def form_of(
    told: Sequence[Mapping[str, Any]],
    inputs: Mapping[str, str],
    functions: Mapping[int, str] | None = None,
) -> PlanForm:
    """Return the form of a plan.

    `inputs` are what the aliases of its inputs are called, and `functions` digests of the code of Python functions, by
    their id in the plan.
    """
    plan = tree_of(told)
    columns = PlanColumns(plan, inputs, functions or {})
    walk = _Walk(columns)
    outputs = columns.outputs(plan)
    walk.visit(plan, {each for each, _ in outputs}, is_kept=False)
    everything = [columns.text_of(each, name) for each, name in outputs] + walk.all
    return PlanForm(tuple(map(_shortened, walk.state)), short_digest(json.dumps(everything)))


@dataclass
class _Walk:
    """A walk from the output to the inputs that collects what is kept."""

    columns: PlanColumns
    state: list[str] = field(default_factory=list)
    all: list[str] = field(default_factory=list)

    def visit(self, node: PlanNode, needed: set[int], *, is_kept: bool) -> None:
        """`needed` are the columns that those above use: Spark computes and keeps no others."""
        if node.kind == "Project":
            used = [each for each in node.expressions("projectList") if each.id in needed]
            needed = references(used)
        elif node.kind == "Aggregate":
            used = [each for each in node.expressions("aggregateExpressions") if each.id in needed]
            grouping = node.expressions("groupingExpressions")
            self._tell(node, "grouping", self._texts(grouping))
            self._tell(node, "functions", self._functions(used))
            needed = references([*used, *grouping])
        else:
            needed = needed | references(node.all_expressions())
            if node.kind in _WHOLE:
                needed |= {each for each, _ in self.columns.outputs(node)}
            self._operator(node, needed, is_kept)
        is_kept = is_kept or self._is_stateful(node) or node.kind == NAMED_QUERY
        for each in node.children:
            self.visit(each, needed, is_kept=is_kept)

    def _operator(self, node: PlanNode, needed: set[int], is_kept: bool) -> None:
        columns = self.columns
        if node.kind in _DEDUPLICATIONS:
            self._tell(node, "keys", self._texts(node.expressions("keys")))
        elif node.kind == "Distinct":
            self._tell(node, "keys", [columns.text_of(*each) for each in columns.outputs(node)])
        elif node.kind in _STATE_FUNCTIONS:
            self._state_function(node)
        elif node.kind == "GlobalLimit":
            self._tell(node, "limit", self._texts(node.expressions("limitExpr")))
        elif node.kind == "EventTimeWatermark":
            text = f"watermark: {' '.join(self._texts(node.expressions('eventTime')))} {node.fields['delay']}"
            self.all.append(text)
            if is_kept:
                self.state.append(text)
        elif node.kind == "Join":
            self._tell(
                node, "join", [word_of(node.fields.get("joinType")), *self._texts(node.expressions("condition"))]
            )
            for side, each in zip(("left side", "right side"), node.children, strict=True):
                used = [found for found in columns.outputs(each) if found[0] in needed]
                self._tell(node, side, [columns.text_of(*found) for found in used])
        elif node.kind == "Union":
            # A column of it goes by the id that it has in the first branch.
            places = [at for at, (each, _) in enumerate(columns.outputs(node)) if each in needed]
            for branch in node.children[1:]:
                used = columns.outputs(branch)
                texts = [columns.text_of(*used[at]) for at in places]
                self.all.append(f"union: {texts}")
                if is_kept:
                    self.state.append(f"union: {', '.join(texts)}")
        elif node.kind not in _NO_PART and not columns.is_of_input(node):
            self.all.append(f"{node.kind}: {self._texts(node.all_expressions())}")

    def _is_stateful(self, node: PlanNode) -> bool:
        if node.kind == "Join":
            return sum(self.columns.is_streaming(each) for each in node.children) == 2
        kinds = ("Aggregate", "Distinct", "GlobalLimit", *_DEDUPLICATIONS, *_STATE_FUNCTIONS)
        return node.kind in kinds and self.columns.is_streaming(node)

    def _tell(self, node: PlanNode, aspect: str, texts: Iterable[str]) -> None:
        if self.columns.is_of_input(node):
            return
        text = f"{aspect}: {', '.join(texts)}"
        self.all.append(text)
        if self._is_stateful(node):
            self.state.append(text)

    def _state_function(self, node: PlanNode) -> None:
        columns = self.columns
        grouping = self._texts(node.expressions("groupingAttributes"))
        if not grouping:
            among = columns.outputs(node.children[0])[: int(node.fields.get("groupingAttributesLen") or 0)]
            grouping = [columns.text_of(*each) for each in among]
        self._tell(node, "grouping", grouping)
        # Which columns come in is no part of the state; the function takes them by name.
        called = [each for top in node.expressions("functionExpr") for each in top.below()]
        self._tell(node, "code", [columns.code_of(each) for each in called if "Python" in each.kind])
        settings = {name: node.fields.get(name) for name in ("stateType", "outputMode", "timeout", "timeMode")}
        self._tell(node, "settings", [json.dumps(settings, sort_keys=True)])

    def _functions(self, used: Iterable[PlanNode]) -> list[str]:
        found = [each for top in used for each in top.below() if each.kind == "AggregateExpression"]
        # One that occurs twice is kept once.
        return list(dict.fromkeys(self._texts(found)))

    def _texts(self, of: Iterable[PlanNode]) -> list[str]:
        return [self.columns.text(each) for each in of]


def _shortened(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[:TEXT_LENGTH_MAX]}... {short_digest(text)}"


def short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
