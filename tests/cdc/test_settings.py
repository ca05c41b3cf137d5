"""Settings that all databases share: names, defaults and words of Debezium."""

from __future__ import annotations

import pytest

from strandline.cdc.mariadb.source import MariadbCdcSource
from strandline.cdc.postgres.source import PostgresCdcSource
from strandline.cdc.settings import CdcConfig
from strandline.connect.config import Config
from strandline.connect.failures import InvalidConnectorConfig

GIVEN = {"topic.prefix": "shop"}


def config(**settings: str) -> CdcConfig:
    return CdcConfig({**GIVEN, **{name.replace("_", "."): each for name, each in settings.items()}})


def test_defaults_are_those_of_debezium() -> None:
    found = {each.name: each.default_text for each in CdcConfig.options}
    expected = {
        "topic.prefix": None,
        "tombstones.on.delete": "true",
        "skipped.operations": "t",
        "provide.transaction.metadata": "false",
        "topic.delimiter": ".",
        "topic.transaction": "transaction",
        "topic.heartbeat.prefix": "__debezium-heartbeat",
        "heartbeat.interval.ms": "0",
        "decimal.handling.mode": "precise",
        "time.precision.mode": "adaptive",
        "binary.handling.mode": "bytes",
        "interval.handling.mode": "numeric",
        "unavailable.value.placeholder": "__debezium_unavailable_value",
        "max.batch.size": "2048",
        "max.queue.size": "8192",
        "poll.interval.ms": "500",
        "snapshot.mode": "initial",
        "incremental.snapshot.chunk.size": "1024",
        "signal.enabled.channels": "source",
        "schema.name.adjustment.mode": "none",
        "errors.max.retries": "-1",
    }
    assert {name: found[name] for name in expected} == expected
    assert issubclass(CdcConfig, Config)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("topic.prefix", "my shop", "my shop has invalid format (only the underscore, hyphen, dot and alphanumeric"),
        ("topic.prefix", None, 'Missing required configuration "topic.prefix"'),
        ("topic.delimiter", "/", "has invalid format"),
        ("table.include.list", "public.(a", "A comma-separated list of valid regular expressions is expected, but"),
        ("column.exclude.list", "a\\", "Unterminated escape sequence"),
        ("skipped.operations", "c,x", "Invalid operation"),
        ("skipped.operations", "none,c", "'none' cannot be specified with other skipped operation types"),
        ("message.key.columns", "public.orders", "public.orders has an invalid format (expecting '"),
        ("message.key.columns", "", "Must not be empty"),
        ("decimal.handling.mode", "exact", "Value must be one of precise, double, string"),
        ("max.batch.size", "0", "A positive, non-zero integer value is expected"),
        ("heartbeat.interval.ms", "-1", "An non-negative integer is expected"),
        ("signal.enabled.channels", "source,smoke", "String must be one of: source, kafka"),
    ],
)
def test_a_wrong_setting_is_named_in_debeziums_words(name: str, value: str | None, words: str) -> None:
    given: dict[str, str | None] = {**GIVEN, name: value}
    (message,) = CdcConfig.errors_of(given)[name]
    assert words in message
    with pytest.raises(InvalidConnectorConfig):
        CdcConfig(given)


@pytest.mark.parametrize("kind", ["table", "column", "schema", "database"])
def test_a_list_of_what_is_included_excludes_the_other_list(kind: str) -> None:
    include, exclude = f"{kind}.include.list", f"{kind}.exclude.list"
    errors = CdcConfig.errors_of({**GIVEN, include: "a", exclude: "b"})
    assert errors == {exclude: [f"The '{exclude}' value is invalid: \"{include}\" is already specified"]}


def test_the_queue_must_be_larger_than_a_batch() -> None:
    errors = CdcConfig.errors_of({**GIVEN, "max.queue.size": "100", "max.batch.size": "100"})
    assert "Must be larger than the maximum batch size" in errors["max.queue.size"][0]


def test_modes_may_be_in_upper_case() -> None:
    found = config(decimal_handling_mode="String", schema_name_adjustment_mode="AVRO", snapshot_mode="NO_DATA")
    assert (found.decimal_handling_mode, found.schema_name_adjustment_mode) == ("string", "avro")
    assert found.snapshot_mode == "no_data"


def test_none_skips_no_operation() -> None:
    assert config().skipped == {"t"}
    assert config(skipped_operations="none").skipped == set()
    assert config(skipped_operations="c, d").skipped == {"c", "d"}


@pytest.mark.parametrize(
    ("source", "offset"), [(PostgresCdcSource, {"lsn": 1}), (MariadbCdcSource, {"gtids": "0-1-1"})]
)
def test_positions_of_another_server_are_refused_and_can_be_removed(
    source: type[PostgresCdcSource | MariadbCdcSource], offset: dict[str, object]
) -> None:
    found = source.Config({**GIVEN, "database.hostname": "db", "database.user": "me", "database.dbname": "d"})
    mine, other = {"server": "shop"}, {"server": "store"}
    source.check_offsets(found, [(mine, offset), (other, None)])
    with pytest.raises(InvalidConnectorConfig, match=r"'store'.* is not read by this connector"):
        source.check_offsets(found, [(other, offset)])
