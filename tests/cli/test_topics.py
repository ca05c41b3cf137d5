"""`strandline topic ...` against a broker."""

from __future__ import annotations

import uuid

from tests.cli.conftest import CommandLine


def test_a_topic_is_created_listed_described_and_deleted(cli: CommandLine) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    (made,) = cli.ok("topic", "create", name, "-p", "2", "-c", "retention.ms=86400000", "--json").objects
    assert (made["topic"], made["partitions"], made["replication_factor"]) == (name, 2, 1)
    assert len(made["topic_id"]) == 22
    listed = {topic["topic"]: topic for topic in cli.ok("topic", "list", "--json").objects}
    assert listed[name] == {"topic": name, "partitions": 2, "replication_factor": 1}
    cli.ok("produce", name, "-p", "1", stdin=b"a\nb\n")
    (described,) = cli.ok("topic", "describe", name, "--json").objects
    assert described["topic_id"] == made["topic_id"]
    assert described["configs"]["retention.ms"] == "86400000"
    assert described["config_sources"]["retention.ms"] == "DYNAMIC_TOPIC_CONFIG"
    assert [p["size_bytes"] > 0 for p in described["partitions"]] == [False, True]
    ranges = [(p["partition"], p["log_start_offset"], p["high_watermark"]) for p in described["partitions"]]
    assert ranges == [(0, 0, 0), (1, 0, 2)]
    assert all(len(p["replicas"]) == len(p["in_sync_replicas"]) == 1 for p in described["partitions"])
    assert cli.ok("topic", "delete", name, "--yes", "--json").objects == [{"topic": name, "deleted": True}]
    assert name not in {topic["topic"] for topic in cli.ok("topic", "list", "--json").objects}
    assert cli.run("topic", "describe", name).status == 3


def test_people_read_the_same(cli: CommandLine, topic: str) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    assert cli.ok("topic", "create", name, "-p", "2").lines == [f"created {name} with 2 partitions, 1 replica each"]
    assert [topic, "3", "1"] in [line.split() for line in cli.ok("topic", "list").lines]
    lines = cli.ok("topic", "describe", topic).lines
    assert lines[0] == f"topic     {topic}"
    header = lines.index("") + 1
    assert lines[header].startswith("PARTITION  LEADER  REPLICAS  IN SYNC  START OFFSET  HIGH WATERMARK")
    assert [line.split()[0] for line in lines[header + 1 :]] == ["0", "1", "2"]


def test_what_cannot_be_created_says_why(cli: CommandLine, topic: str) -> None:
    again = cli.run("topic", "create", topic)
    assert again.status == 1
    assert "already exists" in again.stderr
    assert "next:" in again.stderr
    assert cli.run("topic", "create", "no/slash").status == 1
    assert cli.run("topic", "create", f"{topic}-x", "-c", "retention.ms").status == 2
    assert cli.run("topic", "create", f"{topic}-x", "-c", "retention.ms=soon").status == 1
    assert cli.run("topic", "create", f"{topic}-x", "-r", "3").status == 1
    assert cli.run("topic", "create").status == 2
    assert cli.run("topic", "describe", f"{topic}-x").status == 3


def test_deleting_needs_a_yes(cli: CommandLine, topic: str) -> None:
    cli.ok("produce", topic, stdin=b"a\nb\nc\n")
    refused = cli.run("topic", "delete", topic)
    assert refused.status == 2
    assert f"delete {topic}: 3 partitions, up to 3 records" in refused.stderr
    assert "--yes" in refused.stderr
    declined = cli.on_terminal(["topic", "delete", topic], typed=b"n\n")
    assert declined.status == 1
    assert b"nothing was deleted" in declined.stdout
    cli.ok("topic", "describe", topic)
    confirmed = cli.on_terminal(["topic", "delete", topic], typed=b"y\n")
    assert confirmed.status == 0
    assert cli.run("topic", "describe", topic).status == 3


def test_a_wrong_name_among_others_deletes_nothing(cli: CommandLine, topic: str) -> None:
    ended = cli.run("topic", "delete", topic, f"{topic}-typo", "--yes")
    assert ended.status == 3
    assert f"there is no topic '{topic}-typo'" in ended.stderr
    cli.ok("topic", "describe", topic)


def test_colours_are_for_terminals(cli: CommandLine, topic: str) -> None:
    assert b"\x1b[" in cli.on_terminal(["topic", "list"]).stdout
    plain = cli.on_terminal(["topic", "list"], NO_COLOR="1").stdout
    assert topic.encode() in plain
    assert b"\x1b[" not in plain
    assert b"\x1b[" not in cli.ok("topic", "list").stdout
