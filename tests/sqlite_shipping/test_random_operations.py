"""Random operations on a database: what is restored equals the file, behind every transaction."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sqlite_shipping.driving import file_of, make_database, new_topic, records_of, restored, topic_of

from strandline.sqlite.database import FollowedDatabase
from strandline.sqlite.shipper import DatabaseShipper, ShipSettings
from strandline.sqlite.topic import ShippingProducer

WRITES_SOUND_WALS = sqlite3.sqlite_version_info >= (3, 50, 2)
"""Before, frames behind a ROLLBACK TO in a transaction beyond the cache have wrong checksums, and copies lose them."""
OPERATIONS = st.one_of(
    st.tuples(st.just("insert"), st.integers(1, 60), st.integers(1, 9000)),
    st.tuples(st.just("delete"), st.integers(2, 5), st.just(0)),
    st.tuples(st.just("update"), st.integers(1, 5), st.integers(1, 5000)),
    st.tuples(st.just("rollback"), st.integers(1, 60), st.integers(1, 9000)),
    st.tuples(st.just("savepoint" if WRITES_SOUND_WALS else "insert"), st.integers(1, 60), st.integers(1, 9000)),
    st.tuples(
        st.sampled_from(["vacuum", "checkpoint", "incremental", "ship", "again", "read", "unread"]),
        st.just(0),
        st.just(0),
    ),
)


class Desk:
    """A writer, a reader and a shipper of one database."""

    def __init__(self, stack: ExitStack, bootstrap: str, place: Path, page_bytes: int) -> None:
        self.path, self.topic = place / "a.db", topic_of(bootstrap, new_topic())
        with sqlite3.connect(self.path) as first:
            first.execute(f"PRAGMA page_size = {page_bytes}")
            first.execute("PRAGMA auto_vacuum = incremental")
        first.close()
        make_database(self.path, page_bytes)
        self._client = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._stack = stack
        self._database = stack.enter_context(FollowedDatabase(self.path))
        self._writer = self._connect()
        self._writer.execute("PRAGMA cache_size = 10")
        self._writer.execute("PRAGMA wal_autocheckpoint = 30")
        self._reader = self._connect()
        self.topic.check(create=True)
        self._start()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None)
        self._stack.callback(connection.close)
        return connection

    def _start(self) -> None:
        producer = ShippingProducer(self._client, self.topic.name)
        self._stack.callback(producer.close)
        self.shipper = DatabaseShipper(
            self._database, self.topic, producer, ShipSettings(checkpoint_pages=25), lambda _: None
        )
        self.shipper.start(30)

    def run(self, kind: str, number: int, size: int) -> None:
        run = self._writer.execute
        filling = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {number})"
        insert = f"INSERT INTO t (v) {filling} SELECT randomblob({size}) FROM n"
        match kind:
            case "insert":
                run(insert)
            case "delete":
                run(f"DELETE FROM t WHERE id % {number} = 0")
            case "update":
                run(f"UPDATE t SET v = randomblob({size}) WHERE id % {number} = 0")
            case "rollback":
                for each in ("BEGIN", insert, "ROLLBACK"):
                    run(each)
            case "savepoint":
                for each in ("BEGIN", "INSERT INTO t (v) VALUES (1)", "SAVEPOINT s", insert, "ROLLBACK TO s", "COMMIT"):
                    run(each)
            case "vacuum":
                self.end_read()
                run("VACUUM")
            case "checkpoint":
                run("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            case "incremental":
                run("PRAGMA incremental_vacuum(3)").fetchall()
            case "ship":
                self.shipper.follow(once=True)
            case "again":
                self._start()
            case "read" if not self._reader.in_transaction:
                self._reader.execute("BEGIN")
                self._reader.execute("SELECT count(*) FROM t").fetchone()
            case "unread":
                self.end_read()

    def end_read(self) -> None:
        if self._reader.in_transaction:
            self._reader.execute("ROLLBACK")


def check(bootstrap: str, operations: list[tuple[str, int, int]], page_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        place = Path(name)
        desk = Desk(stack, bootstrap, place, page_bytes)
        copies: dict[int, bytes] = {}
        for operation in operations:
            desk.run(*operation)
            if operation[0] in ("ship", "again"):
                desk.shipper.follow(once=True)
                copies[desk.topic.bounds()[1]] = file_of(desk.path, place)
        desk.shipper.follow(once=True)
        copies[desk.topic.bounds()[1]] = file_of(desk.path, place)
        # The read transactions never let go of frames that are not shipped, so one snapshot is enough.
        assert [each.header.kind for each in records_of(desk.topic)].count("snapshot") == 1
        for end, expected in copies.items():
            assert restored(desk.topic, place, to_offset=end - 1)[0] == expected


def test_fixed_operations_are_restored(bootstrap: str) -> None:
    steps = "insert ship read insert again delete ship unread update ship vacuum rollback ship checkpoint"
    check(bootstrap, [(each, 20, 3000) for each in [*steps.split(), "insert", "ship", "incremental"]], 1024)


def test_a_wal_with_wrong_checksums_is_shipped_as_a_snapshot(bootstrap: str) -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        desk = Desk(stack, bootstrap, Path(name), 512)
        for operation in (("savepoint", 17, 3531), ("ship", 0, 0), ("insert", 3, 100), ("ship", 0, 0)):
            desk.run(*operation)
        out = Path(name) / "out.db"
        out.write_bytes(restored(desk.topic, Path(name))[0])
        with closing(sqlite3.connect(out)) as connection:
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (4,)
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = [each.header.kind for each in records_of(desk.topic)]
        assert found.count("snapshot") == (1 if WRITES_SOUND_WALS else 2)
        assert found[-1] == "transaction"


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(OPERATIONS, min_size=3, max_size=25), st.sampled_from([512, 1024, 4096, 65536]))
def test_random_operations_are_restored(bootstrap: str, operations: list[tuple[str, int, int]], page: int) -> None:
    check(bootstrap, operations, page)
