"""A writer that never stops, over two tables, and a third one in which triggers keep what was changed, in order."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psycopg

TABLES = ("a", "b")
PREPARE = (
    "create sequence ids",
    "create table audit (n bigserial primary key, xid bigint, name text, op text, old int, id int, v int)",
    """
    create function audited() returns trigger language plpgsql as $$ begin
        insert into audit (xid, name, op, old, id, v) values (
            pg_current_xact_id()::text::bigint & 4294967295, tg_table_name, lower(left(tg_op, 1)),
            case when tg_op <> 'INSERT' then old.id end, case when tg_op <> 'DELETE' then new.id end,
            case when tg_op <> 'DELETE' then new.v end);
        return null;
    end $$
    """,
    *(f"create table {each} (id int primary key, v int not null)" for each in TABLES),
    *(
        f"create trigger audited after insert or update or delete on {each} for each row execute function audited()"
        for each in TABLES
    ),
    *(f"insert into {each} select nextval('ids'), 0 from generate_series(1, 1500)" for each in TABLES),
)
_STATEMENTS = (
    "insert into {name} select nextval('ids'), {v} from generate_series(1, 2)",
    "update {name} set v = {v} where id in (select id from {name} order by random() limit 2)",
    "update {name} set id = nextval('ids') where id = (select id from {name} order by random() limit 1)",
    "delete from {name} where id = (select id from {name} order by random() limit 1)",
)


class Audited(NamedTuple):
    """An event that the log must have."""

    xid: int
    op: str
    id: int
    v: int | None


class AuditedWriter:
    """Writes without a pause; a server that is away is waited for."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.transactions = 0

    def __enter__(self) -> AuditedWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            # It is killed while a commit is on its way, too: the audit then tells whether it was done.
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self._dsn) as connection:
                while not self._is_over.wait(0.03):
                    self._write(connection)
            self._is_over.wait(0.05)

    def _write(self, connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            for each in random.choices(_STATEMENTS, k=random.randint(2, 4)):
                statement = each.format(name=random.choice(TABLES), v=random.randint(1, 10**6))
                connection.execute(statement.encode())
        self.transactions += 1


class Audit:
    """What a database has had, once its writer has ended."""

    def __init__(self, dsn: str) -> None:
        with psycopg.connect(dsn) as connection:
            rows = connection.execute("select name, xid, op, old, id, v from audit order by n").fetchall()
            self.tables = {name: dict(_rows(connection, name)) for name in TABLES}
        self.events: dict[str, list[Audited]] = {name: [] for name in TABLES}
        for name, *rest in rows:
            self.events[name] += _events(*rest)

    def counts(self, name: str) -> Counter[int]:
        """Return how many events each transaction has in a table."""
        return Counter(each.xid for each in self.events[name])


def _rows(connection: psycopg.Connection[Any], name: str) -> Sequence[tuple[int, int]]:
    return connection.execute(f"select id, v from {name}".encode()).fetchall()


def _events(xid: int, op: str, old: int | None, new: int | None, v: int | None) -> Iterator[Audited]:
    if op == "i":
        assert new is not None
        yield Audited(xid, "c", new, v)
    elif op == "u" and old == new:
        assert new is not None
        yield Audited(xid, "u", new, v)
    else:
        assert old is not None
        yield Audited(xid, "d", old, None)
        if new is not None:
            yield Audited(xid, "c", new, v)
