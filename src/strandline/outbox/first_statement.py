"""BEGIN and the first statement of a transaction in one round trip, for connections of psycopg.

psycopg sends BEGIN by itself and waits for the answer. A handler whose transaction begins with `inbox.once` would have
one round trip more than a handler without it. Here both go in one simple query. The statement is prepared in the
session by its first use, so the server parses and plans it once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from psycopg import Connection, errors
from psycopg.generators import execute
from psycopg.pq import Escaping, ExecStatus, PipelineStatus, TransactionStatus

_PARAMETER: Final = re.compile(r"(?<!:):(\w+)")
_prepared: WeakKeyDictionary[Connection[Any], dict[str, bytes]] = WeakKeyDictionary()
"""The names of prepared statements, by connections and texts."""
_unprepared: WeakSet[Connection[Any]] = WeakSet()
"""Connections whose sessions change, because a pooler is between."""


def can_begin(connection: Connection[Any]) -> bool:
    """Return whether psycopg would send a plain BEGIN next, and may prepare statements."""
    return (
        connection.pgconn.transaction_status == TransactionStatus.IDLE
        and not connection.autocommit
        and connection.prepare_threshold is not None
        and connection.isolation_level is None
        and connection.read_only is None
        and connection.deferrable is None
        and connection.pgconn.pipeline_status == PipelineStatus.OFF
        and connection not in _unprepared
    )


def begin_and_run(connection: Connection[Any], sql: str, parameters: Mapping[str, str]) -> int | None:
    """Begin a transaction with a statement that has `:name` for texts. Return the number of rows that it changed.

    Return None, without a transaction, if a pooler gives the connection sessions that others prepare statements in.
    """
    known = _prepared.setdefault(connection, {})
    try:
        return _run(connection, sql, parameters, known)
    except errors.InvalidSqlStatementName:
        # psycopg deallocates all prepared statements with a rollback.
        known.clear()
        connection.rollback()
    except errors.DuplicatePreparedStatement:
        connection.rollback()
        _unprepared.add(connection)
        return None
    return _run(connection, sql, parameters, known)


def _run(connection: Connection[Any], sql: str, parameters: Mapping[str, str], known: dict[str, bytes]) -> int:
    pgconn, encoding = connection.pgconn, connection.info.encoding
    text, names = _numbered(sql)
    literal = Escaping(pgconn).escape_literal
    values = b", ".join([literal(parameters[each].encode(encoding)) for each in names])
    name = known.get(sql)
    if name is None:
        name = b"strandline_%d" % len(known)
        query = b"BEGIN; PREPARE %b AS %b; EXECUTE %b(%b)" % (name, text.encode(encoding), name, values)
    else:
        query = b"BEGIN; EXECUTE %b(%b)" % (name, values)
    with connection.lock:
        pgconn.send_query(query)
        result = connection.wait(execute(pgconn))[-1]
    if result.status != ExecStatus.COMMAND_OK:
        raise errors.error_from_result(result, encoding)
    known[sql] = name
    return int(result.command_tuples or 0)


@lru_cache(256)
def _numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement with `$1` for its first parameter, and the names of all."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    return _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", sql), names
