"""The settings of the MariaDB source, by Debezium's names."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from strandline.cdc.expressions import wrong_expressions
from strandline.cdc.settings import CdcConfig, invalid_value, one_of, wrong_positive
from strandline.connect.config import Long, Password, option

SNAPSHOT_MODES: Final = ("always", "initial", "initial_only", "no_data", "never", "when_needed")
LOCKING_MODES: Final = ("minimal", "extended", "none")
SSL_MODES: Final = ("disable", "trust", "verify-ca", "verify-full")
TIME_MODES: Final = ("adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds")
BIGINT_MODES: Final = ("long", "precise")
_SERVER_IDS: Final = 2**32
_LOWEST_OWN_ID: Final = 2**31
_LOWERED: Final = ("bigint_unsigned_handling_mode", "snapshot_locking_mode", "database_ssl_mode")


class MariadbCdcConfig(CdcConfig):
    """Settings of MariadbCdcSource."""

    database_hostname: str = option("Host of the server.", importance="HIGH")
    database_port: int = option("Port of the server.", default=3306, importance="HIGH", low=1, high=65535)
    database_user: str = option(
        "User with REPLICATION SLAVE, BINLOG MONITOR and SELECT on the tables; RELOAD for the snapshot's lock.",
        importance="HIGH",
    )
    database_password: Password = option("Password of the user.", default=None, importance="HIGH")
    database_server_id: Long = option(
        "Id among the replicas of the server, unique; 0 is one made of topic.prefix.",
        default=0,
        importance="HIGH",
        low=0,
        high=_SERVER_IDS - 1,
    )
    database_include_list: list[str] = option(
        "Regular expressions of the databases to capture.", default=[], importance="HIGH", check=wrong_expressions
    )
    database_exclude_list: list[str] = option(
        "Regular expressions of the databases to leave out.", default=[], check=wrong_expressions
    )
    database_ssl_mode: str = option(
        "How TLS is used: disable, trust (any certificate), verify-ca or verify-full.",
        default="disable",
        check=one_of(*SSL_MODES),
    )
    database_ssl_ca: str | None = option("File with the certificates of authorities.", default=None)
    database_ssl_cert: str | None = option("File with the client's certificate.", default=None)
    database_ssl_key: str | None = option("File with the client's key.", default=None)
    connect_timeout_ms: int = option("Longest wait for a connection.", default=30_000, check=wrong_positive)
    snapshot_mode: str = option("When existing rows are read.", default="initial", check=one_of(*SNAPSHOT_MODES))
    snapshot_locking_mode: str = option(
        "How long a snapshot holds the global read lock: minimal (an instant), extended (until its end) or none.",
        default="minimal",
        check=one_of(*LOCKING_MODES),
    )
    time_precision_mode: str = option(
        "What dates and times become.", default="adaptive_time_microseconds", check=one_of(*TIME_MODES)
    )
    bigint_unsigned_handling_mode: str = option(
        "What BIGINT UNSIGNED becomes: long (above 2^63 negative) or precise (a Decimal).",
        default="long",
        check=one_of(*BIGINT_MODES),
    )
    include_schema_changes: bool = option("Write DDL statements to the topic of the prefix.", default=True)
    include_query: bool = option(
        "Add the statement to events; the server needs binlog_annotate_row_events.", default=False
    )

    def __init__(self, properties: Mapping[str, str | None] | None = None, /) -> None:
        super().__init__(properties)
        for attribute in _LOWERED:
            setattr(self, attribute, getattr(self, attribute).strip().lower())

    def check_all(self) -> Sequence[tuple[str, str]]:
        errors = list(super().check_all())
        if (self.database_ssl_cert is None) != (self.database_ssl_key is None):
            errors.append(invalid_value("database.ssl.key", "database.ssl.cert and database.ssl.key belong together"))
        return errors

    @property
    def server_id(self) -> int:
        """The id among the server's replicas. The server ends an older stream with the same id."""
        if self.database_server_id:
            return self.database_server_id
        return _LOWEST_OWN_ID + zlib.crc32(self.topic_prefix.encode()) % _LOWEST_OWN_ID
