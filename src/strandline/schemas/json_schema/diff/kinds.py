"""The kinds of differences: which are compatible, and a sentence for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.schemas.types import SchemaChange

LIMIT_REACHED: Final = "COMPARISON_LIMIT_REACHED"
"""Ours alone: the schemas have more combinations than the engine compares, so no verdict is known."""

PATH_MAX: Final = 200
"""Parts of a path. Longer ones end early, because definitions can lead to one another thousands of times."""

_WIDER_BOUNDS: Final = frozenset(
    f"{bound}_{change}"
    for bounds, changes in (
        ("MAX_LENGTH MAXIMUM EXCLUSIVE_MAXIMUM MAX_PROPERTIES MAX_ITEMS MAX_CONTAINS", "INCREASED REMOVED"),
        ("MIN_LENGTH MINIMUM EXCLUSIVE_MINIMUM MIN_PROPERTIES MIN_ITEMS MIN_CONTAINS", "DECREASED REMOVED"),
        ("PATTERN", "REMOVED"),
        ("MULTIPLE_OF", "REDUCED REMOVED"),
        ("ADDITIONAL_PROPERTIES UNEVALUATED_PROPERTIES ADDITIONAL_ITEMS UNEVALUATED_ITEMS", "ADDED EXTENDED"),
        ("DEPENDENCY_ARRAY", "NARROWED REMOVED"),
        ("DEPENDENCY_SCHEMA", "REMOVED"),
    )
    for bound in bounds.split()
    for change in changes.split()
)
COMPATIBLE: Final = _WIDER_BOUNDS | {
    "ID_CHANGED",
    "DESCRIPTION_CHANGED",
    "TITLE_CHANGED",
    "DEFAULT_CHANGED",
    "SCHEMA_REMOVED",
    "TYPE_EXTENDED",
    "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED",
    "REQUIRED_ATTRIBUTE_REMOVED",
    "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL",
    "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
    "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
    "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "UNIQUE_ITEMS_REMOVED",
    "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
    "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
    "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
    "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "ENUM_ARRAY_EXTENDED",
    "COMBINED_TYPE_EXTENDED",
    "PRODUCT_TYPE_NARROWED",
    "SUM_TYPE_EXTENDED",
    "NOT_TYPE_NARROWED",
}

_SENTENCES: Final = {
    "SCHEMA_ADDED": "{place} has a schema now, and any value was accepted there before",
    "TYPE_NARROWED": "{place} accepts only integers now, and any number was accepted before",
    "TYPE_CHANGED": "{place} was {old} and is {new} now",
    "PATTERN_CHANGED": "the pattern at {place} was {old} and is {new} now",
    "MULTIPLE_OF_EXPANDED": "{place} was {old} and is {new} now, which fewer numbers are a multiple of",
    "MULTIPLE_OF_CHANGED": "{place} was {old} and is {new} now",
    "REQUIRED_ATTRIBUTE_ADDED": "the property {last} is required now, was optional before, and has no default",
    "ADDITIONAL_PROPERTIES_REMOVED": "{place} is false now, and other properties were accepted before",
    "ADDITIONAL_PROPERTIES_NARROWED": "{place} has a schema now, and other properties could have any value before",
    "UNEVALUATED_PROPERTIES_REMOVED": "{place} is false now, and other properties were accepted before",
    "UNEVALUATED_PROPERTIES_NARROWED": "{place} has a schema now, and other properties could have any value before",
    "ADDITIONAL_ITEMS_REMOVED": "{place} is false now, and other items were accepted before",
    "ADDITIONAL_ITEMS_NARROWED": "{place} has a schema now, and other items could have any value before",
    "UNEVALUATED_ITEMS_REMOVED": "{place} is false now, and other items were accepted before",
    "UNEVALUATED_ITEMS_NARROWED": "{place} has a schema now, and other items could have any value before",
    "DEPENDENCY_ARRAY_ADDED": "the property {last} requires others now",
    "DEPENDENCY_ARRAY_EXTENDED": "the property {last} requires more other properties now",
    "DEPENDENCY_ARRAY_CHANGED": "the property {last} requires different other properties now",
    "DEPENDENCY_SCHEMA_ADDED": "the property {last} requires that the object matches a schema now",
    "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "the required property {last} is new, and the old schema is open: "
    "data may lack the property or have any value in it",
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL": "the property {last} is new, and the old schema is "
    "open: data may have any value in it",
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "the property {last} is new, and the old schema is open: data may "
    "have any value in it",
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "the required property {last} is new and has no default",
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": "the property {last} was removed, and the new schema accepts no "
    "other properties",
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "the property {last} was removed, and the schema "
    "for other properties does not accept its values",
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "the property {last} is new, and does not accept all "
    "that the old schema for other properties did",
    "UNIQUE_ITEMS_ADDED": "{place} is true now, and items could repeat before",
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": "the item {last} has a schema now, and could have any value before",
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": "the item {last} was removed, and the new schema accepts no other items",
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "the item {last} was removed, and the schema for other "
    "items does not accept its values",
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "the item {last} is new, and does not accept all that "
    "the old schema for other items did",
    "ENUM_ARRAY_NARROWED": "{place} no longer has {old}",
    "ENUM_ARRAY_CHANGED": "{place} was {old} and is {new} now",
    "COMBINED_TYPE_CHANGED": "{place} was combined by {old} and is combined by {new} now",
    "PRODUCT_TYPE_EXTENDED": "{place} must match {new} schemas now, and {old} before",
    "SUM_TYPE_NARROWED": "{place} has {new} alternatives now, and {old} before",
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": "parts of {place} accept less than before{old}",
    "NOT_TYPE_EXTENDED": "{place} excludes more than before",
    LIMIT_REACHED: "the schemas have more combinations than the registry compares; make them smaller or less nested",
}


@dataclass(frozen=True)
class SchemaDifference(SchemaChange):
    """One difference between an old and a new schema. The path is relative until the comparison ends."""

    @property
    def is_compatible(self) -> bool:
        return self.kind in COMPATIBLE

    def sentence(self) -> str:
        """Return what changed, for a person."""
        words = _SENTENCES.get(self.kind) or self._bound_sentence()
        last = repr(self.path[-1]) if self.path else "#"
        text = words.format(place=self.place, last=last, old=self.old, new=self.new)
        return f"{text[0].upper()}{text[1:]}."

    def _bound_sentence(self) -> str:
        if self.kind.endswith("_ADDED"):
            return "{place} is {new} now, and had no such bound before"
        if self.kind.endswith(("_INCREASED", "_DECREASED")):
            return "{place} was {old} and is {new} now"
        return f"{{place}}: {self.kind.lower().replace('_', ' ')}"


Differences = list[SchemaDifference]


def below(prefix: tuple[str, ...], found: Differences) -> Differences:
    """Return `found` with its paths below `prefix`."""
    return [SchemaDifference(each.kind, (prefix + each.path)[:PATH_MAX], each.old, each.new) for each in found]


def are_compatible(found: Differences) -> bool:
    """Tell whether a reader with the new schema reads all that was valid under the old one."""
    return all(each.is_compatible for each in found)
