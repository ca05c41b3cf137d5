"""Settings of SQL sinks, with the names of Confluent's JDBC sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from strandline.connect.config import Config, Password, option
from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.sinks.sql.logical_types import PLACEHOLDER
from strandline.connect.sinks.sql.tables import NameFormat

InsertMode = Literal["insert", "upsert", "update"]
KeyMode = Literal["none", "kafka", "record_key", "record_value"]


def _wrong_format(text: str) -> str | None:
    try:
        NameFormat(text)
    except ValueError as error:
        return str(error)
    return None


class SqlSinkConfig(Config):
    """Settings of every SQL sink."""

    connection_url: str = option(
        "Where the database is: a connection string or URI of PostgreSQL, or the path of a file for SQLite and DuckDB. "
        "A leading jdbc: is ignored.",
        importance="HIGH",
        group="Connection",
    )
    connection_user: str | None = option(
        "User of the database, if the URL names none.", default=None, importance="HIGH", group="Connection"
    )
    connection_password: Password | None = option(
        "Password of the user.", default=None, importance="HIGH", group="Connection"
    )
    table_name_format: str = option(
        "Name of the table, in which ${topic} is the record's topic. A dot outside of ${topic} parts schema and table; "
        "a dot in a topic is part of the table's name.",
        default="${topic}",
        group="Data Mapping",
        check=_wrong_format,
    )
    insert_mode: InsertMode = option(
        "insert adds a row for each record. upsert makes the row of a key what its last record is. update changes "
        "rows that exist, and ignores records whose key has none.",
        default="upsert",
        importance="HIGH",
        group="Writes",
    )
    pk_mode: KeyMode = option(
        "Where the primary key comes from: none; kafka (topic, partition and offset); record_key; record_value.",
        default="record_key",
        importance="HIGH",
        group="Data Mapping",
    )
    pk_fields: list[str] = option(
        "Columns of the primary key. With kafka: three names, by default __connect_topic, __connect_partition, "
        "__connect_offset. With record_key: fields of the key, by default all; or the one column of a key that has no "
        "fields, by default id. With record_value: fields of the value, by default all.",
        default=(),
        group="Data Mapping",
    )
    fields_whitelist: list[str] = option(
        "Fields of values that are written; empty for all. Other columns are left as they are.",
        default=(),
        group="Data Mapping",
    )
    auto_create: bool = option("Whether a missing table is created.", default=True, group="DDL Support")
    auto_evolve: bool = option(
        "Whether missing columns are added, and columns get a wider type when a value needs it.",
        default=True,
        group="DDL Support",
    )
    delete_enabled: bool | None = option(
        "Whether a null value deletes the row of its key. Needs pk.mode=record_key, where it is on by default.",
        default=None,
        group="Writes",
    )
    unavailable_value_placeholder: str = option(
        "What a source of changes writes for a large value that did not change; its column is left as it is. Empty: "
        "nothing is a placeholder.",
        default=PLACEHOLDER,
        importance="LOW",
        group="Data Mapping",
    )
    batch_size: int = option("Rows of one statement at most.", default=3000, low=1, group="Writes")

    @property
    def deletes(self) -> bool:
        """Whether tombstones delete."""
        return self.pk_mode == "record_key" if self.delete_enabled is None else self.delete_enabled

    @property
    def connector(self) -> str:
        """The connector's name, under which offsets are stored."""
        name = self.properties.get("name")
        if not name:
            raise InvalidConnectorConfig('Missing required configuration "name" which has no default value.')
        return name

    def check_all(self) -> Sequence[tuple[str, str]]:
        wrong = []
        if self.pk_mode == "none" and self.insert_mode != "insert":
            wrong.append(("pk.mode", f"insert.mode={self.insert_mode} needs a primary key: set pk.mode, or insert"))
        if self.pk_mode == "kafka" and len(self.pk_fields) not in (0, 3):
            wrong.append(("pk.fields", "pk.mode=kafka takes three names: of topic, partition and offset"))
        if self.delete_enabled and self.pk_mode != "record_key":
            wrong.append(("delete.enabled", "deletes need pk.mode=record_key"))
        if len(set(self.pk_fields)) != len(self.pk_fields):
            wrong.append(("pk.fields", "a field is named twice"))
        return wrong
