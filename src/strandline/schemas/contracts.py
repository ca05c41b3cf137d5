"""Data contracts: the metadata and rules of a schema. The registry checks, merges, stores and returns them.

Clients run the rules. Both are JSON objects with the fields that Confluent knows, in the order in which it prints them;
fields that are empty are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from strandline.schemas.failures import INVALID_RULE_SET, RegistryError, invalid_schema

Json = dict[str, Any]

RULES_MAX: Final = 500

_RULE_FIELDS: Final = (
    "name",
    "doc",
    "kind",
    "mode",
    "type",
    "tags",
    "params",
    "expr",
    "onSuccess",
    "onFailure",
    "disabled",
)
_RULE_LISTS: Final = ("migrationRules", "domainRules", "encodingRules")
_KINDS: Final = ("TRANSFORM", "CONDITION")
_MODES: Final = {
    "migrationRules": ("UPGRADE", "DOWNGRADE", "UPDOWN"),
    "domainRules": ("WRITE", "READ", "WRITEREAD"),
    "encodingRules": ("WRITE", "READ", "WRITEREAD"),
}


def metadata_of(value: Any) -> Json | None:
    """Return metadata in its one form, None for none. Raise RegistryError if it is none."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise invalid_schema("metadata must be an object")
    tags, properties, sensitive = value.get("tags"), value.get("properties"), value.get("sensitive")
    if not _is_map(tags, lambda each: isinstance(each, list) and all(isinstance(tag, str) for tag in each)):
        raise invalid_schema("metadata.tags must be an object of lists of strings")
    if not _is_map(properties, lambda each: isinstance(each, str)):
        raise invalid_schema("metadata.properties must be an object of strings")
    if not (sensitive is None or (isinstance(sensitive, list) and all(isinstance(each, str) for each in sensitive))):
        raise invalid_schema("metadata.sensitive must be a list of strings")
    found: Json = {}
    if tags:
        found["tags"] = {key: sorted(set(tags[key])) for key in sorted(tags)}
    if properties:
        found["properties"] = {key: properties[key] for key in sorted(properties)}
    if sensitive:
        found["sensitive"] = sorted(set(sensitive))
    return found


def rule_set_of(value: Any) -> Json | None:
    """Return a rule set in its one form, None for none. Raise RegistryError if it is none."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _invalid_rules("ruleSet must be an object")
    found: Json = {}
    names: set[str] = set()
    for key in _RULE_LISTS:
        rules = value.get(key) or []
        if not isinstance(rules, list) or len(rules) > RULES_MAX:
            raise _invalid_rules(f"ruleSet.{key} must be a list of at most {RULES_MAX} rules")
        checked = [_rule_of(each, key, names) for each in rules]
        if checked:
            found[key] = checked
    if isinstance(value.get("enableAt"), str):
        found["enableAt"] = value["enableAt"]
    return found


def merge_metadata(older: Json | None, newer: Json | None) -> Json | None:
    if older is None or newer is None:
        return older if newer is None else newer
    tags = {**older.get("tags", {}), **newer.get("tags", {})}
    properties = {**older.get("properties", {}), **newer.get("properties", {})}
    sensitive = {*older.get("sensitive", ()), *newer.get("sensitive", ())}
    return metadata_of({"tags": tags, "properties": properties, "sensitive": sorted(sensitive)})


def merge_rule_sets(older: Json | None, newer: Json | None) -> Json | None:
    """Return the rules of both. A newer rule replaces the older one of its name."""
    if older is None or newer is None:
        return older if newer is None else newer
    found: Json = {}
    for key in _RULE_LISTS:
        newer_rules = newer.get(key, [])
        replaced = {rule["name"] for rule in newer_rules}
        rules = [rule for rule in older.get(key, []) if rule["name"] not in replaced] + newer_rules
        if rules:
            found[key] = rules
    if enable_at := newer.get("enableAt") or older.get("enableAt"):
        found["enableAt"] = enable_at
    return found


def merged(default: Json | None, own: Json | None, override: Json | None, merge: Any) -> Json | None:
    """Return `own` with what the config adds below and above it."""
    found: Json | None = merge(merge(default, own), override)
    return found


def text_of(value: Mapping[str, Any] | None) -> str | None:
    """Return metadata or rules as text that can be compared."""
    return None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def json_of(text: str | None) -> Json | None:
    found: Json | None = None if text is None else json.loads(text)
    return found


def _rule_of(rule: Any, key: str, names: set[str]) -> Json:
    if not isinstance(rule, dict) or not isinstance(rule.get("name"), str) or not rule["name"]:
        raise _invalid_rules(f"a rule of ruleSet.{key} has no name")
    name = rule["name"]
    if name in names:
        raise _invalid_rules(f"Found rule with duplicate name '{name}'")
    names.add(name)
    if rule.get("kind") is not None and rule["kind"] not in _KINDS:
        raise _invalid_rules(f"rule '{name}' has the unknown kind {rule['kind']!r}")
    if rule.get("mode") is not None and rule["mode"] not in _MODES[key]:
        raise _invalid_rules(f"rule '{name}' of ruleSet.{key} can only have the mode {', '.join(_MODES[key])}")
    if not isinstance(rule.get("type"), str) or not rule["type"]:
        raise _invalid_rules(f"rule '{name}' has no type")
    found = {field: rule[field] for field in _RULE_FIELDS if rule.get(field) not in (None, [], {})}
    if isinstance(found.get("tags"), list):
        found["tags"] = sorted(found["tags"], key=str)
    if isinstance(found.get("params"), dict):
        found["params"] = dict(sorted(found["params"].items()))
    return found


def _is_map(value: Any, is_right: Any) -> bool:
    return value is None or (isinstance(value, dict) and all(is_right(each) for each in value.values()))


def _invalid_rules(reason: str) -> RegistryError:
    return RegistryError(INVALID_RULE_SET, reason)
