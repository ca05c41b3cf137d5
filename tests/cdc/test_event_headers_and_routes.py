"""Debezium's ExtractChangedRecordState and ByLogicalTableRouter."""

from __future__ import annotations

import pytest
from tests.cdc.change_records import CUSTOMERS, WHOLE, change, created, maker
from tests.cdc.test_flat_records import applied, flat

from strandline.cdc.model import UNKNOWN
from strandline.connect.failures import RecordFailed
from strandline.connect.records import SourceRecord
from strandline.connect.schema import OPTIONAL_STRING, STRING, SchemaField
from strandline.connect.transforms.chain import Chain, transform_options

CHANGED = "io.debezium.transforms.ExtractChangedRecordState"
ROUTER = "io.debezium.transforms.ByLogicalTableRouter"
SCHEMAS = pytest.mark.parametrize("has_schema", [True, False])


def without_schema(record: SourceRecord) -> SourceRecord:
    record.key_schema = record.value_schema = None
    return record


@SCHEMAS
@pytest.mark.parametrize("name", [CHANGED, "ExtractChangedRecordState"])
def test_headers_name_the_columns_that_changed(name: str, has_schema: bool) -> None:
    (record,) = maker().change(change("u", (1, b"one", None, b"new"), (1, b"two", None, b"old"), WHOLE))
    record = record if has_schema else without_schema(record)
    found = applied(flat(name, header_changed_name="Changed", header_unchanged_name="Unchanged"), record)
    assert [each[:2] for each in found.headers] == [("Changed", ["name", "state"]), ("Unchanged", ["id", "email"])]
    assert found.value == record.value
    schema = found.headers[0].schema
    if has_schema:
        assert schema is not None
        assert (schema.name, schema.value_schema, schema.optional) == ("Changed", OPTIONAL_STRING, True)
    else:
        assert schema is None


def test_headers_are_empty_without_a_row_before() -> None:
    found = applied(flat(CHANGED, header_changed_name="Changed"), created())
    assert [each[:2] for each in found.headers] == [("Changed", [])]
    record = created()
    assert flat(CHANGED)(record) is record
    heartbeat = maker().heartbeat()
    assert flat(CHANGED, header_changed_name="Changed")(heartbeat) is heartbeat


def router(**settings: str) -> Chain:
    return flat(ROUTER, topic_regex=r"(.*)customers(.*)", topic_replacement="$1customers_all", **settings)


@SCHEMAS
def test_topics_that_match_are_renamed_and_keys_name_their_table(has_schema: bool) -> None:
    record = created() if has_schema else without_schema(created())
    found = applied(router(), record)
    assert found.topic == "shop.public.customers_all"
    assert found.key == {"id": 1, "__dbz__physicalTableIdentifier": "shop.public.customers"}
    assert found.value == record.value
    if has_schema:
        assert found.key_schema is not None
        assert found.key_schema.name == "shop.public.customers_all.Key"
        assert found.key_schema.fields[-1] == SchemaField("__dbz__physicalTableIdentifier", STRING)
        assert found.value_schema is not None
        assert (found.value_schema.name, found.value_schema.version) == ("shop.public.customers_all.Envelope", 2)
        before, after = (each.schema for each in found.value_schema.fields[:2])
        assert before.name == after.name == "shop.public.customers_all.Value"
        assert [each.schema.optional for each in before.fields] != [each.schema.optional for each in after.fields]


def test_schemas_are_the_same_objects_for_a_table() -> None:
    events, chain = maker(), router()
    first, second = (applied(chain, events.change(change("c", after=(1, b"", None, None)))[0]) for _ in range(2))
    assert first.key_schema is second.key_schema
    assert first.value_schema is second.value_schema


def test_the_name_of_the_table_can_be_a_part_of_the_topic_or_left_out() -> None:
    chain = router(key_field_name="shard", key_field_regex=r".*\.(.*)", key_field_replacement="$1")
    assert applied(chain, created()).key == {"id": 1, "shard": "customers"}
    assert applied(router(key_field_regex="x", key_field_replacement="y"), created()).key == {
        "id": 1,
        "__dbz__physicalTableIdentifier": "shop.public.customers",
    }
    assert applied(router(key_enforce_uniqueness="false"), created()).key == {"id": 1}


def test_a_tombstone_goes_where_its_event_goes() -> None:
    event, tombstone = maker().change(change("d", (1, UNKNOWN, UNKNOWN, UNKNOWN), None, CUSTOMERS))
    chain = router()
    first, second = applied(chain, event), applied(chain, tombstone)
    assert (first.topic, first.key, first.key_schema) == (second.topic, second.key, second.key_schema)
    assert (second.value, second.value_schema) == (None, None)


def test_other_topics_and_records_without_a_key() -> None:
    heartbeat = maker().heartbeat()
    assert router()(heartbeat) is heartbeat
    plain = SourceRecord("a.customers", {"x": 1})
    found = applied(router(), plain)
    assert (found.topic, found.key, found.value, found.value_schema) == ("a.customers_all", None, {"x": 1}, None)
    with pytest.raises(RecordFailed, match="the key is no struct, but str"):
        router()(SourceRecord("a.customers", {"x": 1}, "text"))
    empty = created()
    assert flat(ROUTER, topic_regex=".*", topic_replacement="")(empty) is empty


@pytest.mark.parametrize(
    ("settings", "name", "words"),
    [
        ({}, "topic.regex", "Missing required configuration"),
        ({"topic.regex": "(", "topic.replacement": "x"}, "topic.regex", "Invalid regex"),
        ({"topic.regex": "a", "topic.replacement": "$1"}, "topic.replacement", "No group 1"),
        (
            {"topic.regex": "a", "topic.replacement": "b", "key.field.regex": "a"},
            "key.field.replacement",
            "must be non-empty if key.field.regex is set.",
        ),
    ],
)
def test_a_wrong_setting_is_refused(settings: dict[str, str], name: str, words: str) -> None:
    given = {f"transforms.a.{key}": each for key, each in settings.items()}
    (stage,) = transform_options({"transforms": "a", "transforms.a.type": ROUTER, **given})
    assert words in stage.errors[f"transforms.a.{name}"][0]
