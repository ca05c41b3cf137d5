"""One way to run a statement in the caller's transaction, whichever library the session is of.

Known are SQLAlchemy 2 (Session, Connection and their async forms), psycopg 3 (connections and cursors, also async),
Django (a connection, its alias, or None for the default one) and sqlite3. None of them is imported here: the caller has
done that. Statements have `:name` for parameters.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from strandline.outbox.tables import POSTGRESQL, SQLITE, known_dialect

_PARAMETER: Final = re.compile(r"(?<!:):(\w+)")
_IDLE: Final = 0
"""libpq's state of a connection without an open transaction."""
_NEAR: Final = ("localhost", "127.0.0.1", "::1")
_PYFORMAT_DRIVERS: Final = ("psycopg", "psycopg2")
Parameters = Mapping[str, Any]


class NotInTransaction(RuntimeError):
    """The session commits each statement by itself, so the row would not belong to the caller's changes."""


class SessionKind(NamedTuple):
    """What a session is: of which library, and whether its calls are awaited."""

    library: str
    is_async: bool


class Statement(NamedTuple):
    """A statement that a session can run, with the dialect of its database."""

    session: Any
    kind: SessionKind
    dialect: str
    is_transaction_needed: bool = False

    def run(self, sql: str, parameters: Parameters) -> Any:
        """Run it. Return the number of rows that it changed, or an awaitable of that."""
        if self.is_transaction_needed and self.kind == _SQLALCHEMY_ASYNC:
            return self._run_checked_async(sql, parameters)
        return _RUN[self.kind](self.session, sql, parameters)

    async def _run_checked_async(self, sql: str, parameters: Parameters) -> int:
        session = self.session
        connection = await session.connection() if hasattr(session, "get_bind") else session
        if not connection.in_transaction():
            await connection.begin()
        _check_driver((await connection.get_raw_connection()).dbapi_connection)
        return await _run_sqlalchemy_async(connection, sql, parameters)

    def run_first(self, sql: str, parameters: Mapping[str, str]) -> Any:
        """Run it as `run` does. If it begins a transaction of psycopg, BEGIN costs no round trip of its own."""
        run = _RUN_FIRST.get(self.kind) or _RUN[self.kind]
        return run(self.session, sql, parameters)

    def run_flushed(self, sql: str, parameters: Parameters) -> Any:
        """Run it behind the changes that a Session of SQLAlchemy has not written yet."""
        flush = getattr(self.session, "flush", None) if self.kind.library == "sqlalchemy" else None
        if flush is None:
            return self.run(sql, parameters)
        if self.kind.is_async:
            return self._run_flushed_async(sql, parameters)
        flush()
        return self.run(sql, parameters)

    async def _run_flushed_async(self, sql: str, parameters: Parameters) -> int:
        await self.session.flush()
        return int(await self.run(sql, parameters))


_SQLALCHEMY_ASYNC: Final = SessionKind("sqlalchemy", True)


def statement_on(session: Any, *, is_transaction_needed: bool = True) -> Statement:
    """Return how to run statements on a session. Raise TypeError if its library is not known."""
    if session is None or isinstance(session, str):
        session = import_module("django.db").connections[session or "default"]
    kind = _kind_of(type(session))  # type: ignore[arg-type]  # mypy takes the __hash__ of instances
    if kind is None:
        raise TypeError(
            f"{type(session).__module__}.{type(session).__name__} is no session that outbox and inbox know: "
            "pass one of SQLAlchemy, psycopg 3, Django or sqlite3"
        )
    dialect = _DIALECT[kind.library](session)
    if is_transaction_needed:
        _check_transaction(kind, session)
    return Statement(session, kind, known_dialect(dialect), is_transaction_needed)


@lru_cache(256)
def _kind_of(session_class: type) -> SessionKind | None:
    for base in session_class.__mro__:
        library = base.__module__.partition(".")[0]
        if library == "sqlalchemy":
            # An engine or a sessionmaker is of this library, too.
            is_session = hasattr(session_class, "execute")
            return SessionKind(library, ".asyncio" in base.__module__) if is_session else None
        if library == "psycopg":
            return SessionKind(library, "Async" in base.__name__)
        if library == "django" or (library == "sqlite3" and base.__name__ in ("Connection", "Cursor")):
            return SessionKind(library, False)
    return None


def _sqlalchemy_dialect(session: Any) -> str:
    dialect = getattr(session, "dialect", None)
    return str((dialect or session.get_bind().dialect).name)


_DIALECT: Final[Mapping[str, Callable[[Any], str]]] = {
    "sqlalchemy": _sqlalchemy_dialect,
    "psycopg": lambda session: POSTGRESQL,
    "django": lambda session: str(session.vendor),
    "sqlite3": lambda session: SQLITE,
}


def _check_transaction(kind: SessionKind, session: Any) -> None:
    match kind.library:
        case "psycopg":
            connection = _connection_of(session)
            is_alone = connection.autocommit and connection.info.transaction_status == _IDLE
            advice = "use `with connection.transaction():`"
        case "django":
            is_alone = not session.in_atomic_block and session.get_autocommit()
            advice = "use `with transaction.atomic():`"
        case "sqlite3":
            connection = _connection_of(session)
            is_alone = connection.isolation_level is None and not connection.in_transaction
            advice = "execute BEGIN first"
        case _:
            if not kind.is_async:
                connection = session.connection() if hasattr(session, "get_bind") else session
                if not connection.in_transaction():
                    # The first statement would do this, and a listener of it may execute BEGIN.
                    connection.begin()
                _check_driver(connection.connection.dbapi_connection)
            return
    if is_alone:
        raise NotInTransaction(f"the connection is in autocommit mode and has no transaction: {advice}")


def _check_driver(connection: Any) -> None:
    """Raise NotInTransaction if SQLAlchemy's connection of a driver commits each statement."""
    is_alone = getattr(connection, "autocommit", None)
    if not isinstance(is_alone, bool):
        # Drivers of SQLite; from Python 3.12 on their `autocommit` is a number, too.
        is_alone = getattr(connection, "isolation_level", "") is None
    if is_alone and not _has_begun(connection):
        raise NotInTransaction(
            "the connection is in autocommit mode and has no transaction: use an engine or connection without "
            'isolation_level="AUTOCOMMIT"'
        )


def _has_begun(connection: Any) -> bool:
    info = getattr(connection, "info", None)
    if info is not None and hasattr(info, "transaction_status"):
        return bool(info.transaction_status != _IDLE)
    # That of aiosqlite is behind SQLAlchemy's.
    driver = getattr(connection, "driver_connection", connection)
    return bool(getattr(driver, "in_transaction", False))


def _connection_of(session: Any) -> Any:
    """Return the connection of a cursor, or a connection itself."""
    return session.connection if "Cursor" in type(session).__name__ or hasattr(session, "fetchone") else session


@lru_cache(1024)
def _pyformat(sql: str) -> str:
    return _PARAMETER.sub(r"%(\1)s", sql)


@lru_cache(1024)
def _sqlalchemy_text(sql: str) -> Any:
    return import_module("sqlalchemy").text(sql)


def _run_sqlalchemy(session: Any, sql: str, parameters: Parameters) -> int:
    connection = session.connection() if hasattr(session, "get_bind") else session
    # The driver's form costs half as much as a text that SQLAlchemy compiles, where the style of parameters is known.
    if connection.dialect.driver in _PYFORMAT_DRIVERS:
        return int(connection.exec_driver_sql(_pyformat(sql), parameters).rowcount)
    return int(connection.execute(_sqlalchemy_text(sql), parameters).rowcount)


async def _run_sqlalchemy_async(session: Any, sql: str, parameters: Parameters) -> int:
    connection = await session.connection() if hasattr(session, "get_bind") else session
    return int((await connection.execute(_sqlalchemy_text(sql), parameters)).rowcount)


def _run_first_sqlalchemy(session: Any, sql: str, parameters: Mapping[str, str]) -> int:
    connection = session.connection() if hasattr(session, "get_bind") else session
    if connection.dialect.driver != "psycopg":
        return _run_sqlalchemy(connection, sql, parameters)
    from psycopg import Error

    from strandline.outbox.first_statement import begin_and_run, can_begin

    if not connection.in_transaction():
        # SQLAlchemy would do this with the first statement that it runs, and without it `commit` would do nothing.
        connection.begin()
    driver = connection.connection.driver_connection
    try:
        rows = begin_and_run(driver, sql, parameters) if can_begin(driver) else None
    except Error as error:
        failure = import_module("sqlalchemy.exc").DBAPIError
        raise failure.instance(sql, parameters, error, Error, dialect=connection.dialect) from error
    return _run_sqlalchemy(connection, sql, parameters) if rows is None else rows


def _run_psycopg(session: Any, sql: str, parameters: Parameters) -> int:
    connection = _connection_of(session)
    # Not a cursor of the connection's factory, which may have another style of parameters.
    cursor = import_module("psycopg").Cursor(connection)
    cursor.execute(_pyformat(sql), parameters)
    return int(cursor.rowcount)


def _run_first_psycopg(session: Any, sql: str, parameters: Mapping[str, str]) -> int:
    from strandline.outbox.first_statement import begin_and_run, can_begin

    connection = _connection_of(session)
    rows = begin_and_run(connection, sql, parameters) if can_begin(connection) else None
    return _run_psycopg(connection, sql, parameters) if rows is None else rows


async def _run_psycopg_async(session: Any, sql: str, parameters: Parameters) -> int:
    connection = _connection_of(session)
    cursor = import_module("psycopg").AsyncCursor(connection)
    if _shares_begin(connection):
        async with connection.pipeline():
            await cursor.execute(_pyformat(sql), parameters)
    else:
        await cursor.execute(_pyformat(sql), parameters)
    return int(cursor.rowcount)


def _shares_begin(connection: Any) -> bool:
    """Return whether BEGIN is still to come and a round trip costs more than a pipeline that saves it."""
    info = connection.info
    return info.transaction_status == _IDLE and not (info.host.startswith("/") or info.host in _NEAR)


def _run_django(session: Any, sql: str, parameters: Parameters) -> int:
    with session.cursor() as cursor:
        cursor.execute(_pyformat(sql), dict(parameters))
        return int(cursor.rowcount)


def _run_sqlite(session: Any, sql: str, parameters: Parameters) -> int:
    connection = _connection_of(session)
    return int(connection.execute(sql, parameters).rowcount)


_RUN: Final[Mapping[SessionKind, Callable[[Any, str, Parameters], Any]]] = {
    SessionKind("sqlalchemy", False): _run_sqlalchemy,
    SessionKind("sqlalchemy", True): _run_sqlalchemy_async,
    SessionKind("psycopg", False): _run_psycopg,
    SessionKind("psycopg", True): _run_psycopg_async,
    SessionKind("django", False): _run_django,
    SessionKind("sqlite3", False): _run_sqlite,
}
_RUN_FIRST: Final[Mapping[SessionKind, Callable[[Any, str, Mapping[str, str]], Any]]] = {
    SessionKind("sqlalchemy", False): _run_first_sqlalchemy,
    SessionKind("psycopg", False): _run_first_psycopg,
}


def run_all(session: Any, ddl_of: Callable[[str], Sequence[str]]) -> Any:
    """Run the statements that a function gives for the session's dialect; an awaitable for an async session."""
    on = statement_on(session, is_transaction_needed=False)
    statements = ddl_of(on.dialect)
    if on.kind.is_async:
        return _run_all_async(on, statements)
    for each in statements:
        on.run(each, {})
    return None


async def _run_all_async(on: Statement, statements: Sequence[str]) -> None:
    for each in statements:
        await on.run(each, {})


def then(result: Any, is_async: bool, take: Callable[[int], Any]) -> Any:
    """Return what a function makes of a statement's result, or an awaitable of that."""
    return _then(result, take) if is_async else take(result)


async def _then(result: Awaitable[int], take: Callable[[int], Any]) -> Any:
    return take(await result)
