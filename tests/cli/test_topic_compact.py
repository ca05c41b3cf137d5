"""`strandline topic compact`: what the cleaner does and when, to have it done now, and what is said when it cannot."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import CommandLine
from tests.cli.test_topic_scrub import flip
from tests.cli.test_topic_storage import MIB, fill, stored
from tests.clients.broker import existing_bootstrap
from tests.clients.client import until
from tests.crash.filesystems import small_tmpfs, why_not_mountable

from strandline.testing import embedded

pytestmark = pytest.mark.skipif(existing_bootstrap() is not None, reason="only our brokers clean when told to")

NO_MOUNT = why_not_mountable(loop=False)
TABLE = ("-c", "cleanup.policy=compact", "-c", "segment.bytes=1048576")


@pytest.fixture
def table(cli: CommandLine) -> str:
    """A compacted topic."""
    name = f"table-{uuid.uuid4().hex[:8]}"
    cli.ok("topic", "create", name, *TABLE)
    return name


def put(cli: CommandLine, topic: str, *rows: str) -> None:
    cli.ok("produce", topic, "-K", "=", stdin="".join(f"{row}\n" for row in rows).encode())


def rows(cli: CommandLine, topic: str) -> list[tuple[int, str, str | None]]:
    found = cli.ok("consume", topic, "--from", "earliest", "--json").objects
    return [(record["offset"], record["key"], record["value"]) for record in found]


def compaction(cli: CommandLine, topic: str) -> dict[str, Any]:
    (log,) = stored(cli, topic)
    found: dict[str, Any] = log["compaction"]
    return found


# What is done


def test_only_the_last_record_of_each_key_stays_at_its_offset(cli: CommandLine, table: str) -> None:
    put(cli, table, "apple=1", "pear=1", "apple=2", "pear=2", "fig=1", "apple=3")
    (done,) = cli.ok("topic", "compact", table, "--now", "--json").objects
    assert (done["error"], done["records_before"], done["records_after"], done["clean_up_to"]) == (None, 6, 3, 6)
    assert 0 < done["bytes_after"] < done["bytes_before"]
    assert rows(cli, table) == [(3, "pear", "2"), (4, "fig", "1"), (5, "apple", "3")]
    put(cli, table, "fig=2")
    assert rows(cli, table)[-1] == (6, "fig", "2")
    (again,) = cli.ok("topic", "compact", table, "--now").lines
    assert again.startswith(f"compacted {table}-0 on broker 1: ")
    assert again.endswith(", 4 records became 3")
    assert rows(cli, table) == [(3, "pear", "2"), (5, "apple", "3"), (6, "fig", "2")]
    nothing = cli.ok("topic", "compact", table, "--now").lines
    assert nothing == [f"compacted {table}-0 on broker 1: there was nothing to clean"]


def test_what_is_seen_of_it_before_and_after(cli: CommandLine, table: str) -> None:
    put(cli, table, "apple=1", "apple=2")
    (plan,) = cli.ok("topic", "compact", table).lines
    assert plan.startswith(
        f"{table}-0 on broker 1: nothing may be cleaned yet: offsets 0–1 are in the active segment, "
    )
    assert "which rolls at 1 MiB, or with the first record after " in plan
    fill(cli.bootstrap or "", table, 1.5)
    (told,) = cli.ok("topic", "compact", table, "--json").objects
    if told["state"] == "idle" and not told["clean_up_to"]:
        # Else the cleaner, which looks every 15 s, was there first.
        assert told["dirty_ratio"] == 1.0
        assert "may be cleaned now" in told["words"]
    cli.ok("topic", "compact", table, "--now")
    found = compaction(cli, table)
    assert (found["state"], found["dirty_ratio"], found["words"]) == (
        "idle",
        0.0,
        "nothing to clean: all of it is clean",
    )
    assert found["cleaned_bytes_before"] > found["cleaned_bytes_after"]
    lines = cli.ok("topic", "describe", table, "--storage").lines
    assert any(line.startswith("  cleaned     ") and " became " in line for line in lines)
    assert [segment["state"] for segment in stored(cli, table)[0]["segments"]][-1] == "active"
    assert {segment["state"] for segment in stored(cli, table)[0]["segments"][:-1]} == {"clean"}


def test_an_open_transaction_is_left_alone_and_named(cli: CommandLine, table: str) -> None:
    from confluent_kafka import Producer

    put(cli, table, "apple=1", "apple=2")
    producer = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": table})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(table, key="apple", value="3")
    producer.flush(30)
    (done,) = cli.ok("topic", "compact", table, "--now", "--json").objects
    assert done["clean_up_to"] == 0
    words = compaction(cli, table)["words"]
    assert "wait for a transaction that is open since offset 2 " in words
    assert f"`strandline txn why {table}`" in words
    producer.commit_transaction(30)
    until("the marker", lambda: stored(cli, table)[0]["last_stable_offset"] == 4)
    cli.ok("topic", "compact", table, "--now")
    assert rows(cli, table) == [(2, "apple", "3")]


@pytest.mark.slow
def test_whoever_does_not_wait_stops_nothing() -> None:
    slow = {"log.cleaner.io.max.bytes.per.second": "4000000"}
    with embedded(properties=slow) as broker:
        cli = CommandLine(broker.bootstrap)
        cli.ok("topic", "create", "prices", *TABLE)
        for _ in range(4):
            fill(broker.bootstrap, "prices", 1.5)
        impatient = cli.run("topic", "compact", "prices", "--now", "--wait", "0.5")
        assert impatient.status == 4
        assert "broker 1 was not done after 0.5 s, and goes on" in impatient.stderr
        assert compaction(cli, "prices")["words"].startswith("it is being cleaned")
        waiting = cli.start("topic", "compact", "prices", "--now")
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == b"compacting 1 replica of prices; Ctrl-C leaves it to the brokers\n"
        waiting.send_signal(signal.SIGINT)
        _, errors = waiting.communicate(timeout=30)
        assert (waiting.returncode, b"Traceback" in errors) == (130, False)
        cli.ok("config", "set", "--broker", "1", "log.cleaner.io.max.bytes.per.second=100000000", "--yes")
        until("it is done all the same", lambda: compaction(cli, "prices")["dirty_ratio"] == 0.0)
        assert len(rows(cli, "prices")) == 15


# What cannot be


def test_a_record_without_a_key_is_refused_and_the_way_out_told(cli: CommandLine, table: str) -> None:
    ended = cli.run("produce", table, stdin=b"no key\n")
    assert ended.status == 1
    assert "a compacted topic takes no record without a key" in ended.stderr


def test_records_without_a_key_from_before_the_topic_was_compacted_are_counted(cli: CommandLine) -> None:
    topic = f"table-{uuid.uuid4().hex[:8]}"
    cli.ok("topic", "create", topic)
    cli.ok("produce", topic, stdin=b"a\nb\n")
    cli.ok("topic", "alter", topic, "-c", "cleanup.policy=compact", "--yes")
    put(cli, topic, "apple=1")
    (line,) = cli.ok("topic", "compact", topic, "--now").lines
    assert line.endswith(", 3 records became 1; 2 records without a key removed")
    assert rows(cli, topic) == [(2, "apple", "1")]


def test_a_topic_that_is_not_compacted(cli: CommandLine, topic: str) -> None:
    for arguments in ([], ["--now"]):
        ended = cli.run("topic", "compact", topic, *arguments)
        assert ended.status == 1
        assert f"'{topic}' is not compacted: its cleanup.policy is delete" in ended.stderr
        assert f"strandline config set --topic {topic} cleanup.policy=compact" in ended.stderr


def test_what_is_named_must_exist(cli: CommandLine, table: str) -> None:
    assert cli.run("topic", "compact", f"{table}-typo").status == 3
    missing = cli.run("topic", "compact", table, "-p", "2", "--now")
    assert (missing.status, "has no partition 2" in missing.stderr) == (3, True)


def test_a_buffer_that_is_too_small_is_refused_when_it_is_set(cli: CommandLine) -> None:
    ended = cli.run("config", "set", "--broker", "1", "log.cleaner.dedupe.buffer.size=1000", "--yes")
    assert ended.status == 1
    assert "log.cleaner.dedupe.buffer.size=1000 is not allowed" in ended.stderr


@pytest.mark.slow
def test_a_cleaner_that_is_off() -> None:
    with embedded(properties={"log.cleaner.enable": "false"}) as broker:
        cli = CommandLine(broker.bootstrap)
        cli.ok("topic", "create", "prices", *TABLE)
        put(cli, "prices", "apple=1")
        ended = cli.run("topic", "compact", "prices", "--now")
        assert ended.status == 1
        assert "prices-0 on broker 1 was not compacted: the cleaner is off: log.cleaner.enable=false" in ended.stderr
        assert compaction(cli, "prices")["words"] == "the cleaner is off: log.cleaner.enable=false"
        told = [found for found in cli.run("doctor", "--json").objects if found["check"] == "cleaning"]
        assert [found["level"] for found in told] == ["warning"]


@pytest.mark.slow
def test_damage_sets_a_log_aside_and_the_others_go_on(tmp_path: Path) -> None:
    with embedded(data=tmp_path / "data") as broker:
        cli = CommandLine(broker.bootstrap)
        for name in ("prices", "users"):
            cli.ok("topic", "create", name, *TABLE)
            fill(broker.bootstrap, name, 2.5)
        broker.stop()
        flip(tmp_path / "data" / "prices-0" / "00000000000000000000.log", 250_000)
        broker.start()
        ended = cli.run("topic", "compact", "prices", "--now")
        assert ended.status == 1
        assert "prices-0 on broker 1 was not compacted: " in ended.stderr
        assert "nothing was lost" in ended.stderr
        found = compaction(cli, "prices")
        assert found["state"] == "set aside"
        assert found["reason"] in ended.stderr
        assert found["words"].startswith(f"cleaning is set aside: {found['reason']}; it is tried again in ")
        told = [found for found in cli.run("doctor", "--json").objects if found["check"] == "cleaning"]
        assert [found["level"] for found in told] == ["problem"]
        assert told[0]["text"].startswith("compaction of prices-0 on broker 1 is set aside: ")
        assert "25 records became 25" in cli.ok("topic", "compact", "users", "--now").lines[0]


@pytest.mark.slow
@pytest.mark.skipif(bool(NO_MOUNT), reason=NO_MOUNT)
def test_a_full_disk_sets_a_log_aside_until_there_is_room(tmp_path: Path) -> None:
    with small_tmpfs(tmp_path, size_mb=24) as disk, embedded(data=disk / "data") as broker:
        cli = CommandLine(broker.bootstrap)
        cli.ok("topic", "create", "prices", *TABLE)
        fill(broker.bootstrap, "prices", 5)
        ballast = disk / "ballast"
        room = os.statvfs(disk)
        ballast.write_bytes(b"x" * (room.f_bavail * room.f_frsize - MIB))
        ended = cli.run("topic", "compact", "prices", "--now")
        assert ended.status == 1
        assert "No space left on device" in ended.stderr
        assert "No space left on device" in compaction(cli, "prices")["reason"]
        ballast.unlink()
        cli.ok("topic", "compact", "prices", "--now")
        assert compaction(cli, "prices")["state"] == "idle"
