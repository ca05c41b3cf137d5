"""Debezium's ExtractNewRecordState: rows instead of change events, with and without schemas."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cdc.change_records import CUSTOMERS, WHOLE, change, maker

from strandline.cdc.model import UNKNOWN, CapturedTable
from strandline.connect.failures import RecordFailed
from strandline.connect.records import ConnectRecord, Header, SourceRecord
from strandline.connect.schema import INT64, OPTIONAL_STRING, STRING, array
from strandline.connect.transforms.chain import Chain, transform_chain, transform_options

TYPE = "io.debezium.transforms.ExtractNewRecordState"
ROW = (1, b"one", None, b"new")
FLAT = {"id": 1, "name": "one", "email": None, "state": "new"}
SCHEMAS = pytest.mark.parametrize("has_schema", [True, False])


def flat(name: str = TYPE, **settings: str) -> Chain:
    given = {f"transforms.a.{key.replace('_', '.')}": each for key, each in settings.items()}
    chain = transform_chain({"transforms": "a", "transforms.a.type": name, **given})
    assert chain is not None
    return chain


def records(op: Any, *, has_schema: bool = True, table: CapturedTable = CUSTOMERS) -> list[SourceRecord]:
    before = None if op in ("c", "r", "t") else ROW if table is WHOLE else (1, UNKNOWN, UNKNOWN, UNKNOWN)
    made = change(op, before, None if op in ("d", "t") else ROW, table)
    found = maker(skipped_operations="none").change(made)
    if not has_schema:
        for each in found:
            each.key_schema = each.value_schema = None
    return found


def one(op: Any, **given: Any) -> SourceRecord:
    return records(op, **given)[0]


def applied(chain: Chain, record: ConnectRecord) -> ConnectRecord:
    found = chain(record)
    assert found is not None
    return found


@SCHEMAS
@pytest.mark.parametrize("op", ["c", "u", "r"])
@pytest.mark.parametrize("name", [TYPE, "ExtractNewRecordState"])
def test_an_event_becomes_the_row(op: str, name: str, has_schema: bool) -> None:
    record = one(op, has_schema=has_schema)
    found = applied(flat(name), record)
    assert (found.topic, found.key, found.value) == (record.topic, record.key, FLAT)
    if has_schema:
        assert found.value_schema is not None
        assert (found.value_schema.name, found.value_schema.optional) == ("shop.public.customers.Value", False)
        assert [each.name for each in found.value_schema.fields] == list(FLAT)
    else:
        assert found.value_schema is None


def test_rows_have_the_same_schema_object() -> None:
    chain, events = flat(), maker()
    first, second = (applied(chain, events.change(change("c", after=ROW))[0]) for _ in range(2))
    assert first.value_schema is second.value_schema


@SCHEMAS
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("drop", []),
        ("tombstone", [None]),
        ("delete-to-tombstone", [None]),
        ("rewrite", ["true"]),
        ("REWRITE-with-tombstone", ["true", None]),
    ],
)
def test_what_a_deleted_row_becomes(mode: str, expected: list[str | None], has_schema: bool) -> None:
    chain = flat(delete_tombstone_handling_mode=mode)
    found = [chain(each) for each in records("d", has_schema=has_schema)]
    kept = [each for each in found if each is not None]
    assert [each.value and each.value["__deleted"] for each in kept] == expected
    assert all(each.key == {"id": 1} for each in kept)
    updated = applied(chain, one("u", has_schema=has_schema)).value
    assert updated.get("__deleted") == ("false" if "rewrite" in mode.lower() else None)


def test_only_delete_to_tombstone_takes_the_schema() -> None:
    kept = applied(flat(), one("d"))
    assert kept.value is None
    assert kept.value_schema is not None
    assert applied(flat(delete_tombstone_handling_mode="delete-to-tombstone"), one("d")).value_schema is None


@pytest.mark.parametrize(
    ("drops", "mode", "expected"),
    [
        ("true", "drop", []),
        ("false", "drop", [None]),
        ("true", "rewrite", ["true"]),
        ("false", "rewrite", ["true", None]),
        ("true", "none", [None]),
    ],
)
def test_older_settings_mean_the_same(drops: str, mode: str, expected: list[str | None]) -> None:
    chain = flat(drop_tombstones=drops, delete_handling_mode=mode)
    found = [each for each in (chain(each) for each in records("d")) if each is not None]
    assert [each.value and each.value["__deleted"] for each in found] == expected


def test_a_rewritten_row_has_what_is_known() -> None:
    chain = flat(delete_tombstone_handling_mode="rewrite")
    found = applied(chain, one("d"))
    assert found.value == {"id": 1, "name": None, "email": None, "state": None, "__deleted": "true"}
    assert found.value_schema is not None
    assert found.value_schema.fields[-1].schema == OPTIONAL_STRING
    whole = applied(chain, one("d", table=WHOLE))
    assert whole.value == {**FLAT, "__deleted": "true"}


def test_null_is_replaced_by_the_default_of_the_column_in_rewritten_rows() -> None:
    record = one("c")
    record.value["after"]["state"] = None
    assert applied(flat(delete_tombstone_handling_mode="rewrite"), record).value["state"] == "new"
    kept = flat(delete_tombstone_handling_mode="rewrite", replace_null_with_default="false")
    assert applied(kept, record).value["state"] is None


@SCHEMAS
def test_a_truncate_is_dropped(has_schema: bool) -> None:
    assert flat(delete_tombstone_handling_mode="rewrite")(one("t", has_schema=has_schema)) is None


def test_other_records_pass() -> None:
    for record in (maker().heartbeat(), maker().transaction_begin("1", 1), SourceRecord("t", "text")):
        assert flat()(record) is record


@SCHEMAS
def test_fields_of_the_event_can_be_added(has_schema: bool) -> None:
    chain = flat(add_fields="op,source.ts_ms,lsn:position,ts_ms,total_order,gone", add_fields_prefix="_")
    record = one("c", has_schema=has_schema)
    record.value["transaction"] = {"id": "1", "total_order": 5, "data_collection_order": 1}
    found = applied(chain, record)
    added = {
        "_op": "c",
        "_source_ts_ms": 1000,
        "_position": 8,
        "_ts_ms": record.value["ts_ms"],
        "_total_order": 5,
    }
    assert found.value == {**FLAT, **added}
    if has_schema:
        assert found.value_schema is not None
        assert {each.name: each.schema for each in found.value_schema.fields[4:]} == {
            "_op": OPTIONAL_STRING,
            **dict.fromkeys(("_source_ts_ms", "_position", "_ts_ms", "_total_order"), INT64.as_optional()),
        }
    record.value["transaction"] = None
    assert applied(chain, record).value.get("_total_order") is None


@SCHEMAS
def test_fields_of_the_event_can_be_headers(has_schema: bool) -> None:
    chain = flat(add_headers="op,db,snapshot", delete_tombstone_handling_mode="rewrite-with-tombstone")
    event, tombstone = records("d", has_schema=has_schema)
    event.headers = [Header("old", 1)]
    found = applied(chain, event)
    assert [each[:2] for each in found.headers] == [("old", 1), ("__op", "d"), ("__db", "db"), ("__snapshot", "false")]
    assert found.headers[1].schema == (OPTIONAL_STRING if has_schema else None)
    if has_schema:
        assert found.headers[3].schema is not None
        assert found.headers[3].schema.default is None
    assert list(applied(chain, tombstone).headers) == [Header("__op", "d", STRING)]
    assert event.headers == [Header("old", 1)], "the event itself stays"


@SCHEMAS
def test_a_column_can_be_the_topic(has_schema: bool) -> None:
    chain = flat(route_by_field="name", delete_tombstone_handling_mode="rewrite")
    assert applied(chain, one("c", has_schema=has_schema)).topic == "one"
    assert applied(chain, one("d", has_schema=has_schema, table=WHOLE)).topic == "one"
    assert applied(chain, one("d", has_schema=has_schema)).topic == "shop.public.customers", "the name is not known"
    with pytest.raises(RecordFailed, match=r"no field gone, which route\.by\.field names"):
        flat(route_by_field="gone")(one("c", has_schema=has_schema))
    with pytest.raises(RecordFailed, match="is no text: 1"):
        flat(route_by_field="id")(one("c", has_schema=has_schema))


@SCHEMAS
def test_fields_that_a_header_names_are_left_out(has_schema: bool) -> None:
    names = array(STRING) if has_schema else None
    header = Header("gone", ["name", "email", "id"], names)
    record = one("c", has_schema=has_schema)
    record.headers = [header]
    found = applied(flat(drop_fields_header_name="gone"), record)
    assert found.value == ({"id": 1, "name": "one", "state": "new"} if has_schema else {"state": "new"})
    assert found.key == {"id": 1}
    hard = flat(drop_fields_header_name="gone", drop_fields_keep_schema_compatible="false", drop_fields_from_key="true")
    found = applied(hard, record)
    assert (found.value, found.key) == ({"state": "new"}, {})
    if has_schema:
        assert found.value_schema is not None
        assert [each.name for each in found.value_schema.fields] == ["state"]
        assert applied(hard, record).value_schema is not None
    assert applied(hard, one("c", has_schema=has_schema)).value == FLAT, "no header"
    record.headers = [Header("gone", 7)]
    with pytest.raises(RecordFailed, match="the header gone has no list of fields: 7"):
        hard(record)


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("delete.tombstone.handling.mode", "bury", "Value must be one of drop, tombstone, rewrite"),
        ("delete.handling.mode", "bury", "Value must be one of drop, rewrite, none"),
        ("add.fields", "a:b:c", "Unexpected field name: a:b:c"),
    ],
)
def test_a_wrong_setting_is_refused(setting: str, value: str, words: str) -> None:
    (stage,) = transform_options({"transforms": "a", "transforms.a.type": TYPE, f"transforms.a.{setting}": value})
    assert words in stage.errors[f"transforms.a.{setting}"][0]


def test_a_value_that_is_not_what_its_schema_says_fails() -> None:
    schema = one("c").value_schema
    for value, words in (("x", "has no field op"), ({"op": "c", "after": [1]}, "after of a change event is no struct")):
        with pytest.raises(RecordFailed, match=words):
            flat()(SourceRecord("t", value, value_schema=schema))
