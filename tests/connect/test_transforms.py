"""Transforms and predicates: against what Kafka's own gave, and the chain of a config."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from tests.connect.golden.ours import ours, same
from tests.connect.golden.record import recorded

from strandline.connect import ConnectRecord, Header, InvalidConnectorConfig, RecordFailed, SinkRecord, SourceRecord
from strandline.connect.schema import INT32, STRING, TIMESTAMP_SCHEMA, ConnectType, Schema, decimal_schema, struct
from strandline.connect.transforms.chain import (
    NAMED,
    alias_errors,
    config_of,
    predicate_names,
    transform_chain,
    transform_names,
    transform_options,
)

_NO_FLOATS = "without a schema a number of 32 bits is written with the digits of the nearest double"
KEPT = {
    "Cast$Value 105": "Java before 19 writes more digits than needed",
    "Cast$Value 106": _NO_FLOATS,
    "Cast$Value 108": _NO_FLOATS,
    "Cast$Value 110": _NO_FLOATS,
    "Cast$Value 112": _NO_FLOATS,
    "SetSchemaMetadata$Value 4": "schemas of other types than structs can be named too",
    "MaskField$Value 38": "a decimal gets the digits of its schema",
    "config of Cast$Value 3": "the message is not garbled",
    "config of TimestampConverter$Key 4": "the message is not garbled",
}
"""Differences to Kafka that are meant."""
TRANSFORM_KINDS = ("transform", "options")
ALLOWED = "transforms_of_a_test"


@pytest.mark.parametrize("kind", TRANSFORM_KINDS)
def test_results_are_those_of_kafka(kind: str) -> None:
    found = [(case, expected, ours(case)) for case, expected in recorded() if case["kind"] == kind]
    unlike = {case["label"]: (expected, mine) for case, expected, mine in found if not same(case, expected, mine)}
    meant = KEPT.keys() if kind == "transform" else set()
    assert unlike.keys() == meant, {label: each for label, each in unlike.items() if label not in meant}
    assert len(found) >= 20


def test_every_transform_and_predicate_is_compared() -> None:
    types = {case.get("type") for case, _ in recorded()} | {case.get("predicate") for case, _ in recorded()}
    names = {*transform_names(), *predicate_names()} - {"strandline.connect.transforms.Python", *NAMED}
    assert {each.partition("$")[0] for each in names} == {
        each.partition("$")[0] for each in types if each and ".transforms." in each
    }


def applied(transform: str, record: ConnectRecord, **settings: str) -> ConnectRecord | None:
    config = {"transforms": "a", "transforms.a.type": transform}
    config |= {f"transforms.a.{name.replace('_', '.')}": each for name, each in settings.items()}
    chain = transform_chain(config)
    assert chain is not None
    return chain(record)


# The chain


def test_without_transforms_there_is_no_chain() -> None:
    assert transform_chain({"name": "x"}) is None
    assert transform_chain({"transforms": " "}) is None


def test_transforms_run_in_order_and_a_dropped_record_ends_the_chain() -> None:
    chain = transform_chain(
        {
            "transforms": "wrap, drop ,route",
            "transforms.wrap.type": "HoistField$Value",
            "transforms.wrap.field": "a",
            "transforms.drop.type": "Filter",
            "transforms.drop.predicate": "odd",
            "transforms.drop.negate": "true",
            "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
            "transforms.route.regex": "(.*)",
            "transforms.route.replacement": "new-$1",
            "predicates": "odd",
            "predicates.odd.type": "HasHeaderKey",
            "predicates.odd.name": "keep",
        }
    )
    assert chain is not None
    kept = chain(SourceRecord("t", value=5, headers=[Header("keep", None)]))
    assert kept == SourceRecord("new-t", value={"a": 5}, headers=[Header("keep", None)])
    assert chain(SourceRecord("t", value=5)) is None


def test_a_sink_record_stays_one_and_keeps_its_place() -> None:
    record = SinkRecord("t", value={"a": 1}, offset=7, original_topic="t", original_partition=2)
    changed = applied("RegexRouter", record, regex="t", replacement="u")
    assert isinstance(changed, SinkRecord)
    assert (changed.topic, changed.place) == ("u", "t-2 at offset 7")
    assert record.topic == "t"


def test_inputs_are_not_changed() -> None:
    value: dict[str, Any] = {"a": {"b": 1}, "c": "x"}
    headers = [Header("h", 1)]
    record = SourceRecord("t", value=value, headers=headers)
    for transform, settings in (
        ("MaskField$Value", {"fields": "c"}),
        ("Flatten$Value", {}),
        ("ReplaceField$Value", {"exclude": "a"}),
        ("InsertField$Value", {"topic_field": "t"}),
        ("Cast$Value", {"spec": "c:boolean"}),
        ("DropHeaders", {"headers": "h"}),
        ("InsertHeader", {"header": "i", "value_literal": "1"}),
        ("HeaderFrom$Value", {"fields": "c", "headers": "c", "operation": "move"}),
    ):
        assert applied(transform, record, **settings) != record
    assert (value, headers) == ({"a": {"b": 1}, "c": "x"}, [Header("h", 1)])


@pytest.mark.parametrize(
    ("config", "setting", "message"),
    [
        ({}, "transforms.a.type", 'Missing required configuration "transforms.a.type" which has no default value.'),
        (
            {"transforms.a.type": "no.Such"},
            "transforms.a.type",
            "Invalid value no.Such for configuration transforms.a.type: Class no.Such could not be found.",
        ),
        (
            {"transforms.a.type": "MaskField$Value"},
            "transforms.a.fields",
            'Missing required configuration "transforms.a.fields" which has no default value.',
        ),
        (
            {"transforms.a.type": "RegexRouter", "transforms.a.regex": "(?=x)y", "transforms.a.replacement": "x"},
            "transforms.a.regex",
            "Invalid value (?=x)y for configuration transforms.a.regex: Invalid regex: ",
        ),
        (
            {"transforms.a.type": "RegexRouter", "transforms.a.regex": "x", "transforms.a.replacement": "$1"},
            "transforms.a.replacement",
            "Invalid value $1 for configuration transforms.a.replacement: No group 1",
        ),
        (
            {"transforms.a.type": "Filter", "transforms.a.negate": "true"},
            "transforms.a.type",
            "Config 'transforms.a.negate' was provided but there is no config 'transforms.a.predicate'",
        ),
        (
            {"transforms.a.type": "Filter", "transforms.a.predicate": "p"},
            "transforms.a.predicate",
            "Unknown configuration 'predicates.p.type'",
        ),
        (
            {"transforms.a.type": "Filter", "predicates": "p", "predicates.p.type": "TopicNameMatches"},
            "predicates.p.pattern",
            'Missing required configuration "predicates.p.pattern" which has no default value.',
        ),
        (
            {"transforms.a.type": "TimestampRouter", "transforms.a.timestamp.format": "jj"},
            "transforms.a.timestamp.format",
            "Illegal pattern character 'j'",
        ),
        (
            {"transforms.a.type": "Python", "transforms.a.function": "nothing"},
            "transforms.a.function",
            "it is not module:name",
        ),
    ],
)
def test_wrong_settings_are_named_in_full(config: dict[str, str], setting: str, message: str) -> None:
    properties = {"transforms": "a", **config}
    errors = {name: each for stage in transform_options(properties) for name, each in stage.errors.items()}
    assert list(errors) == [setting]
    assert message in errors[setting][0]
    with pytest.raises(InvalidConnectorConfig) as raised:
        transform_chain(properties)
    assert message in str(raised.value)


def test_an_alias_may_be_there_once() -> None:
    properties = {"transforms": "a,a", "transforms.a.type": "Filter"}
    assert alias_errors(properties) == {
        "transforms": ["Invalid value [a, a] for configuration transforms: Duplicate alias provided."]
    }
    with pytest.raises(InvalidConnectorConfig, match="Duplicate alias"):
        transform_chain(properties)


def test_options_have_full_names_and_a_group() -> None:
    properties = {"transforms": "a", "transforms.a.type": "MaskField$Value", "transforms.a.fields": "x"}
    (stage,) = transform_options(properties)
    assert stage.config is config_of("org.apache.kafka.connect.transforms.MaskField$Value")
    assert not stage.errors
    assert [each.name for each in stage.options] == [
        "transforms.a.type",
        "transforms.a.predicate",
        "transforms.a.negate",
        "transforms.a.replace.null.with.default",
        "transforms.a.fields",
        "transforms.a.replacement",
    ]
    assert {each.group for each in stage.options} == {"Transforms: a"}


# Python functions


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    found = types.ModuleType(ALLOWED)
    sys.modules[ALLOWED] = found
    yield found
    del sys.modules[ALLOWED]


def python_chain(function: str, allowed: tuple[str, ...] = (ALLOWED,)) -> Any:
    config = {"transforms": "p", "transforms.p.type": "Python", "transforms.p.function": f"{ALLOWED}:{function}"}
    return transform_chain(config, allowed)


def test_a_python_function_changes_and_drops_records(module: types.ModuleType) -> None:
    module.__dict__["double"] = lambda record: record.with_(value=record.value * 2) if record.value else None
    chain = python_chain("double")
    assert chain(SourceRecord("t", value=4)).value == 8
    assert chain(SourceRecord("t", value=0)) is None


def test_a_python_function_that_fails_is_a_failure_of_its_record(module: types.ModuleType) -> None:
    module.__dict__["wrong"] = lambda record: record.value["missing"]
    module.__dict__["odd"] = lambda record: 5
    record = SourceRecord("t", value={})
    with pytest.raises(RecordFailed, match="KeyError") as raised:
        python_chain("wrong")(record)
    assert raised.value.record is record
    with pytest.raises(RecordFailed, match="returned int instead of a record"):
        python_chain("odd")(record)


def test_only_allowed_modules_are_called(module: types.ModuleType) -> None:
    module.__dict__["double"] = lambda record: record
    with pytest.raises(InvalidConnectorConfig, match=r"plugin\.modules"):
        python_chain("double", ())
    with pytest.raises(InvalidConnectorConfig, match="cannot be imported"):
        python_chain("missing")


# What only this implementation has to get right


def test_failures_name_their_record() -> None:
    record = SourceRecord("t", value="text")
    for transform, settings in (
        ("Cast$Value", {"spec": "int8"}),
        ("MaskField$Value", {"fields": "a"}),
        ("ExtractField$Value", {"field": "a"}),
        ("Flatten$Value", {}),
        ("TimestampRouter", {}),
        ("TimestampConverter$Value", {"target_type": "unix"}),
        ("ValueToKey", {"fields": "a"}),
    ):
        with pytest.raises(RecordFailed) as raised:
            applied(transform, record, **settings)
        assert raised.value.record is record


def test_a_cast_moment_is_no_logical_type_any_more() -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    changed = applied("Cast$Value", SourceRecord("t", value=moment, value_schema=TIMESTAMP_SCHEMA), spec="int64")
    assert changed is not None
    assert (changed.value, changed.value_schema) == (1_704_067_200_000, Schema(ConnectType.INT64))


def test_structs_with_defaults_are_flattened() -> None:
    inner = Schema(ConnectType.STRUCT, default={"x": 8}, fields=struct({"x": INT32, "y": STRING.as_optional()}).fields)
    changed = applied("Flatten$Value", SourceRecord("t", value={"top": None}, value_schema=struct({"top": inner})))
    assert changed is not None
    assert changed.value == {"top.x": 8, "top.y": None}
    assert changed.value_schema is not None
    assert [(each.name, each.schema.default) for each in changed.value_schema.fields] == [("top.x", 8), ("top.y", None)]


def test_names_that_would_be_there_twice_are_refused() -> None:
    schema = struct({"a": INT32, "b": INT32})
    record = SourceRecord("t", value={"a": 1, "b": 2}, value_schema=schema)
    for transform, settings in (
        ("InsertField$Value", {"topic_field": "a"}),
        ("ReplaceField$Value", {"renames": "a:b"}),
    ):
        with pytest.raises(RecordFailed, match="duplication"):
            applied(transform, record, **settings)


def test_schemas_without_an_identity_of_their_own_do_not_pile_up() -> None:
    chain = transform_chain({"transforms": "a", "transforms.a.type": "HoistField$Value", "transforms.a.field": "f"})
    assert chain is not None
    for number in range(3000):
        changed = chain(SourceRecord("t", value=number, value_schema=Schema(ConnectType.INT32, doc=str(number))))
        assert changed is not None
        assert changed.value_schema is not None
        assert changed.value_schema.fields[0].schema.doc == str(number)


def test_a_mask_keeps_the_type_of_a_decimal() -> None:
    record = SourceRecord("t", value={"a": Decimal("1.50")}, value_schema=struct({"a": decimal_schema(2)}))
    changed = applied("MaskField$Value", record, fields="a", replacement="9.9")
    assert changed is not None
    assert changed.value == {"a": Decimal("9.9")}
