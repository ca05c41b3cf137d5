"""Random JSON schemas with closed objects, random edits of them, and random instances, all from a seed.

Only keywords whose rules promise that old data stays valid are drawn. Confluent's rules are lenient in four places more
and are followed there: a required property with a default, a new alternative of `oneOf`, a `type` beside keywords that
had none, and a new property beside `patternProperties` in an object that accepts all other properties.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

Schema = Any
NAMES = ("a", "b", "x_c", "x_d")
WORDS = ("", "a", "b", "ab", "aaa", "bbbb", "abcde")
NUMBERS = (-4, -1, 0, 1, 2, 3, 4, 6, 8, 12, 0.5, 1.5, 2.5)


def schema(random: Random, depth: int = 3) -> Schema:
    """Return a random schema."""
    simple = [_string, _number, _enumeration, _constant, _boolean]
    nested = [_object, _object, _object, _list, _tuple, _union, _types, _product, _negation, _conditional]
    return random.choice(simple if depth <= 0 else simple + nested)(random, depth)


def _some(random: Random, keywords: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in keywords.items() if random.random() < 0.4}


def _string(random: Random, depth: int) -> Schema:
    bounds = {"minLength": random.randint(0, 2), "maxLength": random.randint(1, 5), "pattern": random.choice("ab")}
    return {"type": "string", **_some(random, bounds)}


def _number(random: Random, depth: int) -> Schema:
    bounds = {
        "minimum": random.choice((-4, 0, 1)),
        "maximum": random.choice((2, 4, 8)),
        "exclusiveMinimum": random.choice((-4, 0, 1)),
        "exclusiveMaximum": random.choice((2, 4, 8)),
        "multipleOf": random.choice((1, 2, 3, 4, 0.5)),
    }
    return {"type": random.choice(("integer", "number")), **_some(random, bounds)}


def _enumeration(random: Random, depth: int) -> Schema:
    return {"enum": random.sample([*WORDS, 1, 2, None, True, [1], {"a": 1}], random.randint(1, 4))}


def _constant(random: Random, depth: int) -> Schema:
    return {"const": random.choice([*WORDS, 1, None])}


def _boolean(random: Random, depth: int) -> Schema:
    return random.choice(({"type": "boolean"}, {"type": "null"}, {}))


def _object(random: Random, depth: int) -> Schema:
    names = random.sample(NAMES, random.randint(0, 3))
    made: dict[str, Any] = {
        "type": "object",
        "properties": {name: schema(random, depth - 1) for name in names},
        "additionalProperties": False if random.random() < 0.7 else schema(random, depth - 2),
    }
    made |= _some(
        random,
        {
            "required": random.sample(NAMES, random.randint(0, 2)),
            "minProperties": random.randint(0, 2),
            "maxProperties": random.randint(1, 4),
        },
    )
    if random.random() < 0.2:
        made["dependencies"] = {random.choice(NAMES): random.sample(NAMES, random.randint(1, 2))}
    if random.random() < 0.3:
        made["patternProperties"] = {random.choice(("^x_", "c$", "d")): schema(random, depth - 2)}
    if random.random() < 0.1:
        made["propertyNames"] = {"type": "string", "maxLength": random.randint(1, 4)}
    return made


def _list(random: Random, depth: int) -> Schema:
    made = {"type": "array", "items": schema(random, depth - 1)}
    return made | _some(
        random,
        {
            "minItems": random.randint(0, 2),
            "maxItems": random.randint(1, 4),
            "uniqueItems": True,
            "contains": schema(random, 0),
        },
    )


def _tuple(random: Random, depth: int) -> Schema:
    items = [schema(random, depth - 2) for _ in range(random.randint(1, 3))]
    others = random.choice((False, False, True, schema(random, 0)))
    return {"type": "array", "items": items, "additionalItems": others}


def _union(random: Random, depth: int) -> Schema:
    return {"anyOf": [schema(random, depth - 1) for _ in range(random.randint(1, 3))]}


def _types(random: Random, depth: int) -> Schema:
    bounds = {"maxLength": random.randint(1, 5), "maximum": random.choice((2, 4, 8))}
    return {"type": random.sample(["string", "integer", "null", "boolean"], 2), **_some(random, bounds)}


def _product(random: Random, depth: int) -> Schema:
    return {"allOf": [schema(random, 0), *[schema(random, 0) for _ in range(random.randint(0, 2))]]}


def _negation(random: Random, depth: int) -> Schema:
    return {"type": "string", "not": _string(random, 0)}


def _conditional(random: Random, depth: int) -> Schema:
    return {"if": schema(random, 0), "then": schema(random, 0), "else": schema(random, 0)}


def edited(random: Random, old: Schema) -> Schema:
    """Return a copy of `old` with one to three random changes."""
    root = {"root": copy.deepcopy(old)}
    for _ in range(random.randint(1, 3)):
        holder, key = random.choice(list(_places(root, "root")))
        holder[key] = _edit(random, holder[key])
    return root["root"]


def _places(holder: Any, key: Any) -> Iterator[tuple[Any, Any]]:
    """Yield where the schemas inside a schema are."""
    value = holder[key]
    yield holder, key
    if not isinstance(value, dict):
        return
    for keyword in ("properties", "patternProperties"):
        for name in value.get(keyword, {}):
            yield from _places(value[keyword], name)
    for keyword in ("anyOf", "allOf", "items"):
        for index in range(len(value[keyword]) if isinstance(value.get(keyword), list) else 0):
            yield from _places(value[keyword], index)
    for keyword in ("additionalProperties", "items", "not", "then", "else", "contains", "additionalItems", "if"):
        if isinstance(value.get(keyword), dict):
            yield from _places(value, keyword)


def _edit(random: Random, old: Schema) -> Schema:
    if not isinstance(old, dict) or random.random() < 0.15:
        return random.choice((schema(random, 1), {"anyOf": [old, schema(random, 0)]}, old))
    new = dict(old)
    match random.choice(("drop", "add", "number", "list", "property", "type", "required")):
        case "drop" if new:
            # Without its type a schema becomes one of the lenient places.
            dropped = random.choice(list(new))
            if dropped not in ("type", "properties", "additionalProperties", "if", "then", "else"):
                del new[dropped]
        case "add":
            other = schema(random, 1)
            if isinstance(other, dict) and other.get("type") == new.get("type"):
                new = {**other, **new}
        case "number":
            bounds = [key for key, value in new.items() if isinstance(value, int) and not isinstance(value, bool)]
            if bounds:
                key = random.choice(bounds)
                new[key] = max(new[key] * 2 if random.random() < 0.3 else new[key] + random.choice((-1, 1)), 0)
                if key == "multipleOf":
                    new[key] = new[key] or 1
        case "list":
            lists = [key for key, value in new.items() if isinstance(value, list) and key in ("enum", "anyOf", "allOf")]
            if lists:
                values = list(new[lists[0]])
                random.shuffle(values)
                new[lists[0]] = values[1:] if len(values) > 1 and random.random() < 0.5 else values
        case "property" if "properties" in new:
            properties = dict(new["properties"])
            name = random.choice(NAMES)
            if name in properties:
                del properties[name]
            else:
                properties[name] = schema(random, 1)
            new["properties"] = properties
        case "required" if "properties" in new:
            new["required"] = random.sample(NAMES, random.randint(0, 2))
        case "type" if new.get("type") in ("integer", "number"):
            new["type"] = random.choice(("integer", "number"))
    return new


def instance(random: Random, of: Schema, depth: int = 4) -> Any:
    """Return a value that is often valid under a schema, and close to its bounds."""
    if not isinstance(of, dict) or depth < 0 or random.random() < 0.03:
        return random.choice([*WORDS, *NUMBERS, None, True, [], {}])
    if "enum" in of:
        return random.choice(of["enum"])
    if "const" in of:
        return of["const"]
    for keyword in ("anyOf", "allOf"):
        if keyword in of:
            return instance(random, random.choice(of[keyword]), depth)
    if "if" in of:
        return instance(random, of[random.choice(("if", "then", "else"))], depth)
    match random.choice(of["type"]) if isinstance(of.get("type"), list) else of.get("type"):
        case "string":
            return random.choice(WORDS)
        case "integer" | "number":
            return random.choice(NUMBERS)
        case "boolean":
            return random.choice((True, False))
        case "null":
            return None
        case "array":
            return _array_instance(random, of, depth)
        case "object":
            return _object_instance(random, of, depth)
    return random.choice([*WORDS, *NUMBERS, None])


def _array_instance(random: Random, of: dict[str, Any], depth: int) -> Any:
    items = of.get("items", True)
    if isinstance(items, list):
        made = [instance(random, each, depth - 1) for each in items[: random.randint(0, len(items))]]
        if len(made) == len(items) and of.get("additionalItems") is not False and random.random() < 0.6:
            made.append(instance(random, of.get("additionalItems", True), depth - 1))
        return made
    made = [instance(random, items, depth - 1) for _ in range(random.randint(0, of.get("maxItems", 3)))]
    if "contains" in of:
        made.append(instance(random, of["contains"], depth - 1))
    return made


def _object_instance(random: Random, of: dict[str, Any], depth: int) -> Any:
    made = {}
    patterns = of.get("patternProperties", {})
    for name in NAMES:
        if name in of.get("properties", {}):
            wanted = of["properties"][name]
        elif patterns and random.random() < 0.5:
            wanted = next(iter(patterns.values()))
        else:
            wanted = of.get("additionalProperties", True)
        if wanted is not False and (name in of.get("required", ()) or random.random() < 0.5):
            made[name] = instance(random, wanted, depth - 1)
    return made
