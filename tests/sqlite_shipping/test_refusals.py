"""Bad input is named in one sentence, with what to do; no file and no record is left behind."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.sqlite_shipping.driving import (
    Writer,
    file_of,
    make_database,
    new_topic,
    newest_transaction,
    records_of,
    remove_database,
    restored,
    run_command,
    ship_once,
    shipping,
    topic_of,
    wait_until,
)

from strandline.sqlite.database import FollowedDatabase
from strandline.sqlite.failures import MomentGone, ShippingFailed
from strandline.sqlite.restoring import plan, restore


def create(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(name, partitions, config=settings)])[name].result(30)


def test_files_that_cannot_be_followed(tmp_path: Path) -> None:
    with pytest.raises(ShippingFailed, match="there is no database"):
        FollowedDatabase(tmp_path / "none.db")
    text = tmp_path / "text.db"
    text.write_text("no database at all")
    with pytest.raises(ShippingFailed, match="is not a SQLite database"):
        FollowedDatabase(text)
    plain = tmp_path / "plain.db"
    with closing(sqlite3.connect(plain)) as connection:
        connection.execute("CREATE TABLE t (v)")
    with pytest.raises(ShippingFailed, match=r"journal_mode delete.*--set-wal"):
        FollowedDatabase(plain)
    with FollowedDatabase(plain, set_wal=True) as database:
        assert database.page_bytes == 4096
    with pytest.raises(ShippingFailed, match="directory"):
        FollowedDatabase(tmp_path)


def test_topics_that_cannot_be_used(bootstrap: str) -> None:
    several, compacted = new_topic(), new_topic()
    create(bootstrap, several, 3)
    create(bootstrap, compacted, cleanup_policy="compact")
    with pytest.raises(ShippingFailed, match="has 3 partitions"):
        topic_of(bootstrap, several).check()
    with pytest.raises(ShippingFailed, match="is compacted"):
        topic_of(bootstrap, compacted).check()
    with pytest.raises(ShippingFailed, match="there is no topic"):
        topic_of(bootstrap, new_topic()).check()


def test_a_topic_with_other_records_is_refused(bootstrap: str, tmp_path: Path) -> None:
    database, name = make_database(tmp_path / "a.db"), new_topic()
    create(bootstrap, name)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, b"hello")
    producer.flush(30)
    ended = run_command(bootstrap, "ship", str(database), "--topic", name, "--once")
    assert ended.returncode == 1
    assert f"offset 0 of topic {name} is a record that `strandline sqlite ship` did not write" in ended.stderr
    with pytest.raises(ShippingFailed, match="did not write"):
        plan(topic_of(bootstrap, name))


def test_another_database_is_not_shipped_into_the_topic(bootstrap: str, tmp_path: Path) -> None:
    one, other, name = make_database(tmp_path / "a.db"), make_database(tmp_path / "b.db"), new_topic()
    ship_once(bootstrap, one, name)
    ended = run_command(bootstrap, "ship", str(other), "--topic", name, "--once")
    assert ended.returncode == 1
    assert f"holds the database {one}" in ended.stderr
    with Writer(other) as writer:
        writer.insert(3)
    assert "has changed" in ship_once(bootstrap, other, name, replaces=True)
    assert restored(topic_of(bootstrap, name), tmp_path)[0] == file_of(other, tmp_path)


def test_a_second_shipper_fences_the_first(bootstrap: str, tmp_path: Path) -> None:
    database, name = make_database(tmp_path / "a.db"), new_topic()
    with Writer(database) as writer, shipping(bootstrap, database, name) as first:
        ship_once(bootstrap, database, name)
        writer.insert(3)
        assert first.wait() == 1
        assert f"another shipper writes to topic {name} now" in first.log.read_text()
        assert "FATAL" not in first.log.read_text(), "librdkafka's own line"
        ship_once(bootstrap, database, name)
        expected = file_of(database, tmp_path)
    topic = topic_of(bootstrap, name)
    assert restored(topic, tmp_path)[0] == expected
    assert newest_transaction(topic) == 1


def test_a_file_that_is_replaced_or_deleted_ends_the_shipper(bootstrap: str, tmp_path: Path) -> None:
    database, name = make_database(tmp_path / "a.db"), new_topic()
    with shipping(bootstrap, database, name) as shipper:
        make_database(tmp_path / "b.db")
        os.replace(tmp_path / "b.db", database)
        assert shipper.wait() == 1
        assert "was replaced by another file" in shipper.log.read_text()
    remove_database(database)
    make_database(database)
    with shipping(bootstrap, database, name) as shipper:
        database.unlink()
        assert shipper.wait() == 1
        assert "was deleted while it was followed" in shipper.log.read_text()


def test_restores_refuse_what_they_cannot_do(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database, name = make_database(tmp_path / "a.db"), new_topic()
    before_ms = int(time.time() * 1000) - 1000
    ship_once(bootstrap, database, name)
    topic = topic_of(bootstrap, name)
    out = tmp_path / "out.db"
    with pytest.raises(MomentGone, match=r"the oldest is of 20.*at offset 0"):
        plan(topic, to_ms=before_ms)
    out.write_text("mine")
    with pytest.raises(ShippingFailed, match="exists and is not overwritten"):
        restore(topic, plan(topic), out)
    assert out.read_text() == "mine"
    out.unlink()
    Path(f"{out}-wal").write_text("an old WAL")
    with pytest.raises(ShippingFailed, match=r"out\.db-wal exists"):
        restore(topic, plan(topic), out)
    Path(f"{out}-wal").unlink()
    full = Path("/dev/full")
    if full.exists():
        opened = os.open(full, os.O_RDWR)
        monkeypatch.setattr(os, "open", lambda *_: opened)
        monkeypatch.setattr(os, "ftruncate", lambda *_: None)
        with pytest.raises(ShippingFailed, match="is full: make room"):
            restore(topic, plan(topic), out)
    assert not out.exists()


def test_what_retention_deleted_is_named_and_shipped_again(bootstrap: str, tmp_path: Path) -> None:
    database, name = make_database(tmp_path / "a.db"), new_topic()
    topic = topic_of(bootstrap, name)
    with Writer(database) as writer:
        ship_once(bootstrap, database, name)
        writer.insert(3)
        ship_once(bootstrap, database, name)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        place = TopicPartition(name, 0, 1)
        admin.delete_records([place])[place].result(30)
        with pytest.raises(MomentGone, match="holds no whole snapshot"):
            plan(topic, to_ms=int(time.time() * 1000))
        assert "retention has deleted the last snapshot" in ship_once(bootstrap, database, name)
        expected = file_of(database, tmp_path)
    assert restored(topic, tmp_path)[0] == expected


def test_snapshots_are_repeated_and_shown(bootstrap: str, tmp_path: Path) -> None:
    database, name = make_database(tmp_path / "a.db"), new_topic()
    topic = topic_of(bootstrap, name)
    with Writer(database) as writer, shipping(bootstrap, database, name, "--snapshot-interval", "300ms"):

        def snapshots() -> int:
            return sum(each.header.kind == "snapshot" for each in records_of(topic))

        # What the first snapshot has is no transaction of its own.
        wait_until(lambda: snapshots() >= 1, "the first snapshot")
        before = snapshots()
        writer.insert(3)
        wait_until(lambda: snapshots() >= before + 2, "snapshots are repeated")
        expected = file_of(database, tmp_path)
    assert len({each.header.state.generation for each in records_of(topic)}) == 1
    shown = run_command(bootstrap, "status", "--topic", name, "--json")
    assert shown.returncode == 0, shown.stderr
    status = json.loads(shown.stdout)
    assert status["transaction"] == 1
    assert len(status["snapshots"]) >= 3
    out = tmp_path / "out.db"
    done = run_command(bootstrap, "restore", str(out), "--topic", name, "--check", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["transaction"] == 1
    assert out.read_bytes() == expected
    wrong = run_command(bootstrap, "restore", str(out), "--topic", name, "--to", "17")
    assert wrong.returncode == 2
    assert "is no time" in wrong.stderr
