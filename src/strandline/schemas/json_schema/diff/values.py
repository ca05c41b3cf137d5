"""Differences between strings, numbers, enumerations, constants, and between annotations."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from strandline.schemas.json_schema.diff.kinds import Differences, SchemaDifference
from strandline.schemas.json_schema.nodes import Constant, Enumeration, Number, NumericValue, SchemaNode, StringValue

SHOWN_MAX = 80
"""Characters of a value that a message shows."""


def annotation_changes(old: SchemaNode, new: SchemaNode) -> Differences:
    """Return changed annotations, all of which are compatible."""
    return [
        SchemaDifference(kind)
        for kind, before, after in (
            ("ID_CHANGED", old.id, new.id),
            ("TITLE_CHANGED", old.title, new.title),
            ("DESCRIPTION_CHANGED", old.description, new.description),
            ("DEFAULT_CHANGED", old.default, new.default),
        )
        if before != after
    ]


def bound(keyword: str, kind: str, old: Number | None, new: Number | None) -> Differences:
    """Return the difference between two values of a bound, at its keyword."""
    if old == new:
        return []
    if old is None:
        change = "ADDED"
    elif new is None:
        change = "REMOVED"
    else:
        change = "INCREASED" if old < new else "DECREASED"
    return [SchemaDifference(f"{kind}_{change}", (keyword,), _shown(old), _shown(new))]


def strings(old: StringValue, new: StringValue) -> Differences:
    """Return the differences between two strings."""
    found = bound("maxLength", "MAX_LENGTH", old.max_length, new.max_length)
    found += bound("minLength", "MIN_LENGTH", old.min_length, new.min_length)
    if old.pattern != new.pattern:
        change = "ADDED" if old.pattern is None else "REMOVED" if new.pattern is None else "CHANGED"
        found.append(SchemaDifference(f"PATTERN_{change}", ("pattern",), _shown(old.pattern), _shown(new.pattern)))
    return found


def numbers(old: NumericValue, new: NumericValue) -> Differences:
    """Return the differences between two numbers."""
    found = bound("maximum", "MAXIMUM", old.maximum, new.maximum)
    found += bound("minimum", "MINIMUM", old.minimum, new.minimum)
    found += bound("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", old.exclusive_maximum, new.exclusive_maximum)
    found += bound("exclusiveMinimum", "EXCLUSIVE_MINIMUM", old.exclusive_minimum, new.exclusive_minimum)
    if old.multiple_of != new.multiple_of:
        kind = f"MULTIPLE_OF_{_change_of_multiple(old.multiple_of, new.multiple_of)}"
        found.append(SchemaDifference(kind, ("multipleOf",), _shown(old.multiple_of), _shown(new.multiple_of)))
    if old.is_integer != new.is_integer:
        found.append(SchemaDifference("TYPE_EXTENDED" if old.is_integer else "TYPE_NARROWED"))
    return found


def _change_of_multiple(old: Number | None, new: Number | None) -> str:
    if old is None or new is None:
        return "ADDED" if old is None else "REMOVED"
    if _divides(old, new):
        return "EXPANDED"
    return "REDUCED" if _divides(new, old) else "CHANGED"


def _divides(divisor: Number, number: Number) -> bool:
    try:
        return divisor != 0 and Decimal(number) % Decimal(divisor) == 0
    except InvalidOperation:
        # The quotient has more digits than a Decimal: nothing is known, so the change is not called compatible.
        return False


def enumerations(old: Enumeration, new: Enumeration) -> Differences:
    """Return the difference between two enumerations."""
    if old.values == new.values:
        return []
    if old.values < new.values:
        return [SchemaDifference("ENUM_ARRAY_EXTENDED", ("enum",))]
    if new.values < old.values:
        return [SchemaDifference("ENUM_ARRAY_NARROWED", ("enum",), _shown(", ".join(sorted(old.values - new.values))))]
    before, after = (_shown(", ".join(sorted(each.values))) for each in (old, new))
    return [SchemaDifference("ENUM_ARRAY_CHANGED", ("enum",), before, after)]


def constants(old: Constant, new: Constant) -> Differences:
    """Return the difference between two constants, which Confluent calls one of enumerations."""
    if old.value == new.value:
        return []
    return [SchemaDifference("ENUM_ARRAY_CHANGED", ("const",), _shown(old.value), _shown(new.value))]


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
