"""The inbox table: which messages a consumer has had its effect of.

The primary key decides: of two transactions that insert the same id the second waits for the first, and inserts
nothing if that commits. So a message has its effect once, also if two members of a group work on it at a time.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, overload

from strandline.effects.messages import id_of
from strandline.outbox.sessions import run_all, statement_on, then
from strandline.outbox.tables import DEFAULT_INBOX, SQLITE, QualifiedTable, inbox_ddl

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    AsyncTransaction = AsyncSession | AsyncConnection | psycopg.AsyncConnection[Any] | psycopg.AsyncCursor[Any]

DEFAULT_CONSUMER: Final = "default"
ROWS_PER_PRUNE: Final = 10_000


@overload
def once(session: AsyncTransaction, message: Any, *, consumer: str = ..., table: str = ...) -> Awaitable[bool]: ...


@overload
def once(session: Any, message: Any, *, consumer: str = ..., table: str = ...) -> bool: ...


def once(session: Any, message: Any, *, consumer: str = DEFAULT_CONSUMER, table: str = DEFAULT_INBOX) -> Any:
    """Return whether the effect of a message is to run now; `await` it for async sessions.

    message     of confluent-kafka, kafka-python, aiokafka, or a task or record of ours. Its id is the header `id`, else
                `topic-partition-offset`
    consumer    name of the effect. Each has an inbox of its own, so two services may share a database

    Call it in the transaction of the effect, best as its first statement: psycopg and SQLAlchemy then send it with
    BEGIN. After a rollback the message counts as new.
    """
    on = statement_on(session)
    result = on.run_first(_insert_sql(table), {"consumer": consumer, "message_id": id_of(message)})
    return then(result, on.kind.is_async, _is_new)


def prune(
    session: Any,
    older_than: datetime.timedelta,
    *,
    consumer: str | None = None,
    rows_max: int = ROWS_PER_PRUNE,
    table: str = DEFAULT_INBOX,
) -> Any:
    """Delete ids of messages that were processed so long ago, at most `rows_max`; return how many.

    A message that comes again after that has its effect again. Keep ids for longer than the topic keeps records.
    """
    on = statement_on(session, is_transaction_needed=False)
    parameters: dict[str, Any] = {"age": older_than.total_seconds(), "rows_max": rows_max}
    if consumer is not None:
        parameters["consumer"] = consumer
    return on.run(_prune_sql(on.dialect, table, consumer is not None), parameters)


def create(session: Any, *, table: str = DEFAULT_INBOX) -> Any:
    """Create the table if it is missing, in the caller's transaction; `await` it for async sessions."""
    return run_all(session, lambda dialect: inbox_ddl(dialect, table=table))


def upgrade(op: Any, *, table: str = DEFAULT_INBOX) -> None:
    """Create the table in a migration of Alembic, whose `op` is given."""
    for each in inbox_ddl(op.get_context().dialect.name, table=table):
        op.execute(each)


def downgrade(op: Any, *, table: str = DEFAULT_INBOX) -> None:
    """Drop the table in a migration of Alembic."""
    op.execute(f"DROP TABLE IF EXISTS {QualifiedTable.of(table).quoted}")


def _is_new(rows: int) -> bool:
    return rows == 1


@lru_cache(256)
def _insert_sql(table: str) -> str:
    return (
        f"INSERT INTO {QualifiedTable.of(table).quoted} (consumer, message_id) VALUES (:consumer, :message_id) "
        "ON CONFLICT DO NOTHING"
    )


def _prune_sql(dialect: str, table: str, has_consumer: bool) -> str:
    name = QualifiedTable.of(table).quoted
    old = "processed_at < now() - make_interval(secs => CAST(:age AS double precision))"
    if dialect == SQLITE:
        old = "processed_at < (julianday('now') - 2440587.5) * 86400 - :age"
    where = f"{old} AND consumer = :consumer" if has_consumer else old
    found = f"SELECT consumer, message_id FROM {name} WHERE {where} LIMIT :rows_max"
    return f"DELETE FROM {name} WHERE (consumer, message_id) IN ({found})"
