"""Adding events: a row, or a message in PostgreSQL's log, in the transaction of the caller's changes."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Final, overload
from uuid import UUID

from strandline.outbox.events import OutboxEvent, event_of
from strandline.outbox.sessions import run_all, statement_on, then
from strandline.outbox.tables import (
    DEFAULT_TABLE,
    EMIT_SQL,
    POSTGRESQL,
    insert_sql,
    outbox_ddl,
    outbox_drop_ddl,
)

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    AsyncTransaction = AsyncSession | AsyncConnection | psycopg.AsyncConnection[Any] | psycopg.AsyncCursor[Any]

Key = str | bytes | int | UUID | None
BASE64_FIELD: Final = "payload_base64"
"""In a message: the payload, if it is no UTF-8."""


@overload
def add(
    session: AsyncTransaction,
    topic: str,
    key: Key,
    event: Any,
    *,
    headers: Mapping[str, str] | None = ...,
    event_type: str | None = ...,
    id: UUID | str | None = ...,
    table: str = ...,
) -> Awaitable[UUID]: ...


@overload
def add(
    session: Any,
    topic: str,
    key: Key,
    event: Any,
    *,
    headers: Mapping[str, str] | None = ...,
    event_type: str | None = ...,
    id: UUID | str | None = ...,
    table: str = ...,
) -> UUID: ...


def add(
    session: Any,
    topic: str,
    key: Key,
    event: Any,
    *,
    headers: Mapping[str, str] | None = None,
    event_type: str | None = None,
    id: UUID | str | None = None,
    table: str = DEFAULT_TABLE,
) -> Any:
    """Add an event in the caller's transaction: it reaches the topic if that commits. Return the event's id.

    session     of SQLAlchemy, psycopg, Django (None: the default connection) or sqlite3. `await` it for async ones
    event       dict, list, dataclass or pydantic model: written as JSON. str and bytes: as they are. None: a tombstone
    headers     of the record, beside `id` and `eventType`
    id          of the event, if it has one; an id that the table has is refused by the database

    Events of one key arrive in the order in which they were added. Raise EventInvalid if it could not be sent.
    """
    row = event_of(topic, key, event, headers, event_type, id)
    on = statement_on(session)
    parameters = row._asdict()
    parameters["id"] = str(row.id)
    # Changed rows are locked before the event gets its place, so events of a row are in the order of its changes.
    result = on.run_flushed(insert_sql(on.dialect, table), parameters)
    return then(result, on.kind.is_async, lambda _: row.id)


def emit(
    session: Any,
    topic: str,
    key: Key,
    event: Any,
    *,
    headers: Mapping[str, str] | None = None,
    event_type: str | None = None,
    id: UUID | str | None = None,
) -> Any:
    """Add an event without a table: as a message in PostgreSQL's log, which change data capture reads.

    It is like `add`, except that a relay that polls does not see it. Nothing is left to delete or to vacuum.
    """
    row = event_of(topic, key, event, headers, event_type, id)
    on = statement_on(session)
    if on.dialect != POSTGRESQL:
        raise ValueError(f"events without a table need PostgreSQL, and this is {on.dialect}: use outbox.add")
    result = on.run_flushed(EMIT_SQL, {"content": message_content(row)})
    return then(result, on.kind.is_async, lambda _: row.id)


def message_content(row: OutboxEvent) -> str:
    """Return the content of a message that stands for a row: a JSON object with the columns' names."""
    content: dict[str, Any] = row._asdict() | {"id": str(row.id)}
    if row.payload is not None:
        try:
            content["payload"] = row.payload.decode()
        except UnicodeDecodeError:
            content["payload"] = None
            content[BASE64_FIELD] = base64.b64encode(row.payload).decode()
    return json.dumps(content, ensure_ascii=False)


def create(session: Any, *, table: str = DEFAULT_TABLE, notify: bool = True, commit_order: bool = False) -> Any:
    """Create the table if it is missing, in the caller's transaction; `await` it for async sessions."""
    return run_all(session, lambda name: outbox_ddl(name, table=table, notify=notify, commit_order=commit_order))


def upgrade(op: Any, *, table: str = DEFAULT_TABLE, notify: bool = True, commit_order: bool = False) -> None:
    """Create the table in a migration of Alembic, whose `op` is given. It also works offline (`--sql`)."""
    dialect = op.get_context().dialect.name
    for each in outbox_ddl(dialect, table=table, notify=notify, commit_order=commit_order):
        op.execute(each)


def downgrade(op: Any, *, table: str = DEFAULT_TABLE) -> None:
    """Drop the table in a migration of Alembic."""
    for each in outbox_drop_ddl(op.get_context().dialect.name, table=table):
        op.execute(each)
