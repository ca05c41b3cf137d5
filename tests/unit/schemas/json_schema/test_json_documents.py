"""Parsing, printing and limits of JSON schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.schemas.json_schema.diff import comparison
from strandline.schemas.json_schema.diff.comparison import PAIR_DIFFERENCES_MAX
from strandline.schemas.json_schema.diff.kinds import LIMIT_REACHED
from strandline.schemas.json_schema.drafts import DRAFTS, draft_of
from strandline.schemas.json_schema.engine import JsonSchemaEngine, ParsedJsonSchema
from strandline.schemas.types import TEXT_BYTES_MAX, InvalidSchema


def parse(text: str, references: dict[str, str] | None = None) -> ParsedJsonSchema:
    return JsonSchemaEngine().parse(text, references or {})


@pytest.mark.parametrize(
    ("text", "canonical", "normalized"),
    [
        (' { "type" : "string" } ', '{"type":"string"}', '{"type":"string"}'),
        ('{"type":"object","properties":{"b":{},"a":{}}}', None, '{"properties":{"a":{},"b":{}},"type":"object"}'),
        ('{"title":"\\u00e9\\/"}', '{"title":"é/"}', '{"title":"é/"}'),
        (
            '{"maximum": 1.10, "minimum": 12345678901234567890123}',
            '{"maximum":1.10,"minimum":12345678901234567890123}',
            None,
        ),
        ("true", "true", "true"),
        ("{ }", "{}", "{}"),
        ('{"enum": [ ]}'.replace("[ ]", "[null, [], 1e2]"), '{"enum":[null,[],1E+2]}', None),
    ],
)
def test_the_canonical_text_keeps_the_order_and_the_normalized_one_sorts(
    text: str, canonical: str | None, normalized: str | None
) -> None:
    schema = parse(text)
    assert schema.canonical() == (text if canonical is None else canonical)
    assert schema.normalized() == (schema.canonical() if normalized is None else normalized)
    assert parse(schema.canonical()).canonical() == schema.canonical()


@pytest.mark.parametrize("draft", DRAFTS, ids=lambda draft: draft.name)
def test_a_schema_is_checked_against_its_draft(draft: Any) -> None:
    address = draft.metaschema.rstrip("#")
    for spelling in (address, address + "#", address.replace("http:", "https:")):
        assert draft_of({"$schema": spelling}) is draft
        assert parse(json.dumps({"$schema": spelling, "type": "string"}))
        with pytest.raises(InvalidSchema, match=f"draft {draft.name} at #/type"):
            parse(json.dumps({"$schema": spelling, "type": "strin"}))


def test_an_unknown_draft_is_taken_as_draft_7() -> None:
    assert draft_of({"$schema": "http://example.com/mine"}).name == "7"
    assert draft_of({"$schema": 5}).name == draft_of(True).name == "7"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("3", "must be an object or a boolean"),
        ("[]", "must be an object or a boolean"),
        ("null", "must be an object or a boolean"),
        ('{"multipleOf": NaN}', "NaN is not a JSON number"),
        ('{"maximum": %s}' % ("9" * 6000), "digits"),
        ('{"minLength": -1}', "draft 7 at #/minLength"),
        ('{"properties": {"a": 3}}', "draft 7 at #/properties/a"),
        ('{"required": "a"}', "draft 7 at #/required"),
        ('{"pattern": "("}', "draft 7 at #/pattern"),
        ('{"title": "\\ud800"}', "surrogate"),
        ('{"$ref": "#"}', "leads back to itself"),
        ('{"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}}', "leads back to itself"),
        ('{"$ref": "#/definitions/none"}', "names no schema"),
        ('{"$ref": "http://127.0.0.1:9/none.json"}', "names no schema"),
        ('{"$ref": "file:///etc/passwd"}', "names no schema"),
        ('{"$ref": "#/definitions/a", "definitions": {"a": 3}}', "draft 7"),
        ('{"properties": {"a": {"$ref": "#/required/0"}}, "required": ["x"]}', "names no schema"),
        ('{"not":' * 65 + "{}" + "}" * 65, "more than 64 levels"),
        ("[" * 100_000, "more than 64 levels"),
        ('{"title": "%s"}' % ("x" * TEXT_BYTES_MAX), "more than 1,000,000 bytes"),
    ],
)
def test_a_bad_schema_is_rejected_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InvalidSchema, match=sentence) as rejected:
        parse(text)
    assert len(str(rejected.value)) < 600


def test_patterns_of_java_are_accepted() -> None:
    assert parse('{"pattern": "(?i)abc"}')
    assert parse('{"pattern": "^\\\\p{L}+$"}')


def test_references_resolve_by_name_id_and_definition() -> None:
    person = '{"$id": "http://example.com/person.json", "type": "object", "$defs": {"name": {"type": "string"}}}'
    for ref in ("person.json", "./person.json", "http://example.com/person.json"):
        schema = parse(json.dumps({"$ref": ref}), {"person.json": person})
        assert schema.differences(parse('{"type": "integer"}'))[0].kind == "TYPE_CHANGED"
        assert schema.differences(parse('{"type": "object"}')) == []
    name = parse('{"$ref": "person.json#/$defs/name"}', {"person.json": person})
    assert name.differences(parse('{"type": "string"}')) == []
    # A relative name is resolved by the address of the root.
    root = '{"$id": "http://example.com/dir/root.json", "properties": {"p": {"$ref": "person.json"}}}'
    assert parse(root, {"person.json": '{"type": "object"}'})


def test_a_referenced_schema_is_checked_too() -> None:
    with pytest.raises(InvalidSchema, match=r"referenced schema 'a.json' is not valid in draft 7"):
        parse('{"$ref": "a.json"}', {"a.json": '{"type": 3}'})
    with pytest.raises(InvalidSchema, match=r"referenced schema 'a.json' must be"):
        parse('{"$ref": "a.json"}', {"a.json": "[]"})


def test_definitions_are_found_under_either_name() -> None:
    text = '{"$ref": "#/$defs/a", "definitions": {"a": {"type": "string"}}}'
    assert parse(text).differences(parse('{"type": "string"}')) == []


def test_a_reference_to_a_metaschema_needs_no_network() -> None:
    assert parse('{"$ref": "http://json-schema.org/draft-07/schema#"}')


def test_a_long_chain_of_references_does_not_exhaust_the_stack() -> None:
    definitions: dict[str, Any] = {f"d{n}": {"$ref": f"#/definitions/d{n + 1}"} for n in range(5_000)}
    definitions["d5000"] = {"type": "string"}
    schema = parse(json.dumps({"$ref": "#/definitions/d0", "definitions": definitions}))
    assert schema.differences(parse('{"type": "string"}')) == []


def test_a_deep_chain_of_objects_does_not_exhaust_the_stack() -> None:
    def schema(last: str) -> ParsedJsonSchema:
        definitions: dict[str, Any] = {
            f"d{n}": {"type": "object", "properties": {"next": {"$ref": f"#/definitions/d{n + 1}"}}} for n in range(500)
        }
        definitions["d500"] = {"type": last}
        return parse(json.dumps({"$ref": "#/definitions/d0", "definitions": definitions}))

    assert schema("string").differences(schema("string")) == []
    assert [each.kind for each in schema("string").differences(schema("integer"))] == ["TYPE_CHANGED"]


def test_ways_that_double_do_not_double_the_differences() -> None:
    def schema(last: str) -> ParsedJsonSchema:
        definitions: dict[str, Any] = {
            f"d{n}": {"type": "object", "properties": {name: {"$ref": f"#/definitions/d{n + 1}"} for name in "xy"}}
            for n in range(60)
        }
        definitions["d60"] = {"type": last}
        return parse(json.dumps({"$ref": "#/definitions/d0", "definitions": definitions}))

    found = schema("string").differences(schema("integer"))
    assert len(found) == PAIR_DIFFERENCES_MAX


@pytest.mark.lengthy("large inputs")
def test_a_union_of_eighty_recursive_messages_is_compared() -> None:
    members = [
        {"type": "object", "properties": {"kind": {"const": n}, "inner": {"$ref": "#"}}, "additionalProperties": False}
        for n in range(80)
    ]
    old = parse(json.dumps({"oneOf": members[:-1]}))
    new = parse(json.dumps({"oneOf": members[::-1]}))
    assert new.differences(old) == []
    assert old.differences(new)[0].kind == "SUM_TYPE_NARROWED"


def test_parts_that_accept_anything_do_not_multiply_the_pairs() -> None:
    definitions: dict[str, Any] = {
        f"d{n}": {"allOf": [{"$ref": f"#/definitions/d{n + 1}"}, {"title": str(n)}]} for n in range(1_000)
    }
    definitions["d1000"] = {"type": "string"}
    text = json.dumps({"$ref": "#/definitions/d0", "definitions": definitions})
    assert parse(text).differences(parse(text)) == []


def test_many_alternatives_reach_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "WORK_MAX", 10_000)
    members = [{"type": "object", "properties": {f"p{n}": {"type": "string"}}} for n in range(40)]
    wide = parse(json.dumps({"oneOf": members}))
    (found,) = wide.differences(parse(json.dumps({"oneOf": members[::-1]})))
    assert found.kind == LIMIT_REACHED
    assert "smaller" in found.message


def test_alternatives_inside_alternatives_are_compared_once() -> None:
    """Twelve definitions that each refer to all are 144 pairs, and far more paths."""

    def schema(last: str) -> ParsedJsonSchema:
        definitions: dict[str, Any] = {
            f"d{n}": {
                "type": "object",
                "properties": {"x": {"oneOf": [{"$ref": f"#/definitions/d{m}"} for m in range(12)]}},
                "maxProperties": n + 1,
            }
            for n in range(12)
        }
        definitions["d11"]["properties"]["y"] = {"type": last}
        return parse(json.dumps({"$ref": "#/definitions/d0", "definitions": definitions}))

    assert schema("string").differences(schema("string")) == []
    assert schema("string").differences(schema("integer")) != []


def test_a_pattern_that_explodes_is_matched_in_linear_time() -> None:
    explosive = "^(a+)+$"
    old = {"type": "object", "properties": {"a" * 5_000 + "!": {"type": "string"}}, "additionalProperties": False}
    new = {"type": "object", "patternProperties": {explosive: {"type": "string"}}, "additionalProperties": False}
    found = parse(json.dumps(new)).differences(parse(json.dumps(old)))
    assert {each.kind for each in found} == {"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"}


def test_a_pattern_that_can_not_be_matched_in_linear_time_is_never_called_compatible() -> None:
    old = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    new = {"type": "object", "patternProperties": {"(?=a)a": {"type": "string"}}, "additionalProperties": {}}
    assert parse(json.dumps(new)).differences(parse(json.dumps(old))) != []
