"""For a rejected change, the nearest change that passes: it does pass, and says what it is."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from tests.unit.schemas.json_schema import sampling
from tests.unit.schemas.json_schema.verdict_cases import CASES as JSON_CASES
from tests.unit.schemas.protobuf import test_protobuf_wire as wire
from tests.unit.schemas.protobuf.test_protobuf_verdicts import CASES as PROTOBUF_CASES

from strandline.schemas.avro.engine import AvroType
from strandline.schemas.evolve.evolution import Evolution, SchemaText, evolve
from strandline.schemas.json_schema.engine import JsonSchemaEngine
from strandline.schemas.protobuf.engine import ProtobufEngine
from strandline.schemas.types import SchemaType

ENGINES: dict[str, SchemaType] = {"AVRO": AvroType(), "JSON": JsonSchemaEngine(), "PROTOBUF": ProtobufEngine()}


def evolved(kind: str, old: Any, new: Any, **directions: bool) -> Evolution:
    old_text, new_text = (each if isinstance(each, str) else json.dumps(each) for each in (old, new))
    return evolve(ENGINES[kind], SchemaText(old_text, {}), SchemaText(new_text, {}), **directions)


def passes(kind: str, old: Any, text: str) -> bool:
    old_text = old if isinstance(old, str) else json.dumps(old)
    engine = ENGINES[kind]
    return not engine.parse(text, {}).differences(engine.parse(old_text, {}))


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def closed(properties: dict[str, Any], **keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False, **keywords}


def message(body: str) -> str:
    return f'syntax = "proto3"; message M {{ {body} }}'


COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
STRING, INTEGER = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("kind", "old", "new", "steps"),
    [
        (
            "AVRO",
            record(("a", "int")),
            record(("a", "int"), ("b", "string")),
            ["Add a default to the field 'b', as \"\"."],
        ),
        (
            "AVRO",
            record(("a", "int")),
            record(("a", "int"), ("b", COLOUR)),
            ["Add a default to the field 'b', as null."],
        ),
        (
            "AVRO",
            record(("a", "string")),
            record(("a", "int")),
            ["Accept the old type of the field 'a' beside the new one."],
        ),
        (
            "AVRO",
            record(("a", COLOUR)),
            record(("a", {**COLOUR, "symbols": ["RED"]})),
            ["Keep the symbols BLUE in the enum 'Colour'."],
        ),
        ("AVRO", record(), {**record(), "name": "S"}, ["Give 'S' its old name 'R' as an alias."]),
        (
            "JSON",
            closed({}),
            closed({"a": STRING}, required=["a"]),
            ["Make the new property 'a' optional."],
        ),
        ("JSON", closed({"a": STRING}), closed({}), ["Keep the property 'a' as it was."]),
        ("JSON", closed({"a": STRING}), closed({"a": STRING}, required=["a"]), ["Make the property 'a' optional."]),
        (
            "JSON",
            closed({"a": STRING}),
            closed({"a": INTEGER}),
            ["Accept the old type of the property 'a' beside the new one."],
        ),
        (
            "JSON",
            {"type": "object"},
            {"type": "object", "properties": {"a": STRING}},
            ["Let the new property 'a' have any value, because the old schema is open and allowed it."],
        ),
        ("JSON", STRING, {**STRING, "enum": ["a"]}, ["Keep #/enum as it was."]),
        (
            "JSON",
            {"$ref": "#/definitions/x", "definitions": {"x": closed({"a": STRING})}},
            {"$ref": "#/definitions/x", "definitions": {"x": closed({})}},
            ["Keep the property 'a' as it was."],
        ),
        ("JSON", {"enum": ["a", "b"]}, {"enum": ["a", "c"]}, ['Keep the values "b" in the enum of the schema.']),
        (
            "JSON",
            {**STRING, "maxLength": 9, "minLength": 1},
            {**STRING, "maxLength": 4, "minLength": 0},
            ["Keep #/maxLength as it was."],
        ),
        (
            "PROTOBUF",
            message("int32 a = 1;"),
            message("string a = 1;"),
            ["Give the field 'a' the new number 2, and reserve 1."],
        ),
        (
            "PROTOBUF",
            message("int32 a = 1; int32 b = 2;"),
            message("oneof o { int32 a = 1; int32 b = 2; }"),
            ["Leave 'a', 'b' outside the oneof 'o'."],
        ),
        (
            "PROTOBUF",
            message("oneof o { int32 a = 1; int32 b = 2; }"),
            message("oneof o { int32 a = 1; }"),
            ["Keep the field 'b' (number 2)."],
        ),
        ("PROTOBUF", "message M {}", "message M { required int32 a = 1; }", ["Make the field 'a' optional."]),
        ("PROTOBUF", "message M {} message N {}", "message M {}", ["Keep the message 'N'."]),
        ("PROTOBUF", "package p; message M {}", "package q; message M {}", ["Keep the package 'p'."]),
    ],
)
def test_the_step_says_what_to_change(kind: str, old: Any, new: Any, steps: list[str]) -> None:
    found = evolved(kind, old, new)
    assert list(found.steps) == steps
    assert found.text is not None
    assert found.left == ()
    assert passes(kind, old, found.text)


def test_a_change_that_passes_needs_no_step() -> None:
    assert evolved("JSON", STRING, STRING) == Evolution((), '{"type":"string"}')


def test_forward_keeps_what_old_readers_need() -> None:
    found = evolved("AVRO", record(("a", "int"), ("b", "int")), record(("a", "int")), backward=False, forward=True)
    assert found.steps == ("Keep the field 'b', because old readers have no default for it.",)
    found = evolved("JSON", closed({"a": STRING}), closed({"a": STRING, "b": STRING}), backward=False, forward=True)
    assert found.text == json.dumps(closed({"a": STRING}), separators=(",", ":"))


def test_without_a_way_the_reasons_are_left() -> None:
    found = evolved("AVRO", '"int"', '"string"')
    assert found.text is None
    assert [each.kind for each in found.left] == ["TYPE_MISMATCH"]


@pytest.mark.parametrize(("kind", "cases"), [("JSON", JSON_CASES), ("PROTOBUF", PROTOBUF_CASES)])
def test_most_rejected_changes_have_a_way(kind: str, cases: list[tuple[str, Any, Any, set[str]]]) -> None:
    rejected = [case for case in cases if case[3]]
    without = []
    for name, old, new, _ in rejected:
        found = evolved(kind, old, new)
        if found.text is None:
            without.append(name)
        else:
            assert passes(kind, old, found.text), name
    assert len(without) <= len(rejected) / 10, without


@pytest.mark.lengthy("hundreds of random changes")
def test_what_is_returned_for_random_changes_passes() -> None:
    random = Random(5)
    counted = {True: 0, False: 0}
    for _ in range(150):
        old = sampling.schema(random)
        new = sampling.edited(random, old)
        found = evolved("JSON", old, new)
        counted[found.text is not None] += 1
        assert found.text is None or passes("JSON", old, found.text)
    for _ in range(150):
        fields = wire.schema(random)
        before, after = wire.text(fields, "int32"), wire.text(wire.edited(random, fields), "int32")
        found = evolved("PROTOBUF", before, after)
        counted[found.text is not None] += 1
        assert found.text is None or passes("PROTOBUF", before, found.text)
    assert counted[True] > counted[False]
