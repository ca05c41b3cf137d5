"""Connections to MariaDB, and what its errors mean."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import pymysql
from pymysql.converters import encoders

from strandline.cdc.mariadb.settings import MariadbCdcConfig
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RetriableFailure

MARIADB_SINCE: Final = (10, 5)
"""The first version whose table maps have names of columns."""
REQUIRED: Final = {
    "log_bin": ("1", "log_bin=binlog in the server's configuration, and restart it"),
    "binlog_format": ("ROW", "SET GLOBAL binlog_format=ROW"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image=FULL"),
    "binlog_row_metadata": ("FULL", "SET GLOBAL binlog_row_metadata=FULL"),
}
_READ_TIMEOUT_S: Final = 600
_PASSING: Final = frozenset(
    (1040, 1053, 1077, 1129, 1152, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1226, 1412, 1927, 2002, 2003, 2006, 2013)
)
"""Errors that pass by themselves: the server is away, stopping, full or busy, or a table was altered meanwhile."""
DENIED: Final = frozenset((1044, 1142, 1143, 1227))
_WRONG_PASSWORD: Final = frozenset((1045, 1698))


class BinlogGone(ConnectFailed):
    """The server has no binlog for the stored position any more."""


def connect(config: MariadbCdcConfig, **options: Any) -> Any:
    """Return a connection of PyMySQL, with the session's time zone UTC and values as texts and bytes."""
    # Only what turns arguments into SQL: values of rows are converted once for each table.
    conversions: Any = dict(encoders)
    with explained(config):
        connection = pymysql.connect(
            host=config.database_hostname,
            port=config.database_port,
            user=config.database_user,
            password=config.database_password or "",
            charset="utf8mb4",
            conv=conversions,
            autocommit=True,
            connect_timeout=max(1, config.connect_timeout_ms // 1000),
            read_timeout=_READ_TIMEOUT_S,
            ssl=_tls(config),
            **options,
        )
        query(connection, "set time_zone='+00:00', sql_mode='', net_write_timeout=3600")
        return connection


def _tls(config: MariadbCdcConfig) -> ssl.SSLContext | None:
    if config.database_ssl_mode == "disable":
        return None
    try:
        context = ssl.create_default_context(cafile=config.database_ssl_ca)
        context.check_hostname = config.database_ssl_mode == "verify-full"
        if config.database_ssl_mode == "trust":
            context.verify_mode = ssl.CERT_NONE
        if config.database_ssl_cert is not None:
            context.load_cert_chain(config.database_ssl_cert, config.database_ssl_key)
    except OSError as error:
        raise InvalidConnectorConfig(f"a file of database.ssl cannot be read: {error}") from None
    return context


def query(connection: Any, sql: str, *arguments: Any) -> Sequence[tuple[Any, ...]]:
    """Run a statement. Return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments or None)
        found: Sequence[tuple[Any, ...]] = cursor.fetchall()
        return found


def close(connection: Any) -> None:
    """Close a connection, also one that is broken."""
    with suppress(pymysql.Error, OSError):
        connection.close()


def server_name(config: MariadbCdcConfig) -> str:
    """Return what messages call the server."""
    return f"MariaDB at {config.database_hostname}:{config.database_port}"


@contextmanager
def explained(config: MariadbCdcConfig) -> Iterator[None]:
    """Raise the server's errors as failures of a task."""
    try:
        yield
    except (pymysql.Error, OSError) as error:
        raise failure_of(error, config) from error


def failure_of(error: BaseException, config: MariadbCdcConfig) -> ConnectFailed:
    """Return what an error of the server means for the task."""
    server = server_name(config)
    code, text = _parts(error)
    if isinstance(error, OSError) or code in _PASSING or isinstance(error, pymysql.InterfaceError):
        return RetriableFailure(f"{server} is away: {text}")
    if code in _WRONG_PASSWORD:
        return ConnectFailed(f"{server} refuses the user {config.database_user}: {text}; set database.password")
    if code in DENIED:
        return ConnectFailed(
            f"{server} denies a right: {text}; GRANT SELECT, RELOAD, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO "
            f"{config.database_user}"
        )
    if code == 1236:
        return binlog_gone(config, text)
    return ConnectFailed(f"{server} failed: {text}")


def binlog_gone(config: MariadbCdcConfig, why: str) -> BinlogGone:
    """Return the failure of a position that the server does not have."""
    return BinlogGone(
        f"{server_name(config)} cannot go on at the stored position: {why.rstrip('.')}; "
        "set snapshot.mode=when_needed to take a new snapshot, and raise binlog_expire_logs_seconds"
    )


def _parts(error: BaseException) -> tuple[int, str]:
    arguments = error.args
    if len(arguments) > 1 and isinstance(arguments[0], int):
        return arguments[0], str(arguments[1])
    return 0, str(error) or type(error).__name__


def check_server(connection: Any, config: MariadbCdcConfig) -> None:
    """Raise ConnectFailed if the server is no MariaDB, is too old, or does not write what the connector needs."""
    ((version,),) = query(connection, "select version()")
    server = f"the server at {config.database_hostname}:{config.database_port}"
    if "MariaDB" not in version:
        raise ConnectFailed(f"{server} is no MariaDB ({version}): MySQL has other GTIDs and is not captured")
    if tuple(int(each) for each in version.split(".")[:2]) < MARIADB_SINCE:
        raise ConnectFailed(f"{server} has MariaDB {version}, which lacks binlog_row_metadata: use 10.5 or newer")
    (found,) = query(connection, f"select {', '.join(f'@@global.{each}' for each in REQUIRED)}")
    for (name, (value, cure)), actual in zip(REQUIRED.items(), found, strict=True):
        if actual != value:
            raise ConnectFailed(
                f"{server} has {name}={actual}, but changes can only be captured with {name}={value}: {cure}, and keep "
                "it in the server's configuration"
            )
