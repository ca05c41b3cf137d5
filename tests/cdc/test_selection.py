"""Which tables and columns are captured, keys that the config chooses, and masks."""

from __future__ import annotations

import pytest

from strandline.cdc.model import CapturedColumn
from strandline.cdc.selection import KeyOnlyColumn, MaskedColumn, TableSelection, java_serialized
from strandline.cdc.settings import CdcConfig
from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.schema import BYTES, INT32, OPTIONAL_STRING, STRING, Schema


def selection(given: dict[str, str] | None = None) -> TableSelection:
    return TableSelection(CdcConfig({"topic.prefix": "shop", **(given or {})}))


def text_column(name: str = "name", schema: Schema = STRING) -> CapturedColumn:
    return CapturedColumn(name, schema, lambda value: value.decode(), "placeholder")


def test_without_lists_everything_is_captured() -> None:
    found = selection()
    assert found.has_table("public.orders")
    assert found.has_column("public.orders", "id")
    assert found.key_columns("public.orders") is None


def test_expressions_match_whole_names_in_any_case() -> None:
    found = selection({"table.include.list": "public.ord.*, sales\\.t"})
    assert found.has_table("PUBLIC.Orders")
    assert found.has_table("sales.t")
    assert not found.has_table("old_public.orders")
    assert not found.has_table("sales.t2")
    without = selection({"table.exclude.list": "public.orders"})
    assert without.has_table("public.orders2")
    assert not without.has_table("public.orders")


def test_an_expression_may_have_a_comma_that_is_escaped() -> None:
    found = selection({"table.include.list": r"public.shard_\d{1\,2},public.other"})
    assert [name for name in ("shard_1", "shard_12", "shard_123", "other") if found.has_table(f"public.{name}")] == [
        "shard_1",
        "shard_12",
        "other",
    ]


def test_columns_are_matched_behind_their_table() -> None:
    found = selection({"column.exclude.list": r"public\.users\.(password|pin)"})
    assert [each for each in ("id", "password", "pin") if found.has_column("public.users", each)] == ["id"]
    assert found.has_column("public.others", "password")
    only = selection({"column.include.list": r"public\.users\.id"})
    assert [each for each in ("id", "name") if only.has_column("public.users", each)] == ["id"]


def test_a_column_of_the_key_stays_in_keys_when_it_is_left_out() -> None:
    found = selection({"column.exclude.list": "public.t.name", "column.mask.with.2.chars": "public.t.note"})
    assert isinstance(found.captured("public.t", text_column(), is_key=True), KeyOnlyColumn)
    assert found.captured("public.t", text_column(), is_key=False) is None
    assert isinstance(found.captured("public.t", text_column("note"), is_key=False), MaskedColumn)
    plain = text_column("other")
    assert found.captured("public.t", plain, is_key=False) is plain


def test_keys_come_from_the_entry_of_the_table() -> None:
    found = selection({"message.key.columns": "public.orders:region, id;(.*).lines:order_id;public.x:n.*"})
    assert found.key_columns("public.orders") == ("region", "id")
    assert found.key_columns("sales.lines") == ("order_id",)
    assert found.key_columns("public.others") is None
    assert found.key_columns("public.orders", ("id", "total", "Region")) == ("Region", "id")
    assert found.key_columns("public.x", ("a", "n1", "n2")) == ("n1", "n2")
    assert found.key_columns("sales.lines", ("a", "b")) is None, "no such column: the primary key counts"


def test_a_mask_hides_values_nulls_and_placeholders() -> None:
    found = selection({"column.mask.with.5.chars": ".*\\.name"}).column("public.t", text_column(schema=OPTIONAL_STRING))
    assert isinstance(found, MaskedColumn)
    assert (found.convert(b"secret"), found.placeholder, found.null) == ("*****", "*****", "*****")
    assert found.schema.parameters == {"masked": "true"}
    assert found.schema.optional


@pytest.mark.parametrize(
    ("setting", "hashed"),
    [
        ("SHA-256", "af5843a0f0e728ab0332c8888b6e1190bfb79e584f0d40538de8f10df6ef29c6"),
        ("MD5", "46f48a7a5ea32efba87cbff49d46d35a"),
        ("v2.SHA-256", "cd31b3b98ece60cb739c0bf770b2de892ae0ad133f645513c3d83f08757a843a"),
        ("v2.MD5", "06decc8b095724f80103712c235586be"),
    ],
)
def test_hashes_are_those_of_debezium(setting: str, hashed: str) -> None:
    found = selection({f"column.mask.hash.{setting}.with.salt.salt": "public.t.name"})
    assert found.column("public.t", text_column()).convert(b"hello") == hashed
    assert found.column("public.t", text_column(), 20).convert(b"hello") == hashed[:20]
    assert found.column("public.t", text_column()).placeholder == "placeholder"


def test_texts_are_serialized_as_java_does() -> None:
    assert java_serialized("abc") == bytes.fromhex("aced0005740003616263")
    assert java_serialized("\0\N{GRINNING FACE}") == bytes.fromhex("aced0005740008c080eda0bdedb880")
    assert java_serialized("x" * 65536)[:13] == bytes.fromhex("aced00057c0000000000010000")


def test_values_are_cut_and_a_mask_comes_before_a_cut() -> None:
    found = selection({"column.truncate.to.3.chars": "public.t.*", "column.mask.with.9.chars": "public.t.name"})
    cut = found.column("public.t", text_column("note"))
    assert (cut.convert(b"abcdef"), cut.schema.parameters) == ("abc", {"truncateLength": "3"})
    assert found.column("public.t", text_column()).convert(b"abcdef") == "*********"
    data = found.column("public.t", CapturedColumn("blob", BYTES, bytes))
    assert data.convert(b"abcdef") == b"abc"
    number = CapturedColumn("n", INT32, int)
    assert found.column("public.t", number) is number


def test_a_column_that_cannot_be_masked_is_refused() -> None:
    found = selection({"column.mask.with.9.chars": ".*"})
    with pytest.raises(InvalidConnectorConfig, match=r"names the column public\.t\.n, which is no text"):
        found.column("public.t", CapturedColumn("n", INT32, int))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("column.mask.hash.SHA-0815.with.salt.x", "a", "the hash algorithm SHA-0815, which is unknown"),
        ("column.mask.with.3.chars", "(", "A comma-separated list of valid regular expressions is expected"),
        ("column.truncate.to.99999999999.chars", "a", "is too large"),
    ],
)
def test_a_wrong_mask_is_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(InvalidConnectorConfig, match=words):
        selection({name: value})
