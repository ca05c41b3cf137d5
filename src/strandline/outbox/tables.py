"""The tables of outbox and inbox, for PostgreSQL and SQLite. The columns of the outbox:

    seq             order of the rows; never used twice
    id              of the event; header `id` of its record
    aggregatetype   topic
    aggregateid     key; null for none
    type            header `eventType`, if it is not empty
    payload         value; null is a tombstone
    headers         JSON object of texts
    created_at      when it was added; timestamp of the record
    sent_at         when the relay sent it, if it marks rows instead of deleting them
    failed          why the relay could not send it

The columns id, aggregatetype, aggregateid, type and payload are those of Debezium's outbox event router. With
`route.topic.replacement=${routedByValue}` it writes to the same topics.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

DEFAULT_TABLE: Final = "outbox"
DEFAULT_INBOX: Final = "inbox"
CHANNEL: Final = "strandline_outbox"
"""Of NOTIFY; the payload is not looked at, because the relay reads its table anyway."""
MESSAGE_PREFIX: Final = "outbox"
"""Of messages in PostgreSQL's log that stand for rows."""
POSTGRESQL: Final = "postgresql"
SQLITE: Final = "sqlite"


class QualifiedTable(NamedTuple):
    """A table, with its schema if one was given."""

    schema: str
    name: str

    @classmethod
    def of(cls, text: str) -> QualifiedTable:
        """Return the table of `name` or `schema.name`. Raise ValueError for what cannot be one."""
        schema, dot, name = text.rpartition(".")
        if not name or "\0" in text or (dot and not schema):
            raise ValueError(f"{text!r} is no name of a table: say name, or schema.name")
        return cls(schema, name)

    @property
    def quoted(self) -> str:
        return self.beside(self.name)

    def beside(self, name: str) -> str:
        """Return another name in the same schema, quoted."""
        return f"{quoted(self.schema)}.{quoted(name)}" if self.schema else quoted(name)


def quoted(name: str) -> str:
    """Return an identifier in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def known_dialect(dialect: str) -> str:
    """Return `postgresql` or `sqlite`. Raise ValueError for a database that has no outbox yet."""
    name = dialect.partition("+")[0].lower()
    name = {"postgres": POSTGRESQL, "sqlite3": SQLITE}.get(name, name)
    if name not in (POSTGRESQL, SQLITE):
        raise ValueError(f"outbox and inbox have no tables for {dialect}: PostgreSQL and SQLite are known")
    return name


def outbox_ddl(
    dialect: str = POSTGRESQL, *, table: str = DEFAULT_TABLE, notify: bool = True, commit_order: bool = False
) -> list[str]:
    """Return the statements that create the table. They change nothing if it exists.

    notify          PostgreSQL: each insert wakes the relay when it is committed. Commits that notify wait for each
                    other, so a busy database may rather have the relay poll
    commit_order    PostgreSQL: rows get their place when the transaction commits, not when they are added. Only needed
                    where events are added before the row that they are about is locked
    """
    name = QualifiedTable.of(table)
    if known_dialect(dialect) == SQLITE:
        if commit_order:
            raise ValueError("SQLite has one writer at a time: rows are in the order of commits without commit_order")
        return _sqlite_ddl(name)
    return _postgresql_ddl(name, notify=notify, commit_order=commit_order)


def outbox_drop_ddl(dialect: str = POSTGRESQL, *, table: str = DEFAULT_TABLE) -> list[str]:
    """Return the statements that drop the table."""
    name = QualifiedTable.of(table)
    statements = [f"DROP TABLE IF EXISTS {name.quoted}"]
    if known_dialect(dialect) == POSTGRESQL:
        statements += [
            f"DROP FUNCTION IF EXISTS {name.beside(f'{name.name}_{each}')}()" for each in ("notify", "order")
        ]
    return statements


def _postgresql_ddl(table: QualifiedTable, *, notify: bool, commit_order: bool) -> list[str]:
    statements = [
        f"""CREATE TABLE IF NOT EXISTS {table.quoted} (
    seq bigint GENERATED ALWAYS AS IDENTITY,
    id uuid PRIMARY KEY,
    aggregatetype varchar(255) NOT NULL,
    aggregateid varchar(255),
    type varchar(255) NOT NULL DEFAULT '',
    payload bytea,
    headers text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at timestamptz,
    failed text
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000)""",
        f"CREATE INDEX IF NOT EXISTS {quoted(f'{table.name}_pending')} ON {table.quoted} (seq) "
        "WHERE sent_at IS NULL AND failed IS NULL",
    ]
    if notify:
        function = table.beside(f"{table.name}_notify")
        statements += [
            f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$BEGIN PERFORM pg_notify('{CHANNEL}', ''); RETURN NULL; END$$",
            f"CREATE OR REPLACE TRIGGER {quoted(f'{table.name}_notify')} AFTER INSERT ON {table.quoted} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {function}()",
        ]
    if commit_order:
        function, trigger = table.beside(f"{table.name}_order"), quoted(f"{table.name}_order")
        statements += [
            f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$BEGIN UPDATE {table.quoted} SET seq = DEFAULT WHERE id = NEW.id; RETURN NULL; END$$",
            f"DROP TRIGGER IF EXISTS {trigger} ON {table.quoted}",
            f"CREATE CONSTRAINT TRIGGER {trigger} AFTER INSERT ON {table.quoted} "
            f"DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {function}()",
        ]
    return statements


def _sqlite_ddl(table: QualifiedTable) -> list[str]:
    return [
        f"""CREATE TABLE IF NOT EXISTS {table.quoted} (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    aggregatetype TEXT NOT NULL,
    aggregateid TEXT,
    type TEXT NOT NULL DEFAULT '',
    payload BLOB,
    headers TEXT,
    created_at REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400),
    sent_at REAL,
    failed TEXT
)""",
        f"CREATE INDEX IF NOT EXISTS {table.beside(f'{table.name}_pending')} ON {quoted(table.name)} (seq) "
        "WHERE sent_at IS NULL AND failed IS NULL",
    ]


def inbox_ddl(dialect: str = POSTGRESQL, *, table: str = DEFAULT_INBOX) -> list[str]:
    """Return the statements that create the table. They change nothing if it exists."""
    name = QualifiedTable.of(table)
    if known_dialect(dialect) == SQLITE:
        return [
            f"""CREATE TABLE IF NOT EXISTS {name.quoted} (
    consumer TEXT NOT NULL,
    message_id TEXT NOT NULL,
    processed_at REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400),
    PRIMARY KEY (consumer, message_id)
) WITHOUT ROWID""",
            f"CREATE INDEX IF NOT EXISTS {name.beside(f'{name.name}_age')} ON {quoted(name.name)} (processed_at)",
        ]
    return [
        f"""CREATE TABLE IF NOT EXISTS {name.quoted} (
    consumer varchar(255) NOT NULL,
    message_id varchar(512) NOT NULL,
    processed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, message_id)
)""",
        # Rows come in the order of their age, so a few pages of BRIN find the old ones, and inserts pay nothing.
        f"CREATE INDEX IF NOT EXISTS {quoted(f'{name.name}_age')} ON {name.quoted} USING brin (processed_at) "
        "WITH (pages_per_range = 16)",
    ]


@lru_cache(256)
def insert_sql(dialect: str, table: str) -> str:
    """Return the statement that adds a row, with `:name` for parameters."""
    identifier = "CAST(:id AS uuid)" if known_dialect(dialect) == POSTGRESQL else ":id"
    return (
        f"INSERT INTO {QualifiedTable.of(table).quoted} (id, aggregatetype, aggregateid, type, payload, headers) "
        f"VALUES ({identifier}, :aggregatetype, :aggregateid, :type, :payload, :headers)"
    )


EMIT_SQL: Final = f"SELECT pg_logical_emit_message(true, '{MESSAGE_PREFIX}', CAST(:content AS text))"
