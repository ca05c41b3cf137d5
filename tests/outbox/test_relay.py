"""The relay: every committed event once, in the order of its key, whatever commits late, is invalid, or stands by."""

from __future__ import annotations

import random
import sqlite3
import threading
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from tests.outbox.relays import by_key, messages_of, relaying, values_of, wait_until

from strandline import EmbeddedBroker, outbox
from strandline.connect.failures import ConnectFailed
from strandline.outbox.postgres_database import PostgresOutbox
from strandline.outbox.relay import OutboxRelay, RelaySettings


def test_events_arrive_with_key_headers_and_time(postgres: str, broker: EmbeddedBroker) -> None:
    broker.create_topic("arrive", 1)
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
        first = outbox.add(connection, "arrive", "käse", {"n": 1}, headers={"trace": "übung"}, event_type="Made")
        outbox.add(connection, "arrive", None, None)
        connection.execute("UPDATE outbox SET created_at = now() + interval '3 days' WHERE payload IS NULL")
    with relaying(postgres, broker.bootstrap) as relay:
        wait_until(lambda: relay.counts.sent == 2, "both are sent")
        with psycopg.connect(postgres) as connection:
            wait_until(lambda: connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,), "rows are deleted")
    made, tombstone = messages_of(broker.bootstrap, "arrive")
    assert (made.key().decode(), made.value()) == ("käse", b'{"n":1}')
    assert dict(made.headers()) == {"id": str(first).encode(), "eventType": b"Made", "trace": "übung".encode()}
    assert (tombstone.key(), tombstone.value()) == (None, None)
    # A clock that jumped ahead gives no timestamp that brokers refuse.
    assert tombstone.timestamp()[1] < made.timestamp()[1] + 86_400_000


def test_a_transaction_that_commits_late_is_sent_late_and_not_lost(postgres: str, broker: EmbeddedBroker) -> None:
    broker.create_topic("late", 1)
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
    with (
        relaying(postgres, broker.bootstrap) as relay,
        psycopg.connect(postgres) as early,
        psycopg.connect(postgres) as late,
    ):
        outbox.add(late, "late", "k", "k:2")
        outbox.add(early, "late", "k", "k:1")
        early.commit()
        wait_until(lambda: relay.counts.sent == 1, "the second row is sent")
        late.commit()
        wait_until(lambda: relay.counts.sent == 2, "the first row is sent")
    assert values_of(broker.bootstrap, "late") == ["k:1", "k:2"]


def test_with_commit_order_rows_follow_the_locks_of_their_transactions(postgres: str, broker: EmbeddedBroker) -> None:
    broker.create_topic("locks", 1)
    with psycopg.connect(postgres) as connection:
        outbox.create(connection, commit_order=True)
        outbox.create(connection, commit_order=True)
    with psycopg.connect(postgres) as slow, psycopg.connect(postgres) as quick:
        outbox.add(slow, "locks", "k", "k:2")
        outbox.add(quick, "locks", "k", "k:0")
        outbox.add(quick, "locks", "k", "k:1")
        quick.commit()
        slow.commit()
    with relaying(postgres, broker.bootstrap) as relay:
        wait_until(lambda: relay.counts.sent == 3, "all are sent")
    assert values_of(broker.bootstrap, "locks") == ["k:0", "k:1", "k:2"]


def test_of_two_relays_one_works_and_the_other_takes_over(postgres: str, broker: EmbeddedBroker) -> None:
    broker.create_topic("pair", 3)
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
    stop = threading.Event()
    written = [0]

    def write() -> None:
        with psycopg.connect(postgres) as connection:
            while not stop.is_set():
                for _ in range(5):
                    number = written[0]
                    outbox.add(connection, "pair", f"k{number % 7}", f"k{number % 7}:{number}")
                    written[0] += 1
                connection.commit()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with relaying(postgres, broker.bootstrap, batch_rows=20) as second:
            with relaying(postgres, broker.bootstrap, batch_rows=20) as first:
                wait_until(lambda: first.counts.sent + second.counts.sent > 300, "rows are sent")
                assert not (first.is_active.is_set() and second.is_active.is_set())
                assert not min(first.counts.sent, second.counts.sent), "they do not take turns"
                active = first if first.is_active.is_set() else second
                other = second if active is first else first
                active.stop()
                wait_until(lambda: other.counts.sent > 100, "the other one goes on")
            stop.set()
            writer.join()
            with psycopg.connect(postgres, autocommit=True) as connection:
                if other is second:
                    wait_until(lambda: connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,), "the end")
    finally:
        stop.set()
        writer.join()
    if other is first:
        with relaying(postgres, broker.bootstrap), psycopg.connect(postgres, autocommit=True) as connection:
            wait_until(lambda: connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,), "the end")
    found = by_key(values_of(broker.bootstrap, "pair", 3))
    assert sum(len(each) for each in found.values()) == written[0]
    for numbers in found.values():
        assert numbers == sorted(set(numbers))


BAD_ROWS = {
    "topic": ("no topic!", None, b"x"),
    "headers": ("bad", "[1]", b"x"),
    "no JSON": ("bad", "{", b"x"),
    "size": ("bad", None, b"x" * 1_000_001),
}


def insert(connection: psycopg.Connection, number: int, topic: str, headers: str | None, payload: bytes) -> None:
    connection.execute(
        "INSERT INTO outbox (id, aggregatetype, aggregateid, headers, payload) VALUES (%s, %s, 'k', %s, %s)",
        [UUID(int=number), topic, headers, payload],
    )


@pytest.mark.parametrize("kind", BAD_ROWS)
def test_a_row_that_is_not_valid_stops_the_relay_or_is_parked(postgres: str, broker: EmbeddedBroker, kind: str) -> None:
    topic = f"bad-{kind.replace(' ', '')}"
    broker.create_topic(topic, 1)
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
        outbox.add(connection, topic, "k", "k:1")
        insert(connection, 7, *BAD_ROWS[kind])
        outbox.add(connection, topic, "k", "k:2")
    with pytest.raises(ConnectFailed, match=r"00000000-0000-0000-0000-000000000007.*cannot be sent"):
        OutboxRelay(postgres, broker.bootstrap).run()
    assert values_of(broker.bootstrap, topic) == ["k:1"]
    with relaying(postgres, broker.bootstrap, invalid="park") as relay:
        wait_until(lambda: relay.counts.sent == 1, "the row behind it is sent")
    assert values_of(broker.bootstrap, topic) == ["k:1", "k:2"]
    with psycopg.connect(postgres) as connection:
        ((why,),) = connection.execute("SELECT failed FROM outbox").fetchall()
    assert "cannot be sent" in why


def test_a_row_that_its_topic_does_not_take_is_named_or_parked(postgres: str, broker: EmbeddedBroker) -> None:
    broker.create_topic("narrow", 1, max_message_bytes=2000)
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
        outbox.add(connection, "narrow", "k", "k:1")
        large = outbox.add(connection, "narrow", "k", random.Random(27).randbytes(5000))
        outbox.add(connection, "narrow", "k", "k:2")
    with pytest.raises(ConnectFailed, match=rf"{large}.*cannot be sent: topic narrow does not take it"):
        OutboxRelay(postgres, broker.bootstrap).run()
    assert values_of(broker.bootstrap, "narrow") == ["k:1"]
    with relaying(postgres, broker.bootstrap, invalid="park") as relay:
        wait_until(lambda: relay.counts.sent == 1, "the row behind it is sent")
    assert relay.counts.parked == 1
    assert values_of(broker.bootstrap, "narrow") == ["k:1", "k:2"]


def test_rows_can_be_marked_instead_of_deleted(postgres: str, broker: EmbeddedBroker) -> None:
    broker.create_topic("marked", 1)
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
        outbox.add(connection, "marked", "k", "k:1")
    for _ in range(2):
        with relaying(postgres, broker.bootstrap, after="mark") as relay, psycopg.connect(postgres) as connection:
            assert relay.is_active.wait(60)
            connection.autocommit = True
            wait_until(
                lambda: connection.execute("SELECT count(sent_at) FROM outbox").fetchone() == (1,), "the row is marked"
            )
    assert values_of(broker.bootstrap, "marked") == ["k:1"]


def test_a_table_with_an_odd_name_in_a_schema_works(postgres: str, broker: EmbeddedBroker) -> None:
    broker.create_topic("odd", 1)
    table = 'söme schema.Out"box; --'
    with psycopg.connect(postgres) as connection:
        connection.execute('CREATE SCHEMA "söme schema"')
        outbox.create(connection, table=table)
        outbox.add(connection, "odd", "k", "k:1", table=table)
    with relaying(postgres, broker.bootstrap, table=table) as relay:
        wait_until(lambda: relay.counts.sent == 1, "it is sent")
    assert values_of(broker.bootstrap, "odd") == ["k:1"]


def test_a_sqlite_file_has_an_outbox_too(tmp_path: Path, broker: EmbeddedBroker) -> None:
    broker.create_topic("lite", 1)
    connection = sqlite3.connect(tmp_path / "shop.db")
    outbox.create(connection)
    outbox.add(connection, "lite", "k", "k:1")
    connection.commit()
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with relaying(url, broker.bootstrap) as relay:
        wait_until(lambda: relay.counts.sent == 1, "the first is sent")
        outbox.add(connection, "lite", "k", "k:2")
        connection.commit()
        wait_until(lambda: relay.counts.sent == 2, "the second is sent")
        with relaying(url, broker.bootstrap) as standby:
            assert not standby.is_active.wait(0.3)
    assert values_of(broker.bootstrap, "lite") == ["k:1", "k:2"]
    assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
    connection.close()


ODD_VALUES = {
    "id": "('no uuid', 'TOPIC', 'k', '', 'x')",
    "an id in upper case": "('0000000A-0000-0000-0000-000000000007', 'TOPIC', 'k', '', 'x')",
    "an id of bytes": "(x'00ff', 'TOPIC', 'k', '', 'x')",
    "a key that is no text": "('00000000-0000-0000-0000-000000000007', 'TOPIC', CAST(x'ff' AS TEXT), '', 'x')",
    "a type that is no text": "('00000000-0000-0000-0000-000000000007', 'TOPIC', 'k', x'fe', 'x')",
    "a topic": "('00000000-0000-0000-0000-000000000007', 'no topic!', 'k', '', 'x')",
}


@pytest.mark.parametrize("kind", ODD_VALUES)
def test_a_row_of_sqlite_that_is_not_valid_stops_the_relay_or_is_parked(
    tmp_path: Path, broker: EmbeddedBroker, kind: str
) -> None:
    topic = f"odd-{list(ODD_VALUES).index(kind)}"
    broker.create_topic(topic, 1)
    connection = sqlite3.connect(tmp_path / "shop.db")
    outbox.create(connection)
    outbox.add(connection, topic, "k", "k:1")
    columns = "(id, aggregatetype, aggregateid, type, payload)"
    connection.execute(f"INSERT INTO outbox {columns} VALUES {ODD_VALUES[kind]}".replace("TOPIC", topic))
    outbox.add(connection, topic, "k", "k:2")
    connection.commit()
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with pytest.raises(ConnectFailed, match=r"seq 2\) cannot be sent"):
        OutboxRelay(url, broker.bootstrap).run()
    relay = OutboxRelay(url, broker.bootstrap, RelaySettings(invalid="park"))
    relay.run_once()
    assert (relay.counts.sent, relay.counts.parked) == (1, 1)
    assert values_of(broker.bootstrap, topic) == ["k:1", "k:2"]
    ((why,),) = connection.execute("SELECT failed FROM outbox").fetchall()
    assert "cannot be sent" in why
    connection.close()


def test_a_time_that_never_comes_does_not_stop_the_relay(postgres: str, broker: EmbeddedBroker) -> None:
    broker.create_topic("infinite", 1)
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
        for number in range(2):
            outbox.add(connection, "infinite", "k", f"k:{number}")
        connection.execute(
            "UPDATE outbox SET created_at = CASE seq % 2 WHEN 0 THEN 'infinity' ELSE '-infinity' END::timestamptz"
        )
    OutboxRelay(postgres, broker.bootstrap).run_once()
    assert values_of(broker.bootstrap, "infinite") == ["k:0", "k:1"]


@pytest.mark.parametrize("has_table", [False, True])
def test_a_missing_table_or_a_role_without_rights_is_named(
    postgres: str, broker: EmbeddedBroker, has_table: bool
) -> None:
    dsn = postgres
    if has_table:
        with psycopg.connect(postgres) as connection:
            outbox.create(connection)
            role = f"plain_{connection.info.dbname}"
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        dsn = postgres.replace("user=postgres", f"user={role}")
    match = "may not use outbox.*grant SELECT" if has_table else "no table outbox: create it"
    with pytest.raises(ConnectFailed, match=match):
        OutboxRelay(dsn, broker.bootstrap).run()


def test_a_table_that_was_made_again_is_moved_by_one_relay(postgres: str, broker: EmbeddedBroker) -> None:
    broker.create_topic("replaced", 1)

    def add(numbers: range) -> None:
        for number in numbers:
            with psycopg.connect(postgres) as connection:
                outbox.add(connection, "replaced", "k", f"k:{number}")

    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
    with relaying(postgres, broker.bootstrap) as first:
        wait_until(first.is_active.is_set, "it works")
        with psycopg.connect(postgres) as connection:
            connection.execute("DROP TABLE outbox")
            outbox.create(connection)
        with relaying(postgres, broker.bootstrap) as second:
            # It takes the lock of the new table; the first one has that of the table before.
            wait_until(second.is_active.is_set, "the second works")
            add(range(20))
            wait_until(lambda: len(values_of(broker.bootstrap, "replaced")) >= 20, "they are sent")
            wait_until(lambda: not first.is_active.is_set(), "the first gives up")
            assert first.counts.sent == 0
    assert values_of(broker.bootstrap, "replaced") == [f"k:{number}" for number in range(20)]


def test_a_relay_by_another_name_of_the_table_finishes_what_was_begun(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
    identities = set()
    for name in ("outbox", "public.outbox", "events"):
        if name == "events":
            with psycopg.connect(postgres) as connection:
                connection.execute("ALTER TABLE outbox RENAME TO events")
        database = PostgresOutbox(postgres, name)
        database.open()
        identities.add(database.identity)
        database.close()
    assert len(identities) == 1


def test_a_type_that_was_changed_does_not_end_the_relay(postgres: str, broker: EmbeddedBroker) -> None:
    broker.create_topic("altered", 1)
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
    with relaying(postgres, broker.bootstrap) as relay:
        for number in range(8):
            # psycopg prepares a statement when it is executed the sixth time.
            with psycopg.connect(postgres) as connection:
                outbox.add(connection, "altered", "k", f"k:{number}")
            wait_until(lambda: relay.counts.sent > number, "it is sent")  # noqa: B023
        with psycopg.connect(postgres) as connection:
            connection.execute("ALTER TABLE outbox ALTER aggregateid TYPE text")
            outbox.add(connection, "altered", "k", "k:8")
        wait_until(lambda: relay.counts.sent == 9, "it goes on")


def test_settings_of_a_relay_are_checked() -> None:
    with pytest.raises(ValueError, match="batch_rows"):
        RelaySettings(batch_rows=0)
    with pytest.raises(ConnectFailed, match="not mysql"):
        OutboxRelay("mysql://localhost/x", "localhost:1").run()
