"""kill -9 of the relay at each step, while a writer goes on: every event once, in the order of its key."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.outbox.relays import RelayProcess, by_key, relaying, values_of, wait_until

from strandline import EmbeddedBroker, outbox
from strandline.runtime.fault_points import OUTBOX_POINTS


@contextmanager
def writing(database: str, topic: str, limit: int) -> Iterator[list[int]]:
    """Add events in small transactions, every third of which rolls back; yield how many there are."""
    written, stop = [0], threading.Event()

    def write() -> None:
        with psycopg.connect(database) as connection:
            for turn in range(limit):
                if stop.is_set():
                    return
                for number in range(written[0], written[0] + 3):
                    outbox.add(connection, topic, f"k{number % 5}", f"k{number % 5}:{number}")
                if turn % 3 == 2:
                    connection.rollback()
                else:
                    connection.commit()
                    written[0] += 3
                stop.wait(0.002)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield written
    finally:
        stop.set()
        thread.join()


def check_all(database: str, broker: EmbeddedBroker, topic: str, written: int) -> None:
    """Have a relay send the rest, and check what arrived."""
    with relaying(database, broker.bootstrap), psycopg.connect(database, autocommit=True) as connection:
        wait_until(lambda: connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,), "all rows are sent")
    found = by_key(values_of(broker.bootstrap, topic, 2))
    assert sum(len(each) for each in found.values()) == written
    for numbers in found.values():
        assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("point", ["outbox-sent", "outbox-committed"])
def test_a_relay_killed_around_its_commit_sends_each_event_once(
    postgres: str, broker: EmbeddedBroker, tmp_path: Path, point: str
) -> None:
    broker.create_topic(point, 2)
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
    with writing(postgres, point, 200) as written:
        RelayProcess(postgres, broker.bootstrap, point, tmp_path / "mark").wait_killed()
    check_all(postgres, broker, point, written[0])


@pytest.mark.slow
def test_relays_killed_at_each_point_with_a_standby_send_each_event_once(
    postgres: str, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    broker.create_topic("kills", 2)
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
    with writing(postgres, "kills", 1_000_000) as written:
        for turn in range(2):
            for point in OUTBOX_POINTS:
                mark = tmp_path / f"{point}-{turn}"
                relays = [RelayProcess(postgres, broker.bootstrap, point, mark) for _ in range(2)]
                wait_until(lambda: any(each.process.poll() is not None for each in relays), point)  # noqa: B023
                for each in relays:
                    each.kill()
    check_all(postgres, broker, "kills", written[0])


@pytest.mark.slow
def test_a_relay_that_lost_its_session_cannot_commit_beside_its_successor(
    postgres: str, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """The database drops the session of a relay that is stopped before its commit; another one takes over."""
    import os
    import signal
    import subprocess
    import sys

    from strandline.runtime.fault_points import VARIABLE

    broker.create_topic("zombie", 2)
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
        for number in range(30):
            outbox.add(connection, "zombie", f"k{number % 5}", f"k{number % 5}:{number}")
    mark = tmp_path / "mark"
    zombie = subprocess.Popen(
        [sys.executable, "-m", "tests.outbox.relays", postgres, broker.bootstrap],
        env=dict(os.environ) | {VARIABLE: f"outbox-sent:pause:{mark}"},
    )
    try:
        wait_until(mark.exists, "it pauses before its commit")
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
        check_all(postgres, broker, "zombie", 30)
        Path(f"{mark}.go").touch()
        # It is fenced, waits, and begins anew when it has the lock.
        with psycopg.connect(postgres) as connection:
            outbox.add(connection, "zombie", "k0", "k0:30")
        with psycopg.connect(postgres, autocommit=True) as connection:
            wait_until(lambda: connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,), "it goes on")
    finally:
        zombie.send_signal(signal.SIGKILL)
        zombie.wait()
    found = by_key(values_of(broker.bootstrap, "zombie", 2))
    assert sorted(number for each in found.values() for number in each) == list(range(31))
