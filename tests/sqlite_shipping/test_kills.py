"""A shipper that is killed at any point loses and doubles no transaction, while a writer goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.sqlite_shipping.driving import (
    ROOT,
    Shipping,
    Writer,
    file_of,
    make_database,
    new_topic,
    newest_transaction,
    records_of,
    restored,
    ship_once,
    shipping,
    topic_of,
    wait_until,
)

from strandline.runtime.fault_points import SQLITE_POINTS
from strandline.sqlite.records import TRANSACTION, ShippedHeader
from strandline.sqlite.topic import ShippedTopic


def check_sequence(topic: ShippedTopic) -> None:
    """Each transaction is there once, in order; a new generation goes on with the count of the one before."""
    before: ShippedHeader | None = None
    for record in records_of(topic):
        header = record.header
        if header.kind == TRANSACTION:
            number = header.state.transaction + (not header.is_last)
            assert before is not None
            if before.is_last:
                assert (number, header.part) == (before.state.transaction + 1, 0)
            else:
                assert (number, header.part) == (before.state.transaction + 1, before.part + 1)
        before = header


def kill_at(point: str, bootstrap: str, tmp_path: Path) -> None:
    database, name = make_database(tmp_path / "a.db"), new_topic()
    topic = topic_of(bootstrap, name)
    fault = tmp_path / "fault"
    with Writer(database) as writer:
        writer.insert(500, 4000)
        shipper = Shipping(
            bootstrap, database, name, "--checkpoint-pages", "20", STRANDLINE_FAULT=f"{point}:kill:{fault}"
        )

        def is_killed() -> bool:
            writer.insert(3, 3000)
            return shipper.process.poll() is not None

        wait_until(is_killed, f"the shipper reaches {point}")
        assert shipper.wait() == -9, shipper.log.read_text()
        writer.insert(7, 3000)
        ship_once(bootstrap, database, name)
        check_sequence(topic)
        expected = file_of(database, tmp_path)
    assert restored(topic, tmp_path)[0] == expected


@pytest.mark.parametrize("point", ["sqlite-part-written", "sqlite-after-commit"])
def test_a_shipper_that_is_killed_is_continued(bootstrap: str, tmp_path: Path, point: str) -> None:
    kill_at(point, bootstrap, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("point", SQLITE_POINTS)
def test_a_shipper_that_is_killed_at_any_point_is_continued(bootstrap: str, tmp_path: Path, point: str) -> None:
    kill_at(point, bootstrap, tmp_path)


@pytest.mark.slow
def test_kills_at_random_moments_beside_a_writer_that_never_stops(bootstrap: str, tmp_path: Path) -> None:
    database, name = make_database(tmp_path / "a.db"), new_topic()
    topic = topic_of(bootstrap, name)
    busy = subprocess.Popen(
        [sys.executable, "-m", "tests.sqlite_shipping.busy_writer", str(database), "0.001"],
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
    )
    try:
        for _ in range(6):
            with shipping(bootstrap, database, name, "--checkpoint-pages", "50"):
                at = newest_transaction(topic)
                wait_until(lambda: newest_transaction(topic) > at + 20, "transactions are shipped")  # noqa: B023
            check_sequence(topic)
    finally:
        busy.kill()
        busy.wait()
    # While the shipper was away the writer's own checkpoints may have begun the WAL again.
    ship_once(bootstrap, database, name)
    check_sequence(topic)
    assert restored(topic, tmp_path)[0] == file_of(database, tmp_path)


@pytest.mark.slow
def test_a_wal_is_begun_again_although_a_writer_never_pauses(bootstrap: str, tmp_path: Path) -> None:
    database, name = make_database(tmp_path / "a.db"), new_topic()
    topic = topic_of(bootstrap, name)
    with shipping(bootstrap, database, name, "--checkpoint-pages", "20"):
        busy = subprocess.Popen(
            [sys.executable, "-m", "tests.sqlite_shipping.busy_writer", str(database), "0"],
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
        )
        try:
            wait_until(
                lambda: len({each.header.state.salts for each in records_of(topic)}) >= 4, "the WAL was begun again"
            )
        finally:
            busy.kill()
            busy.wait()
        with Writer(database) as writer:
            writer.insert(1)
            at = newest_transaction(topic)
            writer.insert(1)
            wait_until(lambda: newest_transaction(topic) > at, "everything is shipped")
            wait_until(lambda: restored(topic, tmp_path)[0] == file_of(database, tmp_path), "the file is equal")
    check_sequence(topic)
    assert len({each.header.state.generation for each in records_of(topic)}) == 1


@pytest.mark.slow
def test_a_transaction_of_many_records_that_is_cut_off_is_never_restored_in_part(
    bootstrap: str, tmp_path: Path
) -> None:
    database, name = make_database(tmp_path / "a.db"), new_topic()
    topic = topic_of(bootstrap, name)
    with Writer(database) as writer:
        ship_once(bootstrap, database, name)
        before = file_of(database, tmp_path)
        writer.run("PRAGMA wal_autocheckpoint = 0")
        writer.insert(10_000, 4000)
        shipper = Shipping(bootstrap, database, name, STRANDLINE_FAULT=f"sqlite-after-commit:kill:{tmp_path / 'fault'}")
        assert shipper.wait() == -9
        assert not records_of(topic)[-1].header.is_last
        assert restored(topic, tmp_path)[0] == before
        assert "the last transaction is not whole" in ship_once(bootstrap, database, name)
        expected = file_of(database, tmp_path)
    assert restored(topic, tmp_path)[0] == expected
