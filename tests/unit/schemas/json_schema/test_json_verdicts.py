"""Verdicts over pairs of JSON schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.schemas.json_schema.verdict_cases import CASES, bound_cases, closed, obj

from strandline.schemas.json_schema.engine import JsonSchemaEngine, ParsedJsonSchema


def parsed(schema: Any) -> ParsedJsonSchema:
    return JsonSchemaEngine().parse(json.dumps(schema), {})


@pytest.mark.parametrize(("old", "new", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_pair_has_the_differences_of_its_row(old: Any, new: Any, wanted: set[str]) -> None:
    found = parsed(new).differences(parsed(old))
    assert {each.kind for each in found} == wanted
    for each in found:
        assert each.path.startswith("#/")
        assert each.message.endswith(".")
        assert "{" not in each.message
        assert "  " not in each.message


def test_every_bound_has_its_verdict_at_every_place() -> None:
    count = 0
    for name, old, new, wanted in bound_cases():
        assert {each.kind for each in parsed(new).differences(parsed(old))} == wanted, name
        count += 1
    assert count >= 2_000


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_a_schema_reads_its_own_data(case: tuple[str, Any, Any, set[str]]) -> None:
    for schema in case[1:3]:
        assert parsed(schema).differences(parsed(schema)) == []


def test_the_path_and_the_sentence_say_where() -> None:
    old, new = (
        obj({"a": obj({"b": {"type": "string", "maxLength": 9}})}),
        obj({"a": obj({"b": {"type": "string", "maxLength": 4}})}),
    )
    (found,) = parsed(new).differences(parsed(old))
    assert found.path == "#/properties/a/properties/b/maxLength"
    assert found.message == "#/properties/a/properties/b/maxLength was 9 and is 4 now."


def test_a_narrowed_part_of_a_combination_is_named() -> None:
    old, new = ({"type": "string", "enum": values} for values in (["a", "b"], ["a"]))
    (found,) = parsed(new).differences(parsed(old))
    assert '"b"' in found.message


def test_all_changes_include_compatible_ones() -> None:
    kinds = {each.kind for each in parsed(closed({"a": {}, "b": {}}, title="t")).changes(parsed(closed({"a": {}})))}
    assert kinds == {"TITLE_CHANGED", "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"}


def test_an_assumption_about_a_cycle_does_not_hide_a_difference() -> None:
    """`a` holds `b` and `b` holds `a`, and only `a` changed.

    The pair of `b` is first met inside the pair of `a`, where `a` counts as compatible. That `a` is not does no harm at
    `first`, which accepts anything else now. At `second` it does.
    """

    def schema(value: str, *others: Any) -> dict[str, Any]:
        a, b = {"$ref": "#/definitions/a"}, {"$ref": "#/definitions/b"}
        first = {"anyOf": [a, *others]} if others else a
        definitions = {"a": closed({"b": b, "value": {"type": value}}), "b": closed({"a": a})}
        return {**closed({"first": first, "second": b}), "definitions": definitions}

    found = parsed(schema("integer", {})).differences(parsed(schema("string")))
    assert {each.kind for each in found} == {"TYPE_CHANGED"}
    assert all(each.path.startswith("#/properties/second/") for each in found)
