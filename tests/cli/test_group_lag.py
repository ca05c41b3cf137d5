"""`strandline group lag` as a user has it: figures, verdicts, limits for scripts, and watching."""

from __future__ import annotations

import json
import os
import signal
import uuid
from typing import Any

import pytest
from tests.cli.conftest import CommandLine
from tests.clients.broker import BROKER_PROPERTIES
from tests.clients.client import until
from tests.clients.positions import commit, write

from strandline.cli.group import lag_counts
from strandline.testing import embedded

HOUR_MS = 3_600_000


@pytest.fixture
def group(topic: str) -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def stopped(bootstrap: str, topic: str, group: str) -> str:
    """A group that nobody reads for, with six records unread that are two hours old."""
    write(bootstrap, topic, 10, age_ms=2 * HOUR_MS)
    commit(bootstrap, group, topic, 4)
    return group


def only(objects: list[Any]) -> dict[str, Any]:
    assert len(objects) == 1
    found: dict[str, Any] = objects[0]
    return found


def test_a_group_that_nobody_reads_for(cli: CommandLine, stopped: str, topic: str) -> None:
    found = only(cli.ok("group", "lag", stopped, "--window", "0", "--json").objects)
    assert (found["topic"], found["partition"], found["committed_offset"], found["high_watermark"]) == (topic, 0, 4, 10)
    assert (found["lag"], found["lag_is_exact"], found["verdict"]) == (6, True, "stopped")
    assert found["lag_seconds"] >= 7200
    assert found["loses_data"] is True
    assert found["seconds_to_loss"] + found["lag_seconds"] == pytest.approx(7 * 86_400, abs=5)
    assert not found["consumed_per_second"]
    assert found["member_id"] is None


def test_it_is_said_to_people(cli: CommandLine, stopped: str, topic: str) -> None:
    lines = cli.ok("group", "lag", stopped, "--window", "0").lines
    assert lines[0] == f"group     {stopped}"
    assert lines[1] == "state     Empty, 0 members"
    assert lines[2] == f"verdict   stopped: {topic}-0: 6 records unread, and no member reads the partition"
    row = lines[-1].split()
    assert row[:5] == [topic, "0", "4", "10", "6"]
    assert "2 h" in lines[-1]
    assert "6 d 2" in lines[-1]
    assert lines[-1].endswith("stopped")


def test_all_groups_one_line_each(cli: CommandLine, stopped: str, topic: str) -> None:
    lines = cli.ok("group", "lag", "--topic", topic, "--window", "0").lines
    row = next(line for line in lines if line.startswith(stopped)).split()
    assert row[:4] == [stopped, "Empty", "0", "6"]
    assert row[-2:] == ["stopped", f"{topic}-0"]


def test_a_limit_that_holds_is_silent(cli: CommandLine, stopped: str) -> None:
    assert cli.run("group", "lag", stopped, "--max-lag", "6", "--max-seconds", "8000").status == 0


def test_a_limit_in_records(cli: CommandLine, stopped: str, topic: str) -> None:
    ended = cli.run("group", "lag", stopped, "--max-lag", "5")
    assert ended.status == 5
    assert f"group '{stopped}' is too far behind: {topic}-0 has 6 records unread, and 5 are allowed" in ended.stderr
    assert ended.lines, "what was found is shown all the same"


def test_a_limit_in_seconds(cli: CommandLine, bootstrap: str, stopped: str, topic: str) -> None:
    write(bootstrap, topic, 1, age_ms=HOUR_MS, partition=1)
    commit(bootstrap, stopped, topic, 0, partition=1)
    ended = cli.run("group", "lag", stopped, "--max-seconds", "60")
    assert ended.status == 5
    assert f"{topic}-0 is 2 h behind, and 1 min are allowed; so is 1 other partition" in ended.stderr


def test_a_group_that_does_not_exist(cli: CommandLine, stopped: str) -> None:
    ended = cli.run("group", "lag", stopped + "x")
    assert ended.status == 3
    assert f"did you mean '{stopped}'" in ended.stderr


def test_a_topic_that_does_not_exist(cli: CommandLine, stopped: str) -> None:
    assert cli.run("group", "lag", stopped, "--topic", "nowhere").status == 3


def test_offsets_of_a_compacted_topic_may_be_no_records(cli: CommandLine, bootstrap: str, group: str) -> None:
    name = f"compacted-{uuid.uuid4().hex[:8]}"
    cli.ok("topic", "create", name, "-c", "cleanup.policy=compact", "-c", "retention.ms=1000")
    write(bootstrap, name, 10, age_ms=HOUR_MS, key=b"k")
    commit(bootstrap, group, name, 4)
    found = only(cli.ok("group", "lag", group, "--window", "0", "--json").objects)
    # Of another cluster's topic nobody knows how many of its offsets are still records.
    is_counted = "STRANDLINE_TEST_BOOTSTRAP" not in os.environ
    assert (found["lag"], found["lag_is_exact"]) == (6, is_counted)
    assert found["loses_data"] is False, "time deletes nothing of a topic that is only compacted"
    assert (" 6 " if is_counted else " ~6 ") in cli.ok("group", "lag", group, "--window", "0").lines[-1]


def test_a_cluster_that_does_not_count_is_told_of(
    cli: CommandLine, bootstrap: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`group describe` says in words that it counts offsets, where some of them may be no records."""
    name = f"compacted-{uuid.uuid4().hex[:8]}"
    cli.ok("topic", "create", name, "-c", "cleanup.policy=compact")
    write(bootstrap, name, 10, key=b"k")
    commit(bootstrap, group, name, 4)
    monkeypatch.setattr(lag_counts, "is_spoken", lambda cluster: False)
    (told,) = cli.ok("group", "describe", group, "--json").objects
    assert [(each["lag"], each["lag_is_exact"]) for each in told["offsets"]] == [(6, False)]
    lines = cli.ok("group", "describe", group).lines
    assert any(line.split()[:5] == [name, "0", "4", "10", "~6"] for line in lines)
    assert any(line.startswith("~ counts offsets") for line in lines)


def test_what_was_deleted_unread(cli: CommandLine, stopped: str, topic: str) -> None:
    cli.ok("topic", "trim", topic, "--before", "7", "--partition", "0", "--yes")
    found = only(cli.ok("group", "lag", stopped, "--window", "0", "--json").objects)
    assert (found["lost_records"], found["lag"], found["verdict"]) == (3, 3, "lost data")
    assert "already lost 3 records" in cli.ok("group", "lag", stopped, "--window", "0").lines[-1]
    assert cli.run("group", "lag", stopped, "--max-lag", "5").status == 5, "lost records were not read either"


def test_a_position_beyond_the_end(cli: CommandLine, bootstrap: str, group: str, topic: str) -> None:
    write(bootstrap, topic, 3)
    commit(bootstrap, group, topic, 40)
    found = only(cli.ok("group", "lag", group, "--window", "0", "--json").objects)
    assert (found["lag"], found["verdict"]) == (0, "beyond the end")


def test_a_loss_that_is_near(cli: CommandLine, bootstrap: str, group: str) -> None:
    name = f"brief-{uuid.uuid4().hex[:8]}"
    cli.ok("topic", "create", name, "-c", f"retention.ms={3 * HOUR_MS}")
    write(bootstrap, name, 10, age_ms=2 * HOUR_MS)
    commit(bootstrap, group, name, 4)
    found = only(cli.ok("group", "lag", group, "--window", "0", "--json").objects)
    assert found["verdict"] == "will lose data"
    assert 0 < found["seconds_to_loss"] <= 3600


def test_a_group_that_reads(cli: CommandLine, bootstrap: str, group: str, topic: str) -> None:
    """A member that reads between the two looks is seen to do so; partitions without a commit say so."""
    from confluent_kafka import Consumer, TopicPartition

    write(bootstrap, topic, 1_000, age_ms=60_000)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    until("read something", lambda: bool(consumer.consume(10, 1)))
    consumer.commit(offsets=[TopicPartition(topic, 0, 100)], asynchronous=False)
    watching = cli.start("group", "lag", group, "--watch", "--every", "0.5", "--json")
    assert watching.stdout is not None
    try:
        first = [json.loads(watching.stdout.readline()) for _ in range(3)]
        assert [each["verdict"] for each in first] == ["behind", "no position", "no position"]
        assert first[0]["client_id"] == "reader"
        consumer.commit(offsets=[TopicPartition(topic, 0, 900)], asynchronous=False)
        seen: list[dict[str, Any]] = []

        def gained() -> bool:
            seen.append(json.loads(watching.stdout.readline()))  # type: ignore[union-attr]
            return seen[-1]["partition"] == 0 and bool(seen[-1]["consumed_per_second"])

        until("a rate", gained)
        assert seen[-1]["verdict"] == "catching up"
        assert seen[-1]["lag"] == 100
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0
    finally:
        watching.kill()
        watching.communicate()
        consumer.close()


def test_a_window_makes_rates_of_two_looks(cli: CommandLine, stopped: str) -> None:
    found = only(cli.ok("group", "lag", stopped, "--window", "1.2", "--json").objects)
    assert found["window_seconds"] >= 1.2
    assert (found["consumed_per_second"], found["produced_per_second"]) == (0, 0)


def test_a_group_that_is_caught_up_is_told_at_once(cli: CommandLine, bootstrap: str, group: str, topic: str) -> None:
    write(bootstrap, topic, 5)
    commit(bootstrap, group, topic, 5)
    ended = cli.ok("group", "lag", group)
    assert "verdict   ok: caught up" in ended.lines


def test_a_group_without_positions(cli: CommandLine, stopped: str, bootstrap: str) -> None:
    name = f"other-{uuid.uuid4().hex[:8]}"
    cli.ok("topic", "create", name)
    assert "verdict   no positions: nothing was read" in cli.ok("group", "lag", stopped, "--topic", name).lines


@pytest.mark.slow
def test_a_node_that_looked_before_spares_the_waiting() -> None:
    """Two looks of the node make rates, though the command looks once."""
    properties = BROKER_PROPERTIES | {"group.lag.interval.ms": "100"}
    with embedded(properties=properties) as broker:
        cli = CommandLine(broker.bootstrap)
        broker.create_topic("orders")
        write(broker.bootstrap, "orders", 10, age_ms=HOUR_MS)
        commit(broker.bootstrap, "audit", "orders", 4)
        found: list[dict[str, Any]] = []

        def has_rates() -> bool:
            found.append(only(cli.ok("group", "lag", "audit", "--window", "0", "--json").objects))
            return found[-1]["consumed_per_second"] is not None

        until("rates", has_rates)
        assert found[-1]["window_seconds"] >= 1
        assert (found[-1]["verdict"], found[-1]["produced_per_second"]) == ("stopped", 0)
