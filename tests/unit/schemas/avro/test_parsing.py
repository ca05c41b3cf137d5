"""Avro schemas as text: what is accepted, the one form in which it is printed, and what a hostile one costs."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from strandline.schemas.avro.engine import AvroType
from strandline.schemas.types import InvalidSchema

ENGINE = AvroType()

RECORD = {"type": "record", "name": "R", "fields": []}


def canonical(schema: Any, references: dict[str, str] | None = None) -> str:
    text = schema if isinstance(schema, str) else json.dumps(schema, indent=2)
    return ENGINE.parse(text, references or {}).canonical()


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ('{"type": "string"}', '"string"'),
        (' "int" ', '"int"'),
        ('{"type": {"type": "long"}}', '"long"'),
        ('["null", {"type":"string"}]', '["null","string"]'),
        ('{"logicalType": "date", "type": "int"}', '{"type":"int","logicalType":"date"}'),
        ('{"items": "string", "type": "array"}', '{"type":"array","items":"string"}'),
        ('{"values": {"type": "bytes"}, "type": "map"}', '{"type":"map","values":"bytes"}'),
        (
            '{"fields": [{"type": "int", "name": "a", "default": 1, "doc": "é"}], "name": "R", "type": "record"}',
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int","doc":"é","default":1}]}',
        ),
        (
            '{"type":"record","name":"a.b.R","fields":[{"name":"f","type":{"type":"fixed","name":"F","size":2}},'
            '{"name":"g","type":"a.b.F","order":"descending"},{"name":"h","type":["null","R"],"default":null}]}',
            '{"type":"record","name":"R","namespace":"a.b","fields":[{"name":"f","type":{"type":"fixed","name":"F",'
            '"size":2}},{"name":"g","type":"F","order":"descending"},{"name":"h","type":["null","R"],"default":null}]}',
        ),
        (
            '{"type":"enum","aliases":["x.Old","Older"],"symbols":["A","B"],"default":"A","name":"E","namespace":"n"}',
            '{"type":"enum","name":"E","namespace":"n","symbols":["A","B"],"default":"A","aliases":["x.Old","Older"]}',
        ),
        (
            '{"type":"record","name":"n.R","fields":[{"name":"f","type":{"type":"record","name":"S","namespace":"",'
            '"fields":[]}}]}',
            '{"type":"record","name":"R","namespace":"n","fields":[{"name":"f","type":{"type":"record","name":"S",'
            '"namespace":"","fields":[]}}]}',
        ),
    ],
)
def test_a_schema_is_printed_in_one_form(text: str, printed: str) -> None:
    """The order of the Java library, which Confluent's registry stores."""
    assert canonical(text) == printed
    assert canonical(printed) == printed


def test_references_are_named_and_not_printed_out() -> None:
    base = '{"type":"record","name":"n.Base","fields":[{"name":"a","type":"int"}]}'
    user = '{"type":"record","name":"n.User","fields":[{"name":"base","type":"Base"}]}'
    parsed = ENGINE.parse(user, {"n.Base": base})
    assert parsed.canonical() == (
        '{"type":"record","name":"User","namespace":"n","fields":[{"name":"base","type":"Base"}]}'
    )
    assert '"type":"n.Base"' in parsed.normalized()
    with pytest.raises(InvalidSchema, match=r'"Base" is not defined'):
        ENGINE.parse(user, {})


def test_normalised_schemas_that_mean_the_same_are_the_same() -> None:
    one = {"type": "record", "name": "R", "namespace": "n", "b": 1, "a": 2, "fields": [{"name": "f", "type": "int"}]}
    other = {"a": 2, "fields": [{"type": {"type": "int"}, "name": "f"}], "b": 1, "type": "record", "name": "n.R"}
    first, second = (ENGINE.parse(json.dumps(each), {}) for each in (one, other))
    assert first.normalized() == second.normalized()


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "not JSON"),
        ("NaN", "not JSON"),
        ("string", "not JSON"),
        ("1", "is not a schema"),
        ({}, "has no type"),
        ("null", "is not a schema"),
        ({"type": "strung"}, "is not defined"),
        ({"type": "array"}, "has no items"),
        ({"type": "map"}, "has no values"),
        ({"type": "record", "fields": []}, "has no name"),
        ({"type": "record", "name": "R"}, "no list of fields"),
        ({"type": "record", "name": "1R", "fields": []}, "illegal"),
        ({"type": "record", "name": "R-x", "fields": []}, "illegal"),
        ({"type": "record", "name": "R", "namespace": "a..b", "fields": []}, "illegal"),
        ({"type": "record", "name": "int", "fields": []}, "can not be defined"),
        ({"type": "record", "name": "R", "fields": [{"name": "a b", "type": "int"}]}, "illegal"),
        ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, "has no type"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2}, "twice"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": "x"}]}, "is no int"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": 2**31}]}, "is no int"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "order": "up"}]}, "order"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "int"], "default": "x"}]}, "union"),
        ([RECORD, RECORD], "defined twice"),
        (["int", "int"], "twice"),
        (["int", ["string"]], "another union"),
        ([{"type": "array", "items": "int"}, {"type": "array", "items": "long"}], "twice"),
        ({"type": "enum", "name": "E"}, "no list of symbols"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "twice"),
        ({"type": "enum", "name": "E", "symbols": ["a-b"]}, "illegal"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "not among"),
        ({"type": "fixed", "name": "F", "size": "2"}, "no size"),
        ({"type": "fixed", "name": "F", "size": -1}, "no size"),
    ],
)
def test_what_is_no_schema_is_rejected_in_a_sentence(schema: Any, words: str) -> None:
    with pytest.raises(InvalidSchema, match=words) as caught:
        canonical(schema)
    assert len(str(caught.value)) < 400


def nested(depth: int) -> str:
    return '{"type":"array","items":' * depth + '"int"' + "}" * depth


@pytest.mark.parametrize(
    "text",
    [
        nested(200),
        nested(50_000),
        "[" * 100_000,
        '{"type":"int","deep":' + "[" * 800 + "]" * 800 + "}",
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int","x":' + '{"x":' * 900 + "1" + "}" * 900 + "}]}",
    ],
)
def test_deep_nesting_is_rejected(text: str) -> None:
    with pytest.raises(InvalidSchema):
        canonical(text)


def test_nesting_that_is_allowed_is_printed_and_compared() -> None:
    parsed = ENGINE.parse(nested(150), {})
    assert parsed.canonical() == nested(150)
    assert parsed.differences(ENGINE.parse(nested(150), {})) == []


def laughs(depth: int, width: int, leaf: str) -> str:
    """Each type has `width` fields of the type before it: `width ** depth` leaves."""
    types: list[Any] = [{"type": "record", "name": "T0", "fields": [{"name": "leaf", "type": leaf}]}]
    for number in range(1, depth):
        fields = [{"name": f"f{each}", "type": f"T{number - 1}"} for each in range(width)]
        types.append({"type": "record", "name": f"T{number}", "fields": fields})
    holder = [{"name": f"t{number}", "type": each} for number, each in enumerate(types)]
    return json.dumps({"type": "record", "name": "All", "fields": holder})


def test_a_billion_laughs_cost_as_much_as_their_text() -> None:
    before = time.process_time()
    old, new = (ENGINE.parse(laughs(60, 30, leaf), {}) for leaf in ("int", "string"))
    assert len(old.canonical()) < 100_000
    assert 0 < len(new.differences(old)) < 10_000
    assert time.process_time() - before < 20, "not exponential: 30 ** 60 leaves"


def test_a_default_of_a_recursive_type_is_checked_to_its_leaf() -> None:
    value: Any = "no leaf"
    for _ in range(60):
        value = {"f": value}
    recursive = {"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", "R"], "default": value}]}
    with pytest.raises(InvalidSchema, match="default"):
        ENGINE.parse(json.dumps(recursive), {})


def test_a_long_chain_of_types_is_compared_or_given_up() -> None:
    def chain(leaf: str) -> str:
        types: list[Any] = [{"type": "record", "name": "T0", "fields": [{"name": "f", "type": leaf}]}]
        for number in range(1, 1500):
            types.append({"type": "record", "name": f"T{number}", "fields": [{"name": "f", "type": f"T{number - 1}"}]})
        return json.dumps(types)

    old, new = ENGINE.parse(chain("int"), {}), ENGINE.parse(chain("string"), {})
    assert new.differences(old)
