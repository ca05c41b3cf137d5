"""The settings of the PostgreSQL source, by Debezium's names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from strandline.cdc.expressions import wrong_expressions
from strandline.cdc.settings import CdcConfig, invalid_value, one_of, wrong_negative, wrong_positive
from strandline.connect.config import Long, Password, option

CONNECT_TIMEOUT_S: Final = 10
SNAPSHOT_MODES: Final = ("always", "initial", "initial_only", "no_data", "never", "when_needed")
PUBLICATION_MODES: Final = ("all_tables", "filtered", "disabled", "no_tables")
GUARD_ACTIONS: Final = ("warn", "fail", "drop")
SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
SSL_FILES: Final = ("sslcert", "sslkey", "sslrootcert")
_SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}", re.ASCII)
_LOWERED: Final = (
    "publication_autocreate_mode",
    "slot_guard_action",
    "hstore_handling_mode",
    "lsn_flush_mode",
    "database_sslmode",
)


def _wrong_slot(name: str) -> str | None:
    if _SLOT_NAME.fullmatch(name):
        return None
    return (
        "Valid replication slot name must contain only digits, lowercase characters and underscores with length <= 63"
    )


class PostgresCdcConfig(CdcConfig):
    """Settings of PostgresCdcSource."""

    database_hostname: str = option("Host of the server, or the directory of its socket.", importance="HIGH")
    database_port: int = option("Port of the server.", default=5432, importance="HIGH", low=1, high=65535)
    database_user: str = option("Role with LOGIN, REPLICATION and SELECT on the tables.", importance="HIGH")
    database_password: Password = option("Password of the role.", default=None, importance="HIGH")
    database_dbname: str = option("Database whose changes are captured.", importance="HIGH")
    database_sslmode: str = option("How TLS is used.", default="prefer", check=one_of(*SSL_MODES))
    database_sslcert: str | None = option("File with the client's certificate.", default=None)
    database_sslkey: str | None = option("File with the client's key.", default=None)
    database_sslpassword: Password = option("Password of the client's key.", default=None)
    database_sslrootcert: str | None = option("File with the certificates of authorities.", default=None)
    plugin_name: str = option("Output plugin of the slot; only pgoutput.", default="pgoutput", check=one_of("pgoutput"))
    slot_name: str = option("Replication slot; made if it does not exist.", default="debezium", check=_wrong_slot)
    slot_drop_on_stop: bool = option(
        "Drop the slot when the task stops: changes until the next start are then lost.", default=False
    )
    slot_failover: bool = option("Make the slot a failover slot, so that standbys keep it (PG 17).", default=False)
    slot_guard_warn_bytes: Long = option(
        "Warn when the slot holds more WAL than this; 0 never.", default=1024**3, check=wrong_negative
    )
    slot_guard_stop_bytes: Long = option(
        "Do slot.guard.action when the slot holds more WAL than this; 0 never.", default=0, check=wrong_negative
    )
    slot_guard_action: str = option(
        "Above slot.guard.stop.bytes: warn, fail (the task stops, the slot stays) or drop (the slot is dropped, "
        "and the task stops: the next start needs a snapshot).",
        default="warn",
        check=one_of(*GUARD_ACTIONS),
    )
    slot_guard_interval_ms: Long = option("Time between looks at the slot.", default=10_000, check=wrong_positive)
    publication_name: str = option("Publication; made as publication.autocreate.mode says.", default="dbz_publication")
    publication_autocreate_mode: str = option(
        "all_tables (needs a superuser), filtered (the captured tables), no_tables, or disabled.",
        default="all_tables",
        check=one_of(*PUBLICATION_MODES),
    )
    publish_via_partition_root: bool = option(
        "Have the publication give rows of partitions as rows of the partitioned table: one topic.", default=True
    )
    schema_include_list: list[str] = option(
        "Regular expressions of the schemas to capture.", default=[], check=wrong_expressions
    )
    schema_exclude_list: list[str] = option(
        "Regular expressions of the schemas to leave out.", default=[], check=wrong_expressions
    )
    snapshot_mode: str = option(
        "initial: once. always: at each start. initial_only: then end. no_data, never: only changes. when_needed: also "
        "when the changes since the stored position are lost.",
        default="initial",
        check=one_of(*SNAPSHOT_MODES),
    )
    snapshot_select_statement_overrides: list[str] = option(
        "Tables whose snapshot has a query of its own, in snapshot.select.statement.overrides.<schema.table>.",
        default=[],
    )
    read_only: bool = option(
        "Never write to the database: incremental snapshots then use watermarks of transactions.", default=False
    )
    hstore_handling_mode: str = option("What hstore becomes: json or map.", default="json", check=one_of("json", "map"))
    money_fraction_digits: int = option("Digits behind the point of money.", default=2, low=0)
    lsn_flush_mode: str = option(
        "connector: confirm what is in the log. manual: never confirm; the slot is moved by other means.",
        default="connector",
        check=one_of("connector", "manual", "connector_and_driver"),
    )
    status_update_interval_ms: int = option("Time between status updates.", default=10_000, check=wrong_positive)
    logical_messages: bool = option(
        "Capture what pg_logical_emit_message writes.", default=True, name="message.enabled"
    )
    message_prefix_include_list: list[str] = option(
        "Regular expressions of the prefixes of logical messages to capture.", default=[], check=wrong_expressions
    )
    message_prefix_exclude_list: list[str] = option(
        "Regular expressions of the prefixes of logical messages to leave out.", default=[], check=wrong_expressions
    )

    def __init__(self, properties: Mapping[str, str | None] | None = None, /) -> None:
        super().__init__(properties)
        for attribute in _LOWERED:
            setattr(self, attribute, getattr(self, attribute).strip().lower())

    @property
    def address(self) -> str:
        """The server and the database, for messages."""
        return f"{self.database_hostname}:{self.database_port}/{self.database_dbname}"

    def connection_parameters(self) -> dict[str, Any]:
        """Return the parameters of a connection, by libpq's names."""
        given = {
            "host": self.database_hostname,
            "port": self.database_port,
            "user": self.database_user,
            "password": self.database_password,
            "dbname": self.database_dbname,
            "sslmode": self.database_sslmode,
            "sslcert": self.database_sslcert,
            "sslkey": self.database_sslkey,
            "sslpassword": self.database_sslpassword,
            "sslrootcert": self.database_sslrootcert,
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": "strandline-cdc",
            "keepalives_idle": 30,
        }
        return {name: value for name, value in given.items() if value is not None}

    def select_of(self, full_name: str) -> str | None:
        """Return the query that a table's snapshot has instead of the whole table."""
        prefix = "snapshot.select.statement.overrides."
        if full_name not in self.snapshot_select_statement_overrides:
            return None
        return self.properties.get(prefix + full_name)

    def check_all(self) -> Sequence[tuple[str, str]]:
        errors = list(super().check_all())
        for each in self.snapshot_select_statement_overrides:
            if self.select_of(each) is None:
                name = "snapshot.select.statement.overrides"
                errors.append(invalid_value(name, f'the setting "{name}.{each}" with the query is missing'))
        if 0 < self.slot_guard_stop_bytes < self.slot_guard_warn_bytes and "slot.guard.warn.bytes" in self.properties:
            errors.append(invalid_value("slot.guard.stop.bytes", "Must be larger than slot.guard.warn.bytes"))
        return errors
