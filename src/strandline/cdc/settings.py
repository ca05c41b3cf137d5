"""The settings that PostgreSQL and MariaDB share, by Debezium's names, types, defaults and words of validation.

Some settings have a part that the config chooses, as `column.mask.with.10.chars`: `selection` reads these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from strandline.cdc.expressions import wrong_expressions
from strandline.connect.config import Config, Long, option

PLACEHOLDER: Final = "__debezium_unavailable_value"
HEARTBEAT_PREFIX: Final = "__debezium-heartbeat"
KEY_COLUMNS_PATTERN: Final = re.compile(r"^\s*([^:]+):([^:,]+(,[^:,]+)*)\s*$")
"""One entry of `message.key.columns`: a table and columns."""
DECIMAL_MODES: Final = ("precise", "double", "string")
TIME_MODES: Final = (
    "adaptive",
    "adaptive_time_microseconds",
    "connect",
    "isostring",
    "microseconds",
    "nanoseconds",
)
BINARY_MODES: Final = ("bytes", "base64", "base64-url-safe", "hex")
INTERVAL_MODES: Final = ("numeric", "string")
NAME_ADJUSTMENTS: Final = ("none", "avro", "avro_unicode")
SIGNAL_CHANNELS: Final = ("source", "kafka")
EXCLUDING_PAIRS: Final = ("table", "column", "schema", "database")
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._\-]+", re.ASCII)
_OPERATIONS: Final = frozenset("rcudt")


def wrong_topic_name(name: str | None) -> str | None:
    """Return what is wrong with the name of a topic, or a part of one."""
    if name is None or _TOPIC_NAME.fullmatch(name):
        return None
    return (
        f"{name} has invalid format (only the underscore, hyphen, dot and alphanumeric characters are allowed)"
        if name
        else "A value is required"
    )


def one_of(*literals: str) -> Callable[[Any], str | None]:
    """Return a check for a text that has to be one of these; upper and lower case are alike."""

    def check(value: Any) -> str | None:
        if value is None or value.strip().lower() in literals:
            return None
        return f"Value must be one of {', '.join(literals)}"

    return check


def wrong_positive(value: int | None) -> str | None:
    """Return what is wrong with a number that must be at least 1."""
    return None if value is None or value > 0 else "A positive, non-zero integer value is expected"


def wrong_negative(value: int | None) -> str | None:
    """Return what is wrong with a number that must not be negative."""
    return None if value is None or value >= 0 else "An non-negative integer is expected"


def invalid_value(name: str, why: str) -> tuple[str, str]:
    """Return an error of `check_all` in Debezium's words."""
    return name, f"The '{name}' value is invalid: {why}"


def _wrong_operations(value: Sequence[str]) -> str | None:
    if any(each not in _OPERATIONS and each != "none" for each in value):
        return "Invalid operation"
    if "none" in value and len(set(value)) > 1:
        return "'none' cannot be specified with other skipped operation types"
    return None


def _wrong_key_columns(value: str | None) -> str | None:
    if value is None:
        return None
    if not value:
        return "Must not be empty"
    for each in value.split(";"):
        if each.strip() and KEY_COLUMNS_PATTERN.match(each) is None:
            return f"{each} has an invalid format (expecting '{KEY_COLUMNS_PATTERN.pattern}')"
        wrong = wrong_expressions(each.partition(":")[0])
        if wrong is not None:
            return wrong
    return None


class CdcConfig(Config):
    """Settings of every source that captures changes of a database."""

    topic_prefix: str = option(
        "Name of the database in topics, schemas and offsets; unique among connectors, and never changed.",
        importance="HIGH",
        check=wrong_topic_name,
    )
    table_include_list: list[str] = option(
        "Regular expressions of the tables to capture, as schema.table (MariaDB: database.table).",
        default=[],
        importance="HIGH",
        check=wrong_expressions,
    )
    table_exclude_list: list[str] = option(
        "Regular expressions of the tables to leave out.", default=[], check=wrong_expressions
    )
    column_include_list: list[str] = option(
        "Regular expressions of the columns to capture, as schema.table.column.", default=[], check=wrong_expressions
    )
    column_exclude_list: list[str] = option(
        "Regular expressions of the columns to leave out; keys keep them.", default=[], check=wrong_expressions
    )
    message_key_columns: str | None = option(
        "Columns of keys instead of the primary key, as schema.table:column,column;...",
        default=None,
        check=_wrong_key_columns,
    )
    column_propagate_source_type: list[str] = option(
        "Regular expressions of columns whose fields have the column's type in their parameters.",
        default=[],
        check=wrong_expressions,
    )
    datatype_propagate_source_type: list[str] = option(
        "The same for all columns of a type, as schema.table.type.", default=[], check=wrong_expressions
    )
    tombstones_on_delete: bool = option("Write a tombstone after the event of a deleted row.", default=True)
    skipped_operations: list[str] = option(
        "Operations without events: c, u, d, t (truncate), r (read by a snapshot), or none.",
        default=["t"],
        importance="LOW",
        check=_wrong_operations,
    )
    skip_messages_without_change: bool = option(
        "Leave out updates that change no captured column; PostgreSQL needs REPLICA IDENTITY FULL for it.",
        default=False,
    )
    provide_transaction_metadata: bool = option(
        "Write BEGIN and END of transactions to a topic, and each event's place in its transaction.",
        default=False,
        importance="LOW",
    )
    topic_delimiter: str = option(
        "Between the parts of a topic's name.", default=".", importance="LOW", check=wrong_topic_name
    )
    topic_transaction: str = option(
        "Topic of transactions, behind the prefix.", default="transaction", importance="LOW", check=wrong_topic_name
    )
    topic_heartbeat_prefix: str = option(
        "Begin of the heartbeats' topic; the prefix follows.",
        default=HEARTBEAT_PREFIX,
        importance="LOW",
        check=wrong_topic_name,
    )
    topic_heartbeat_name: str | None = option(
        "Whole name of the heartbeats' topic.",
        default=None,
        importance="LOW",
        check=lambda name: wrong_topic_name(name or None),
    )
    topic_naming_strategy: str = option(
        "Accepted for Debezium's configs: topics are named by prefix, schema and table.",
        default="io.debezium.schema.SchemaTopicNamingStrategy",
        check=one_of(
            "io.debezium.schema.schematopicnamingstrategy",
            "io.debezium.schema.defaulttopicnamingstrategy",
        ),
    )
    heartbeat_interval_ms: int = option("Time between heartbeats; 0 is none.", default=0, check=wrong_negative)
    heartbeat_action_query: str | None = option("A statement that is run with each heartbeat.", default=None)
    decimal_handling_mode: str = option(
        "What DECIMAL and NUMERIC become: precise, string or double.",
        default="precise",
        check=one_of(*DECIMAL_MODES),
    )
    time_precision_mode: str = option("What dates and times become.", default="adaptive", check=one_of(*TIME_MODES))
    binary_handling_mode: str = option(
        "What binary columns become: bytes, base64, base64-url-safe or hex.",
        default="bytes",
        importance="LOW",
        check=one_of(*BINARY_MODES),
    )
    interval_handling_mode: str = option(
        "What intervals become: numeric (microseconds) or string (ISO 8601).",
        default="numeric",
        check=one_of(*INTERVAL_MODES),
    )
    unavailable_value_placeholder: str = option(
        "Stands for a large value that did not change and was not sent; hex: begins one of bytes.",
        default=PLACEHOLDER,
    )
    include_unknown_datatypes: bool = option(
        "Capture columns of types that have no mapping, as the bytes that the database sends.", default=False
    )
    schema_name_adjustment_mode: str = option(
        "Replace characters of schema names that Avro does not have: none, avro (by _) or avro_unicode.",
        default="none",
        importance="LOW",
        check=one_of(*NAME_ADJUSTMENTS),
    )
    field_name_adjustment_mode: str = option(
        "The same for names of fields.", default="none", importance="LOW", check=one_of(*NAME_ADJUSTMENTS)
    )
    max_batch_size: int = option("Records of one batch.", default=2048, check=wrong_positive)
    max_queue_size: int = option("Accepted for Debezium's configs.", default=8192, check=wrong_positive)
    max_queue_size_in_bytes: Long = option("Accepted for Debezium's configs.", default=0, check=wrong_negative)
    poll_interval_ms: Long = option("Longest wait for changes.", default=500, check=wrong_positive)
    snapshot_mode: str = option("When existing rows are read.", default="initial")
    snapshot_fetch_size: int | None = option("Rows that a snapshot reads at once.", default=None, check=wrong_negative)
    snapshot_delay_ms: Long = option("Wait before a snapshot.", default=0, importance="LOW", check=wrong_negative)
    snapshot_max_threads: int = option("Tables that a snapshot reads at once.", default=1, check=wrong_positive)
    snapshot_include_collection_list: list[str] = option(
        "Regular expressions of the tables that a snapshot reads; all captured ones without it.",
        default=[],
        check=wrong_expressions,
    )
    incremental_snapshot_chunk_size: int = option(
        "Rows of one chunk of an incremental snapshot.", default=1024, check=wrong_positive
    )
    signal_data_collection: str | None = option("Table for signals, as database.schema.table.", default=None)
    signal_enabled_channels: list[str] = option(
        "Where signals come from: source (the table), kafka (a topic).", default=["source"], choices=SIGNAL_CHANNELS
    )
    signal_kafka_topic: str | None = option("Topic for signals.", default=None, check=wrong_topic_name)
    signal_poll_interval_ms: Long = option("Time between looks for signals.", default=5000, check=wrong_positive)
    errors_max_retries: int = option(
        "Accepted for Debezium's configs: tasks are restarted by the worker.", default=-1, importance="LOW"
    )
    retriable_restart_connector_wait_ms: Long = option(
        "Accepted for Debezium's configs.", default=10_000, importance="LOW", check=wrong_positive
    )

    def __init__(self, properties: Mapping[str, str | None] | None = None, /) -> None:
        super().__init__(properties)
        for attribute in (
            "decimal_handling_mode",
            "time_precision_mode",
            "binary_handling_mode",
            "interval_handling_mode",
            "schema_name_adjustment_mode",
            "field_name_adjustment_mode",
            "snapshot_mode",
        ):
            setattr(self, attribute, getattr(self, attribute).strip().lower())

    def check_all(self) -> Sequence[tuple[str, str]]:
        given = self.properties
        errors = []
        for each in EXCLUDING_PAIRS:
            include, exclude = f"{each}.include.list", f"{each}.exclude.list"
            if include in given and exclude in given:
                errors.append(invalid_value(exclude, f'"{include}" is already specified'))
        if self.max_queue_size <= self.max_batch_size:
            errors.append(invalid_value("max.queue.size", "Must be larger than the maximum batch size"))
        return errors

    @property
    def partition(self) -> dict[str, str]:
        """The partition under which a source stores its position, as Debezium's."""
        return {"server": self.topic_prefix}

    @property
    def skipped(self) -> frozenset[str]:
        """Operations that have no events."""
        return frozenset(self.skipped_operations) - {"none"}

    @property
    def is_heartbeat_on(self) -> bool:
        return self.heartbeat_interval_ms > 0
