"""Changes of rows as records: envelopes, keys, headers, tombstones and what stands for values that are not known."""

from __future__ import annotations

import base64
import json
import lzma
from typing import Any

import pytest
from tests.cdc.change_records import (
    CUSTOMERS,
    EMAIL,
    ID,
    NAME,
    NOW_NS,
    SOURCE,
    STATE,
    WHOLE,
    change,
    created,
    customers,
    maker,
)
from tests.cdc.recorded import DIRECTORY

from strandline.cdc.envelope import source_times
from strandline.cdc.model import UNCHANGED, UNKNOWN, CapturedColumn, CapturedTable, TransactionPlace
from strandline.cdc.selection import KeyOnlyColumn, TableSelection
from strandline.cdc.settings import CdcConfig
from strandline.connect.convert.json_converter import JsonConverter
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig
from strandline.connect.records import SourceRecord
from strandline.connect.schema import INT32, STRING, Schema

ROW = (1, b"one", None, b"new")
KEY_ONLY = (1, UNKNOWN, UNKNOWN, UNKNOWN)


def as_json(schema: Schema | None, value: Any, *, with_defaults: bool = False) -> Any:
    config = JsonConverter.Config({"replace.null.with.default": str(with_defaults)})
    data = JsonConverter(config, is_key=False).from_connect("t", schema, value)
    return None if data is None else json.loads(data)


def debezium(profile: str, topic: str) -> list[dict[str, Any]]:
    """Return what Debezium wrote to a topic."""
    lines = lzma.decompress((DIRECTORY / f"{profile}.jsonl.xz").read_bytes()).decode().splitlines()[1:]
    return [each for each in map(json.loads, lines) if each["topic"] == topic]


def test_a_new_row() -> None:
    found = created()
    assert (found.topic, found.key, found.headers) == ("shop.public.customers", {"id": 1}, ())
    assert found.value == {
        "before": None,
        "after": {"id": 1, "name": "one", "email": None, "state": "new"},
        "source": {**SOURCE, "ts_us": 1_000_000, "ts_ns": 1_000_000_000},
        "transaction": None,
        "op": "c",
        "ts_ms": NOW_NS // 1_000_000,
        "ts_us": NOW_NS // 1000,
        "ts_ns": NOW_NS,
    }


def test_times_of_the_source_are_kept_if_it_knows_them() -> None:
    made = change("c", after=ROW)
    made.source = {**SOURCE, **source_times(1_234_567)}
    (found,) = maker().change(made)
    assert found.value["source"] == {**SOURCE, "ts_ms": 1234, "ts_us": 1_234_567, "ts_ns": 1_234_567_000}


def test_schemas_are_those_of_debezium() -> None:
    table = CapturedTable("db", "public", "zz_marker", (CapturedColumn("id", INT32, int),), ("id",))
    (ours,) = maker().change(change("c", after=(1,), table=table))
    theirs = debezium("rows", "shop.public.zz_marker")[-1]
    assert as_json(ours.key_schema, ours.key) == theirs["key"]
    found = as_json(ours.value_schema, ours.value)
    assert found["schema"] == theirs["value"]["schema"]
    assert list(found["payload"]) == list(theirs["value"]["payload"])


@pytest.mark.parametrize(
    ("profile", "topic"),
    [
        ("heartbeat", "__debezium-heartbeat.shop"),
        ("messages", "shop.message"),
        ("transactions", "shop.transaction"),
    ],
)
def test_records_of_no_table_are_those_of_debezium(profile: str, topic: str) -> None:
    made = maker(provide_transaction_metadata="true")
    ours: SourceRecord
    for theirs in debezium(profile, topic):
        payload = theirs["value"]["payload"]
        if profile == "heartbeat":
            ours = made.heartbeat()
            payload["ts_ms"] = NOW_NS // 1_000_000
        elif profile == "messages":
            content = base64.b64decode(payload["message"]["content"])
            ours = made.message(payload["message"]["prefix"], content, payload["source"], None)
            payload["ts_ms"] = NOW_NS // 1_000_000
        elif payload["status"] == "BEGIN":
            ours = made.transaction_begin(payload["id"], payload["ts_ms"])
        else:
            counts = {each["data_collection"]: each["event_count"] for each in payload["data_collections"]}
            ours = made.transaction_end(payload["id"], payload["ts_ms"], counts)
        assert ours.topic == topic
        assert as_json(ours.key_schema, ours.key) == theirs["key"]
        assert as_json(ours.value_schema, ours.value) == theirs["value"]


def test_a_table_has_the_same_schema_objects_for_all_records() -> None:
    made = maker()
    (one,), (other,) = made.change(change("c", after=ROW)), made.change(change("u", after=ROW))
    assert one.value_schema is other.value_schema
    assert one.key_schema is other.key_schema
    assert made.schemas(CUSTOMERS) == (one.key_schema, one.value_schema)
    (changed,) = made.change(change("c", after=ROW, table=customers(columns=(ID, NAME, EMAIL, None))))
    assert changed.value_schema is not one.value_schema
    assert changed.value["after"] == {"id": 1, "name": "one", "email": None}


def test_an_update_without_the_row_before() -> None:
    (found,) = maker().change(change("u", after=ROW))
    assert (found.value["op"], found.value["before"], found.key) == ("u", None, {"id": 1})


def test_a_deleted_row_has_only_what_is_known() -> None:
    event, tombstone = maker().change(change("d", KEY_ONLY))
    assert event.value["before"] == {"id": 1, "name": None, "email": None, "state": None}
    assert (event.value["op"], event.value["after"], event.key) == ("d", None, {"id": 1})
    assert (tombstone.value, tombstone.value_schema, tombstone.key) == (None, None, {"id": 1})
    assert tombstone.key_schema is event.key_schema
    assert event.value_schema is not None
    before, after = event.value_schema.fields[0].schema, event.value_schema.fields[1].schema
    assert before.name == after.name == "shop.public.customers.Value"
    assert [each.schema.optional for each in before.fields] == [False, True, True, True]
    assert [each.schema.optional for each in after.fields] == [False, False, True, True]
    written = as_json(event.value_schema, event.value, with_defaults=True)["payload"]["before"]
    assert written == {"id": 1, "name": None, "email": None, "state": None}, "a default is no value of the row"


def test_rows_have_one_schema_if_the_row_before_is_whole() -> None:
    event, _ = maker().change(change("d", ROW, table=WHOLE))
    assert event.value_schema is not None
    assert event.value_schema.fields[0].schema is event.value_schema.fields[1].schema
    assert event.value["before"] == {"id": 1, "name": "one", "email": None, "state": "new"}


def test_tombstones_can_be_left_out() -> None:
    (event,) = maker(tombstones_on_delete="false").change(change("d", KEY_ONLY))
    assert event.value["op"] == "d"
    (event,) = maker().change(change("d", ROW, table=customers(key=(), is_before_whole=True)))
    assert (event.key, event.key_schema, event.value["op"]) == (None, None, "d")


@pytest.mark.parametrize("table", [CUSTOMERS, WHOLE], ids=["key", "whole"])
def test_a_key_that_changes_is_deleted_and_created(table: CapturedTable) -> None:
    before = ROW if table is WHOLE else KEY_ONLY
    deleted, tombstone, new = maker().change(change("u", before, (2, b"one", None, UNCHANGED), table))
    assert [each.value and each.value["op"] for each in (deleted, tombstone, new)] == ["d", None, "c"]
    assert (deleted.key, tombstone.key, new.key) == ({"id": 1}, {"id": 1}, {"id": 2})
    assert [tuple(each) for each in deleted.headers] == [("__debezium.newkey", {"id": 2}, deleted.key_schema)]
    assert tombstone.headers == deleted.headers
    assert [tuple(each) for each in new.headers] == [("__debezium.oldkey", {"id": 1}, deleted.key_schema)]
    assert new.value["before"] is None
    assert new.value["after"]["state"] == ("new" if table is WHOLE else "?")
    assert deleted.value["before"]["id"] == 1
    assert len(maker(tombstones_on_delete="false").change(change("u", before, (2, b"", None, None), table))) == 2


def test_a_value_that_was_not_sent_comes_from_the_row_before_or_is_the_placeholder() -> None:
    after = (1, UNCHANGED, b"x", UNCHANGED)
    (found,) = maker().change(change("u", ROW, after, WHOLE))
    assert found.value["after"] == {"id": 1, "name": "one", "email": "x", "state": "new"}
    (found,) = maker().change(change("u", None, after))
    assert found.value["after"] == {"id": 1, "name": "?", "email": "x", "state": "?"}
    (found,) = maker().change(change("u", (1, None, None, None), after, WHOLE))
    assert found.value["after"]["name"] is None, "NULL is a value"


def test_operations_can_be_skipped() -> None:
    changes = [
        change("c", after=ROW),
        change("u", after=ROW),
        change("d", KEY_ONLY),
        change("t"),
        change("r", None, ROW),
    ]
    counts = {
        names: [len(maker(skipped_operations=names).change(each)) for each in changes] for names in ("t", "none", "c,d")
    }
    assert counts == {"t": [1, 1, 2, 0, 1], "none": [1, 1, 2, 1, 1], "c,d": [0, 1, 0, 1, 1]}


def test_a_truncate_has_no_key_and_no_rows() -> None:
    (found,) = maker(skipped_operations="none").change(change("t"))
    assert (found.key, found.key_schema, found.value["op"]) == (None, None, "t")
    assert (found.value["before"], found.value["after"]) == (None, None)


def test_updates_that_change_nothing_can_be_skipped() -> None:
    made = maker(skip_messages_without_change="true")
    assert made.change(change("u", ROW, (1, b"one", None, UNCHANGED), WHOLE)) == []
    assert len(made.change(change("u", ROW, (1, b"two", None, b"new"), WHOLE))) == 1
    assert len(made.change(change("u", KEY_ONLY, ROW))) == 1, "only the whole row tells"
    hidden = customers(columns=(ID, None, EMAIL, STATE), is_before_whole=True)
    assert made.change(change("u", ROW, (1, b"two", None, b"new"), hidden)) == []


def test_a_key_is_of_the_columns_that_the_table_names() -> None:
    table = customers(key=("email", "id"))
    (found,) = maker().change(change("c", after=(1, b"one", b"x", None), table=table))
    assert list(found.key.items()) == [("email", "x"), ("id", 1)]
    with pytest.raises(ConnectFailed, match=r"public\.customers lacks a column of its key \(email, id\)"):
        maker().change(change("d", KEY_ONLY, table=table))
    (found,) = maker().change(change("u", KEY_ONLY, (1, b"one", b"x", None), table))
    assert (found.key, found.value["before"]) == ({"email": "x", "id": 1}, None)


def test_a_key_keeps_a_column_that_rows_leave_out_or_mask() -> None:
    only = KeyOnlyColumn("id", INT32, int)
    (found,) = maker().change(change("c", after=ROW, table=customers(columns=(only, NAME, None, None))))
    assert (found.key, found.value["after"]) == ({"id": 1}, {"name": "one"})
    mask = TableSelection(CdcConfig({"topic.prefix": "shop", "column.mask.with.3.chars": "public.customers.name"}))
    masked = customers(columns=(ID, mask.column("public.customers", NAME), None, None), key=("name",))
    (found,) = maker().change(change("c", after=(1, b"secret", None, None), table=masked))
    assert (found.key, found.value["after"]) == ({"name": "secret"}, {"id": 1, "name": "***"})
    with pytest.raises(InvalidConnectorConfig, match=r"the column id of the key of public\.customers is left out"):
        maker().change(change("c", after=ROW, table=customers(columns=(None, NAME, None, None))))


def test_fields_and_schemas_can_have_names_that_avro_takes() -> None:
    columns = (CapturedColumn("the id", INT32, int), CapturedColumn("1st", STRING, bytes.decode))
    table = CapturedTable("db", "odd-schema", "t", columns, ("the id",))
    made = maker(field_name_adjustment_mode="avro", schema_name_adjustment_mode="avro")
    (found,) = made.change(change("c", after=(1, b"x"), table=table))
    assert (found.topic, found.key) == ("shop.odd-schema.t", {"the_id": 1})
    assert found.value["after"] == {"the_id": 1, "_1st": "x"}
    assert found.value_schema is not None
    assert found.value_schema.name == "shop.odd_schema.t.Envelope"
    clash = CapturedTable("db", "s", "t", (columns[0], CapturedColumn("the-id", INT32, int)), ())
    with pytest.raises(InvalidConnectorConfig, match=r"the id and the-id of s\.t would both be the field the_id"):
        made.change(change("c", after=(1, 2), table=clash))


def test_a_change_tells_its_place_in_the_transaction() -> None:
    (found,) = maker().change(change("c", after=ROW, transaction=TransactionPlace("7:8", 3, 2)))
    assert found.value["transaction"] == {"id": "7:8", "total_order": 3, "data_collection_order": 2}


@pytest.mark.parametrize(
    ("mode", "content"), [("bytes", b"\xff\xfe"), ("base64", "//4="), ("base64-url-safe", "__4="), ("hex", "fffe")]
)
def test_the_content_of_a_message_follows_the_mode_of_binary_columns(mode: str, content: object) -> None:
    found = maker(binary_handling_mode=mode).message("p", b"\xff\xfe", SOURCE, TransactionPlace("1", 1, 1))
    assert found.value["message"] == {"prefix": "p", "content": content}
    assert found.value["transaction"]["id"] == "1"
    assert as_json(found.value_schema, found.value)["payload"]["message"]["prefix"] == "p"
