"""Differences between arrays: lists, whose items share one schema, and tuples, with a schema for each position."""

from __future__ import annotations

from strandline.schemas.json_schema.diff.kinds import SchemaDifference, are_compatible, below
from strandline.schemas.json_schema.diff.objects import additional, unevaluated
from strandline.schemas.json_schema.diff.rules import Rule
from strandline.schemas.json_schema.diff.values import bound
from strandline.schemas.json_schema.nodes import AnyValue, ArrayValue, NoValue, SchemaNode


def compare(old: ArrayValue, new: ArrayValue) -> Rule:
    """Return the differences between two arrays."""
    found = below(("items",), (yield old.all_items, new.all_items))
    for position in range(max(len(old.items), len(new.items))):
        found += below(("items", str(position)), (yield from _item(old, new, position)))
    others = yield from additional(
        "ITEMS", (old.permits_additional, old.additional), (new.permits_additional, new.additional)
    )
    found += below(("additionalItems",), others)
    found += below(("unevaluatedItems",), (yield from unevaluated("ITEMS", old.unevaluated, new.unevaluated)))
    found += bound("maxItems", "MAX_ITEMS", old.max_items, new.max_items)
    found += bound("minItems", "MIN_ITEMS", old.min_items, new.min_items)
    if old.unique_items != new.unique_items:
        kind = "UNIQUE_ITEMS_REMOVED" if old.unique_items else "UNIQUE_ITEMS_ADDED"
        found.append(SchemaDifference(kind, ("uniqueItems",)))
    found += below(("contains",), (yield old.contains, new.contains))
    counts = new.max_contains is not None and old.contains is not None and new.contains is not None
    # A schema that more items match makes more items count.
    if counts and not are_compatible((yield new.contains, old.contains)):
        found.append(SchemaDifference("MAX_CONTAINS_DECREASED", ("contains",), "matched by fewer items", "by more"))
    found += bound("maxContains", "MAX_CONTAINS", old.max_contains, new.max_contains)
    found += bound("minContains", "MIN_CONTAINS", old.min_contains, new.min_contains)
    return found


def _item(old: ArrayValue, new: ArrayValue, position: int) -> Rule:
    if position >= len(new.items):
        return (yield from _removed_item(new, old.items[position]))
    if position >= len(old.items):
        return (yield from _added_item(old, new.items[position]))
    return (yield old.items[position], new.items[position])


def _removed_item(new: ArrayValue, before: SchemaNode) -> Rule:
    if _is_open(new):
        return [SchemaDifference("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL")]
    other = _schema_of_others(new)
    if other is not None:
        found = yield before, other
        covered = "IS" if are_compatible(found) else "NOT"
        return [*found, SchemaDifference(f"ITEM_REMOVED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")]
    if isinstance(before, NoValue):
        return [SchemaDifference("ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")]
    return [SchemaDifference("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL")]


def _added_item(old: ArrayValue, after: SchemaNode) -> Rule:
    if _is_open(old):
        if isinstance(after, AnyValue):
            return [SchemaDifference("ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL")]
        return [SchemaDifference("ITEM_ADDED_TO_OPEN_CONTENT_MODEL")]
    other = _schema_of_others(old)
    if other is not None:
        found = yield other, after
        covered = "IS" if are_compatible(found) else "NOT"
        return [*found, SchemaDifference(f"ITEM_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")]
    return [SchemaDifference("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL")]


def _is_open(node: ArrayValue) -> bool:
    if not node.permits_additional or node.additional is not None:
        return False
    return node.unevaluated is None or isinstance(node.unevaluated, AnyValue)


def _schema_of_others(node: ArrayValue) -> SchemaNode | None:
    if node.additional is not None:
        return node.additional
    if node.permits_additional and not isinstance(node.unevaluated, (NoValue, AnyValue)):
        return node.unevaluated
    return None
