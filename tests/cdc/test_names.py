"""Names of topics, schemas and fields."""

from __future__ import annotations

import pytest

from strandline.cdc.model import CapturedTable
from strandline.cdc.names import TopicNames, field_name, schema_name, valid_topic
from strandline.cdc.settings import CdcConfig
from strandline.connect.failures import InvalidConnectorConfig


def names(**settings: str) -> TopicNames:
    given = {name.replace("_", "."): each for name, each in settings.items()}
    return TopicNames(CdcConfig({"topic.prefix": "shop", **given}))


def table(schema: str, name: str, database: str = "db") -> CapturedTable:
    return CapturedTable(database, schema, name, (), ())


def test_topics_have_prefix_schema_and_table() -> None:
    found = names()
    assert found.table(table("public", "orders")) == "shop.public.orders"
    assert found.table(table("", "orders", "inventory")) == "shop.inventory.orders"
    assert (found.transaction, found.message, found.schema_change) == ("shop.transaction", "shop.message", "shop")
    assert found.heartbeat == "__debezium-heartbeat.shop"


def test_parts_of_names_can_be_chosen() -> None:
    found = names(topic_delimiter="-", topic_transaction="tx", topic_heartbeat_prefix="beat")
    assert (found.table(table("a", "b")), found.transaction, found.heartbeat) == ("shop-a-b", "shop-tx", "beat-shop")
    assert names(topic_heartbeat_name="all-beats").heartbeat == "all-beats"


def test_odd_characters_become_underscores() -> None:
    assert names().table(table("Odd Schema", "Odd Näme")) == "shop.Odd_Schema.Odd_N_me"
    assert valid_topic("\N{GRINNING FACE}!") == "___"
    assert len(valid_topic("x" * 300)) == 249
    assert valid_topic("..") == "__"


@pytest.mark.parametrize(
    ("one", "other"),
    [(("public", "a b"), ("public", "a_b")), (("a.b", "c"), ("a", "b.c")), (("s", "x" * 250), ("s", "x" * 251))],
)
def test_two_tables_do_not_share_a_topic(one: tuple[str, str], other: tuple[str, str]) -> None:
    found = names()
    topic = found.table(table(*one))
    assert found.table(table(*one)) == topic, "another shape of the same table"
    with pytest.raises(InvalidConnectorConfig) as caught:
        found.table(table(*other))
    for schema, name in (one, other):
        assert f'"{schema}"."{name}"' in str(caught.value)


def test_a_table_does_not_share_the_topic_of_transactions() -> None:
    with pytest.raises(InvalidConnectorConfig, match="with the transactions"):
        names(topic_transaction="a.b").table(table("a", "b"))


@pytest.mark.parametrize(
    ("name", "mode", "schema", "field"),
    [
        ("a-b.c_d", "none", "a-b.c_d", "a-b.c_d"),
        ("a-b.c_d", "avro", "a_b.c_d", "a_b_c_d"),
        ("1st", "avro", "_1st", "_1st"),
        ("-x", "avro", "_x", "_x"),
        ("a-b.c_d", "avro_unicode", "a_u002db.c_u005fd", "a_u002db_u002ec_u005fd"),
        ("1st", "avro_unicode", "_u0031st", "_u0031st"),
        ("ü", "avro_unicode", "_u00fc", "_u00fc"),
    ],
)
def test_names_are_made_fit_for_avro(name: str, mode: str, schema: str, field: str) -> None:
    assert (schema_name(name, mode), field_name(name, mode)) == (schema, field)
