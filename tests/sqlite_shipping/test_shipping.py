"""A database that is shipped and restored is equal, page by page, at each moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sqlite_shipping.driving import (
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


def test_restores_to_each_moment_are_equal_to_copies_made_then(bootstrap: str, tmp_path: Path) -> None:
    database, name = make_database(tmp_path / "a db?ü.db"), new_topic()
    topic = topic_of(bootstrap, name)
    copies = []
    with Writer(database) as writer, shipping(bootstrap, database, name, "--checkpoint-pages", "40"):
        steps: list[Callable[[], object]] = [
            lambda: writer.insert(10),
            lambda: writer.insert(600, 3000),
            lambda: writer.run("BEGIN", "DELETE FROM t WHERE id % 2", "ROLLBACK", "INSERT INTO t (v) VALUES ('x')"),
            lambda: writer.run("PRAGMA cache_size = 5", "BEGIN", "UPDATE t SET v = randomblob(4000)", "COMMIT"),
            lambda: writer.run("DELETE FROM t WHERE id > 100"),
            lambda: writer.run("VACUUM"),
            lambda: writer.run("PRAGMA wal_checkpoint(FULL)", "CREATE INDEX i ON t (v)"),
            lambda: writer.run("DROP TABLE t"),
        ]
        for step in steps:
            before = newest_transaction(topic)
            step()
            wait_until(lambda: newest_transaction(topic) > before, "the transaction is shipped")  # noqa: B023
            copies.append((int(time.time() * 1000), newest_transaction(topic), file_of(database, tmp_path)))
            time.sleep(0.002)
    for at_ms, transaction, expected in copies:
        content, found = restored(topic, tmp_path, to_ms=at_ms)
        assert found.state.transaction == transaction
        assert content == expected
    last = records_of(topic)[-1].offset
    assert restored(topic, tmp_path, to_offset=last)[0] == restored(topic, tmp_path)[0] == copies[-1][2]


@pytest.mark.parametrize("page_bytes", [512, 65536])
def test_pages_of_each_size(bootstrap: str, tmp_path: Path, page_bytes: int) -> None:
    database, name = make_database(tmp_path / "a.db", page_bytes), new_topic()
    topic = topic_of(bootstrap, name)
    with Writer(database) as writer:
        writer.insert(300)
        with shipping(bootstrap, database, name):
            at = newest_transaction(topic)
            writer.insert(200, 10_000)
            wait_until(lambda: newest_transaction(topic) > at, "the transaction is shipped")
        expected = file_of(database, tmp_path)
    content, found = restored(topic, tmp_path)
    assert content == expected
    assert found.state.page_bytes == page_bytes


def test_a_clean_end_is_continued_without_a_snapshot(bootstrap: str, tmp_path: Path) -> None:
    database, name = make_database(tmp_path / "a.db"), new_topic()
    assert "the topic is empty" in ship_once(bootstrap, database, name)
    assert "continue behind transaction 0" in ship_once(bootstrap, database, name)
    with Writer(database) as writer:
        writer.insert(5)
        assert "continue behind transaction 0" in ship_once(bootstrap, database, name)
        writer.insert(5)
        assert "continue behind transaction 1" in ship_once(bootstrap, database, name)
        # A checkpoint and the begin of a new WAL leave the shipped pages in the file.
        writer.run("PRAGMA wal_checkpoint(TRUNCATE)")
        writer.insert(5)
        assert "continue behind transaction 2" in ship_once(bootstrap, database, name)
        expected = file_of(database, tmp_path)
    topic = topic_of(bootstrap, name)
    assert restored(topic, tmp_path)[0] == expected
    assert [each.header.kind for each in records_of(topic)] == ["snapshot", "transaction", "transaction", "transaction"]


def test_a_wal_that_was_begun_again_meanwhile_makes_a_new_generation(bootstrap: str, tmp_path: Path) -> None:
    database, name = make_database(tmp_path / "a.db"), new_topic()
    topic = topic_of(bootstrap, name)
    with Writer(database) as writer:
        writer.insert(5)
        ship_once(bootstrap, database, name)
        first = file_of(database, tmp_path)
        at = records_of(topic)[-1].offset
        writer.insert(5)
        writer.run("PRAGMA wal_checkpoint(TRUNCATE)")
        writer.insert(5)
        assert "the database has changed while it was not followed" in ship_once(bootstrap, database, name)
        expected = file_of(database, tmp_path)
    assert restored(topic, tmp_path)[0] == expected
    assert restored(topic, tmp_path, to_offset=at)[0] == first
    assert len({each.header.state.generation for each in records_of(topic)}) == 2
