"""The row of a key: whatever a row shows as its key can be asked for."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from tests.pipelines.rebuild_ground import put_rows

from strandline.cli.view.sql_values import shown
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.versions.version_store import Registry
from strandline.views import Desk, ViewFailed

NOON = datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)
KEYS: list[tuple[str, list[str], list[object]]] = [
    # The type, keys as they are written in the log, and other ways to say the same.
    ("DECIMAL(10,2)", ['{"id":1.50}', '{"id":1.5}', "1.5"], [Decimal("1.50"), Decimal("1.5"), 1.5, "1.5", "id=1.50"]),
    ("DECIMAL(38,18)", ['{"id":12345678901234567890.123456789012345678}'], ["12345678901234567890.123456789012345678"]),
    ("BIGINT", ['{"id":9007199254740993}', "9007199254740993"], [Decimal(9007199254740993), "9007199254740993"]),
    ("DATE", ['{"id":"2026-01-31"}', "2026-01-31"], [date(2026, 1, 31), "2026-01-31", '{"id":"2026-01-31"}']),
    (
        "TIMESTAMP",
        ['{"id":"2026-01-31T12:00:00.250000Z"}', "2026-01-31T12:00:00.25Z"],
        [NOON, "2026-01-31 12:00:00.25"],
    ),
    ("TIMESTAMP", ['{"id":"2026-01-31T13:00:00.25+01:00"}'], [NOON.astimezone(timezone(timedelta(hours=5)))]),
    ("TIMESTAMP_NTZ", ['{"id":"2026-01-31T12:00:00.250000"}'], [NOON.replace(tzinfo=None), "2026-01-31T12:00:00.25"]),
    ("BINARY", ['{"id":"/w=="}'], [b"\xff", bytearray(b"\xff"), "/w==", '{"id":"/w=="}']),
    ("BINARY", ['{"id":"YWJj"}', "abc"], [b"abc", "YWJj", "abc"]),
    ("DOUBLE", ['{"id":"NaN"}'], [math.nan, "NaN"]),
    ("BOOLEAN", ['{"id":true}', "true"], [True, "true"]),
    ("STRUCT<a: DATE, b: DECIMAL(4,2)>", ['{"id":{"a":"2026-01-31","b":1.5}}'], []),
]


@pytest.mark.slow
@pytest.mark.parametrize(("spark_type", "written", "said"), KEYS)
def test_what_a_row_shows_can_be_given_back(
    broker: EmbeddedBroker,
    registry: Registry,
    desk: Desk,
    shop: str,
    spark_type: str,
    written: list[str],
    said: list[Any],
) -> None:
    """From the log's tail and from a snapshot: by the row's own key, by what the CLI shows, and by other words."""
    for number, text in enumerate(written):
        name = f"{shop}_{number}"
        broker.create_topic(name, 1, cleanup_policy="compact")
        put_rows(broker.bootstrap, name, {text: '{"n":1}', "{}": '{"n":2}'})
        schema = f"id {spark_type}, n INT"
        registry.put(f"view/{name}", json.dumps({"topic": name, "schema": schema, "key": ["id"]}))
        for _ in range(2):
            row, without = desk.query(f"select * from {name} order by n").table.to_pylist()
            plain = [] if isinstance(row["id"], dict) else [row["id"], shown(row["id"])]
            for key in ({"id": row["id"]}, *plain, *said):
                # As text: NaN is not equal to itself.
                assert str(desk.row(name, key)) == str(row), (text, key)
            # Nothing, in most types.
            assert desk.row(name, {"id": without["id"]}) == without
            desk.snapshot(name)


def test_bytes_are_not_taken_for_the_text_of_others(
    broker: EmbeddedBroker, registry: Registry, desk: Desk, shop: str
) -> None:
    """`abcd` is a text, and base64 of other bytes."""
    broker.create_topic(shop, 1, cleanup_policy="compact")
    put_rows(broker.bootstrap, shop, {"abcd": '{"n":1}', '{"id":"abcd"}': '{"n":2}'})
    registry.put(f"view/{shop}", json.dumps({"topic": shop, "schema": "id BINARY, n INT", "key": ["id"]}))
    for key, n in ((b"abcd", 1), (b"i\xb7\x1d", 2), ("abcd", 2)):
        row = desk.row(shop, key)
        assert row is not None
        assert row["n"] == n
    put_rows(broker.bootstrap, shop, {'{"id":"abcd"}': None})
    assert desk.row(shop, b"i\xb7\x1d") is None


@pytest.mark.parametrize(
    ("spark_type", "said"),
    [("DATE", "noon"), ("DATE", NOON), ("TIMESTAMP", 7), ("DECIMAL(10,2)", "many"), ("BINARY", 7), ("INT", "x=7")],
)
def test_what_cannot_be_a_key(
    broker: EmbeddedBroker, registry: Registry, desk: Desk, shop: str, spark_type: str, said: Any
) -> None:
    broker.create_topic(shop, 1, cleanup_policy="compact")
    registry.put(f"view/{shop}", json.dumps({"topic": shop, "schema": f"id {spark_type}, n INT", "key": ["id"]}))
    with pytest.raises(ViewFailed, match=rf"is no key of {shop}, which is \(id .*\): say id=\.\.\. or"):
        desk.row(shop, said)


def test_keys_of_several_columns(broker: EmbeddedBroker, registry: Registry, desk: Desk, shop: str) -> None:
    broker.create_topic(shop, 1, cleanup_policy="compact")
    put_rows(broker.bootstrap, shop, {'{"a":1,"b":"x"}': '{"n":1}', '{"a":1.50,"b":"y,z"}': '{"n":2}'})
    schema = "a DECIMAL(10,2), b STRING, n INT"
    registry.put(f"view/{shop}", json.dumps({"topic": shop, "schema": schema, "key": ["a", "b"]}))
    assert [row[1:] for row in desk.query(f"select * from {shop} order by n").rows] == [("x", 1), ("y,z", 2)]
    for key in ("a=1,b=x", '{"a":1,"b":"x"}', '{"b": "x", "a": 1}', {"a": 1, "b": "x"}):
        row = desk.row(shop, key)
        assert row is not None
        assert row["n"] == 1
    # JSON has several ways to write one number.
    row = desk.row(shop, {"a": 1.5, "b": "y,z"})
    assert row is not None
    assert row["n"] == 2
    for each in desk.query(f"select * from {shop}").table.to_pylist():
        assert desk.row(shop, {"a": each["a"], "b": each["b"]}) == each
    put_rows(broker.bootstrap, shop, {'{"a":null,"b":"x"}': '{"n":3}'})
    for key in ({"a": None, "b": "x"}, '{"b": "x", "a": null}'):
        row = desk.row(shop, key)
        assert row is not None
        assert row["n"] == 3
    for wrong in ("a=1", "x", "a=1,c=2", '{"a":1}', "a=one,b=x"):
        with pytest.raises(ViewFailed, match=r"is no key of .*: say a=\.\.\.,b=\.\.\. or \{"):
            desk.row(shop, wrong)
