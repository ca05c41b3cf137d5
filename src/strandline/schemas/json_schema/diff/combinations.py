"""Differences between combined schemas: `allOf`, `anyOf`, `oneOf`, `not` and `if`.

The order of members has no meaning. So each member of the smaller side is matched with a compatible one of the other
side, by a maximum matching.
"""

from __future__ import annotations

from collections.abc import Generator

from strandline.schemas.json_schema.diff.kinds import Differences, SchemaDifference, are_compatible, below
from strandline.schemas.json_schema.diff.rules import Pair, Rule
from strandline.schemas.json_schema.nodes import Combination, Conditional, Negation, SchemaNode


def compare_with_single(old: SchemaNode, new: SchemaNode) -> Generator[Pair, Differences, Differences | None]:
    """Compare a combination with a schema that is none. Return None if no member is compatible with it."""
    if isinstance(new, Combination):
        alternatives = [(old, member) for member in new.members]
        widens = new.criterion in ("anyOf", "oneOf")
        extra = SchemaDifference("SUM_TYPE_EXTENDED")
    else:
        assert isinstance(old, Combination)
        alternatives = [(member, new) for member in old.members]
        widens = old.criterion == "allOf"
        extra = SchemaDifference("PRODUCT_TYPE_NARROWED")
    is_singleton = len(alternatives) == 1
    if not widens and not is_singleton:
        return None
    for before, after in alternatives:
        found = yield before, after
        if are_compatible(found):
            return found if is_singleton else [*found, extra]
    return None


def compare(old: Combination, new: Combination) -> Rule:
    """Return the differences between two combinations."""
    found = _criteria(old, new)
    if not are_compatible(found):
        return found
    before, after = len(old.members), len(new.members)
    if before < after:
        kind = "PRODUCT_TYPE_EXTENDED" if new.criterion == "allOf" else "SUM_TYPE_EXTENDED"
        found.append(SchemaDifference(kind, old=str(before), new=str(after)))
    elif before > after:
        kind = "PRODUCT_TYPE_NARROWED" if old.criterion == "allOf" else "SUM_TYPE_NARROWED"
        found.append(SchemaDifference(kind, old=str(before), new=str(after)))
    edges: list[dict[int, Differences]] = []
    reasons: Differences = []
    for index, member in enumerate(old.members):
        edges.append({})
        for other, candidate in enumerate(new.members):
            inner = yield member, candidate
            if are_compatible(inner):
                edges[index][other] = inner
            elif not reasons and type(member) is type(candidate):
                reasons = below((old.criterion, str(index)), [each for each in inner if not each.is_compatible])
    matched = maximum_matching(edges)
    for other, index in matched.items():
        found += below((old.criterion, str(index)), edges[index][other])
    if len(matched) < min(before, after):
        reason = f": {reasons[0].sentence().rstrip('.')}" if reasons else ""
        found.append(SchemaDifference("COMBINED_TYPE_SUBSCHEMAS_CHANGED", old=reason))
    return found


def _criteria(old: Combination, new: Combination) -> Differences:
    if old.criterion == new.criterion:
        return []
    was_single, is_single = len(old.members) == 1, len(new.members) == 1
    widens = (
        new.criterion == "anyOf"
        or (was_single and (is_single or new.criterion == "oneOf"))
        or (is_single and old.criterion == "allOf")
    )
    return [
        SchemaDifference(
            "COMBINED_TYPE_EXTENDED" if widens else "COMBINED_TYPE_CHANGED", (), old.criterion, new.criterion
        )
    ]


def maximum_matching(edges: list[dict[int, Differences]]) -> dict[int, int]:
    """Return a largest set of pairs without a common end, as right index to left index (augmenting paths)."""
    partner: dict[int, int] = {}
    for start in range(len(edges)):
        came_from: dict[int, int] = {}
        waiting = [start]
        while waiting:
            left = waiting.pop()
            free = None
            for right in edges[left]:
                if right in came_from:
                    continue
                came_from[right] = left
                if right not in partner:
                    free = right
                    break
                waiting.append(partner[right])
            if free is not None:
                _augment(partner, came_from, start, free)
                break
    return partner


def _augment(partner: dict[int, int], came_from: dict[int, int], start: int, free: int) -> None:
    held = {left: right for right, left in partner.items()}
    right: int | None = free
    while right is not None:
        left = came_from[right]
        partner[right] = left
        right = held.get(left) if left != start else None


def negations(old: Negation, new: Negation) -> Rule:
    """Compare what two schemas exclude, in reverse: one that excludes less is compatible."""
    reverse = yield new.negated, old.negated
    if not reverse:
        return []
    return [SchemaDifference("NOT_TYPE_NARROWED" if are_compatible(reverse) else "NOT_TYPE_EXTENDED", ("not",))]


def conditionals(old: Conditional, new: Conditional) -> Rule:
    """Compare the branches of two conditions. A changed condition moves values between the branches."""
    # The same text may refer to a definition that changed.
    if old.condition_text != new.condition_text or (yield old.condition, new.condition):
        return [SchemaDifference("TYPE_CHANGED", ("if",), "one condition", "another")]
    return below(("then",), (yield old.then, new.then)) + below(("else",), (yield old.otherwise, new.otherwise))
