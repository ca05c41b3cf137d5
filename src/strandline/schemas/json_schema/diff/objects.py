"""Differences between objects.

An object is open if it accepts every other property, closed if it accepts none, and partially open if other properties
must match a schema. A new property in an open object restricts values that were accepted before, so it is incompatible.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

from strandline.schemas.json_schema.diff.kinds import Differences, SchemaDifference, are_compatible, below
from strandline.schemas.json_schema.diff.rules import Rule
from strandline.schemas.json_schema.diff.values import bound
from strandline.schemas.json_schema.nodes import AnyValue, NoValue, ObjectValue, Pointer, SchemaNode

PATTERN_BYTES_MAX = 1 << 20
"""Memory that RE2 may use for one pattern of `patternProperties`."""
_REJECTED, _ACCEPTED = NoValue(), AnyValue()


def compare(old: ObjectValue, new: ObjectValue) -> Rule:
    """Return the differences between two objects."""
    found = below(("required",), _required(old, new))
    for name in dict.fromkeys([*old.properties, *new.properties]):
        found += below(("properties", name), (yield from _property(old, new, name)))
    found += below(("dependencies",), (yield from _dependencies(old, new)))
    others = yield from additional(
        "PROPERTIES", (old.permits_additional, old.additional), (new.permits_additional, new.additional)
    )
    found += below(("additionalProperties",), others)
    found += below(("unevaluatedProperties",), (yield from unevaluated("PROPERTIES", old.unevaluated, new.unevaluated)))
    for pattern in dict.fromkeys([*old.pattern_properties, *new.pattern_properties]):
        found += below(("patternProperties", pattern), (yield from _pattern(old, new, pattern)))
    found += below(("propertyNames",), (yield old.names, new.names))
    found += bound("maxProperties", "MAX_PROPERTIES", old.max_properties, new.max_properties)
    found += bound("minProperties", "MIN_PROPERTIES", old.min_properties, new.min_properties)
    return found


def _required(old: ObjectValue, new: ObjectValue) -> Differences:
    found = []
    for name in sorted(old.required ^ new.required):
        if name in old.required:
            if name in old.properties and name in new.properties:
                found.append(SchemaDifference("REQUIRED_ATTRIBUTE_REMOVED", (name,)))
        # A property that only the new schema declares is reported as an added property.
        elif name not in new.properties or name in old.properties:
            has_default = name in new.properties and new.properties[name].has_default
            kind = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED" if has_default else "REQUIRED_ATTRIBUTE_ADDED"
            found.append(SchemaDifference(kind, (name,)))
    return found


def _property(old: ObjectValue, new: ObjectValue, name: str) -> Rule:
    before, after = old.properties.get(name), new.properties.get(name)
    if after is None:
        assert before is not None
        return (yield from _removed_property(new, name, before))
    if before is None:
        return (yield from _added_property(old, new, name, after))
    return (yield before, after)


def _removed_property(new: ObjectValue, name: str, before: SchemaNode) -> Rule:
    if _is_open(new):
        return [SchemaDifference("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL")]
    others = _schemas_of_others(new, name, unknown=_REJECTED)
    if others:
        found = []
        for other in others:
            found += yield before, other
        covered = "IS" if are_compatible(found) else "NOT"
        return [*found, SchemaDifference(f"PROPERTY_REMOVED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")]
    if isinstance(before, NoValue):
        return [SchemaDifference("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")]
    return [SchemaDifference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL")]


def _added_property(old: ObjectValue, new: ObjectValue, name: str, after: SchemaNode) -> Rule:
    is_required = name in new.required and name not in old.required
    if _is_open(old):
        if isinstance(after.target if isinstance(after, Pointer) else after, AnyValue) and not is_required:
            return [SchemaDifference("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL")]
        return [SchemaDifference(f"{_presence(is_required, after)}_ADDED_TO_OPEN_CONTENT_MODEL")]
    found: Differences = []
    others = _schemas_of_others(old, name, unknown=_ACCEPTED)
    if others:
        # Old values match all of them, so it is enough that the new schema accepts what one of them does.
        candidates = []
        for other in others:
            candidates.append((yield other, after))
        found = next(filter(are_compatible, candidates), candidates[0])
        covered = "IS" if are_compatible(found) else "NOT"
        found = [*found, SchemaDifference(f"PROPERTY_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")]
    return [*found, SchemaDifference(f"{_presence(is_required, after)}_ADDED_TO_UNOPEN_CONTENT_MODEL")]


def _presence(is_required: bool, node: SchemaNode) -> str:
    if not is_required:
        return "OPTIONAL_PROPERTY"
    return "REQUIRED_PROPERTY_WITH_DEFAULT" if node.has_default else "REQUIRED_PROPERTY"


def _is_open(node: ObjectValue) -> bool:
    if not node.permits_additional or node.additional is not None or node.pattern_properties:
        return False
    return node.unevaluated is None or isinstance(node.unevaluated, AnyValue)


def _schemas_of_others(node: ObjectValue, name: str, *, unknown: SchemaNode) -> list[SchemaNode]:
    """Return the schemas that a property must match which is not declared, or `unknown` if that can not be said."""
    matched = {pattern: _matches(pattern, name) for pattern in node.pattern_properties}
    if None in matched.values():
        return [unknown]
    found = [schema for pattern, schema in node.pattern_properties.items() if matched[pattern]]
    return found or _schema_of_rest(node)


def _schema_of_rest(node: ObjectValue) -> list[SchemaNode]:
    if node.additional is not None:
        return [node.additional]
    if node.permits_additional and node.unevaluated and not isinstance(node.unevaluated, (NoValue, AnyValue)):
        return [node.unevaluated]
    return []


def _pattern(old: ObjectValue, new: ObjectValue, pattern: str) -> Rule:
    """Compare what the names that match one pattern may have. Confluent's registry does not look at this."""
    before, after = old.pattern_properties.get(pattern), new.pattern_properties.get(pattern)
    if before is not None and after is not None:
        return (yield before, after)
    if after is None:
        assert before is not None
        if new.permits_additional:
            rest = _schema_of_rest(new)
            return (yield before, rest[0]) if rest else []
        return [] if isinstance(before, NoValue) else [SchemaDifference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL")]
    found: Differences = []
    if old.permits_additional:
        rest = _schema_of_rest(old)
        found += (yield rest[0], after) if rest else [SchemaDifference("ADDITIONAL_PROPERTIES_NARROWED")]
    for name, declared in old.properties.items():
        if _matches(pattern, name) is not False:
            found += yield declared, after
    for other, schema in old.pattern_properties.items():
        if other not in new.pattern_properties:
            # Two patterns may have a name in common, which nothing here can exclude.
            found += yield schema, after
    return found


def _matches(pattern: str, name: str) -> bool | None:
    compiled = _compiled(pattern)
    return None if compiled is None else compiled.search(name) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.max_mem = PATTERN_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeError):
        return None


def additional(what: str, old: tuple[bool, SchemaNode | None], new: tuple[bool, SchemaNode | None]) -> Rule:
    """Return the difference between what two schemas say of other properties or items."""
    (old_permits, before), (new_permits, after) = old, new
    if old_permits != new_permits:
        return [SchemaDifference(f"ADDITIONAL_{what}_{'ADDED' if new_permits else 'REMOVED'}")]
    if before is None and after is not None:
        return [SchemaDifference(f"ADDITIONAL_{what}_NARROWED")]
    if before is not None and after is None:
        return [SchemaDifference(f"ADDITIONAL_{what}_EXTENDED")]
    return (yield before, after)


def unevaluated(what: str, old: SchemaNode | None, new: SchemaNode | None) -> Rule:
    """Return the difference between two schemas for what no other keyword evaluated."""
    if old is None and new is None:
        return []
    if isinstance(old, NoValue) != isinstance(new, NoValue):
        return [SchemaDifference(f"UNEVALUATED_{what}_{'ADDED' if isinstance(old, NoValue) else 'REMOVED'}")]
    before, after = (node is None or isinstance(node, AnyValue) for node in (old, new))
    if old is None or (before and not after):
        return [SchemaDifference(f"UNEVALUATED_{what}_NARROWED")]
    if new is None or (after and not before):
        return [SchemaDifference(f"UNEVALUATED_{what}_EXTENDED")]
    return (yield old, new)


def _dependencies(old: ObjectValue, new: ObjectValue) -> Rule:
    found: Differences = []
    for name in dict.fromkeys([*old.dependent_required, *new.dependent_required]):
        before, after = old.dependent_required.get(name), new.dependent_required.get(name)
        if before == after:
            continue
        if after is None:
            change = "REMOVED"
        elif before is None:
            change = "ADDED"
        else:
            change = "EXTENDED" if before < after else "NARROWED" if after < before else "CHANGED"
        found.append(SchemaDifference(f"DEPENDENCY_ARRAY_{change}", (name,)))
    for name in dict.fromkeys([*old.dependent_schemas, *new.dependent_schemas]):
        if name not in new.dependent_schemas:
            found.append(SchemaDifference("DEPENDENCY_SCHEMA_REMOVED", (name,)))
        elif name not in old.dependent_schemas:
            found.append(SchemaDifference("DEPENDENCY_SCHEMA_ADDED", (name,)))
        else:
            found += below((name,), (yield old.dependent_schemas[name], new.dependent_schemas[name]))
    return found
