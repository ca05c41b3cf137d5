"""`strandline topic alter | trim`, and many topics at once."""

from __future__ import annotations

import pytest
from tests.cli.conftest import CommandLine

from strandline.cli.topic import remove as topic_remove


def offsets(cli: CommandLine, topic: str) -> list[tuple[int, int]]:
    (described,) = cli.ok("topic", "describe", topic, "--json").objects
    return [(p["log_start_offset"], p["high_watermark"]) for p in described["partitions"]]


def filled(cli: CommandLine, topic: str) -> None:
    """Ten records in partition 0, five in partition 1, a second apart, years ago."""
    cli.ok("topic", "alter", topic, "-c", "retention.ms=-1")
    lines = [
        f'{{"value": "{n}", "partition": {p}, "timestamp": {1_700_000_000_000 + n * 1000}}}'
        for p, count in ((0, 10), (1, 5))
        for n in range(count)
    ]
    cli.ok("produce", topic, "--from-json", stdin="\n".join(lines).encode())


def test_partitions_are_added_and_never_taken_away(cli: CommandLine, topic: str) -> None:
    (dry,) = cli.ok("topic", "alter", topic, "--partitions", "5", "--dry-run", "--json").objects
    assert (dry["partitions"], dry["partitions_before"], dry["dry_run"]) == (5, 3, True)
    assert len(offsets(cli, topic)) == 3
    added = cli.ok("topic", "alter", topic, "-p", "5")
    assert added.lines == [f"{topic} has 5 partitions (before: 3)"]
    assert "another partition" in added.stderr
    assert len(offsets(cli, topic)) == 5
    fewer = cli.run("topic", "alter", topic, "-p", "2")
    assert (fewer.status, "--repartition" in fewer.stderr) == (1, True)
    assert "already" in cli.ok("topic", "alter", topic, "-p", "5").stderr
    assert cli.run("topic", "alter", topic).status == 2


def test_settings_and_partitions_together_or_not_at_all(cli: CommandLine, topic: str) -> None:
    refused = cli.run("topic", "alter", topic, "-p", "4", "-c", "retention.ms=1000")
    assert refused.status == 2
    assert len(offsets(cli, topic)) == 3
    changed = cli.ok("topic", "alter", topic, "-p", "4", "-c", "retention.ms=1000", "-c", "segment.ms=5000", "--yes")
    assert changed.lines == [
        f"topic {topic}: retention.ms: 604800000 -> 1000",
        f"topic {topic}: segment.ms: 604800000 -> 5000",
        f"{topic} has 4 partitions (before: 3)",
    ]
    # Apache Kafka's own server.properties sets more, so only the lines of the topic are looked at.
    shown = [line[10:].split(maxsplit=1) for line in cli.ok("topic", "describe", topic).lines if "(topic" in line]
    assert shown == [["retention.ms=1000", "(topic, 1 second)"], ["segment.ms=5000", "(topic, 5 seconds)"]]
    cli.ok("topic", "alter", topic, "--unset", "retention.ms", "--unset", "segment.ms", "--yes")
    assert not any("(topic" in line for line in cli.ok("topic", "describe", topic).lines)
    (everything,) = cli.ok("topic", "describe", topic, "--all", "--json").objects
    assert everything["config_sources"]["retention.ms"] == "DEFAULT_CONFIG"


def test_trimming_needs_a_yes_and_says_what_goes(cli: CommandLine, topic: str) -> None:
    filled(cli, topic)
    refused = cli.run("topic", "trim", topic, "--before", "4")
    assert refused.status == 2
    assert f"trim {topic}-0: up to 4 records, offsets 0 to 3, for good" in refused.stderr
    assert "nothing was trimmed" in refused.stderr
    assert offsets(cli, topic)[0] == (0, 10)
    declined = cli.on_terminal(["topic", "trim", topic, "--before", "4"], typed=b"n\n")
    assert (declined.status, b"nothing was trimmed" in declined.stdout) == (1, True)
    trimmed = cli.ok("topic", "trim", topic, "--before", "4", "--partition", "0", "--yes", "--json").objects
    assert trimmed == [{"topic": topic, "partition": 0, "log_start_offset": 4}]
    assert offsets(cli, topic) == [(4, 10), (0, 5), (0, 0)]
    assert cli.ok("consume", topic, "-p", "0").lines == ["4", "5", "6", "7", "8", "9"]


def test_trimming_by_time_by_what_is_kept_and_all(cli: CommandLine, topic: str) -> None:
    filled(cli, topic)
    cli.ok("topic", "trim", topic, "--before", "@1700000003000", "--yes")
    assert offsets(cli, topic) == [(3, 10), (3, 5), (0, 0)]
    assert "nothing to trim" in cli.ok("topic", "trim", topic, "--before", "2").stderr
    cli.ok("topic", "trim", topic, "--before", "-1", "--yes")
    assert offsets(cli, topic) == [(9, 10), (4, 5), (0, 0)]
    cli.ok("topic", "trim", topic, "--before", "all", "--yes")
    assert offsets(cli, topic) == [(10, 10), (5, 5), (0, 0)]
    assert cli.run("topic", "trim", topic, "--before", "soon").status == 2
    assert cli.run("topic", "trim", topic, "--before", "all", "-p", "3").status == 3
    assert cli.run("topic", "trim", f"{topic}x", "--before", "all").status == 3


def test_several_topics_are_made_checked_and_deleted(cli: CommandLine, topic: str) -> None:
    names = [f"{topic}-{n}" for n in range(3)]
    checked = cli.ok("topic", "create", *names, "--dry-run", "--json").objects
    assert checked == [{"topic": name, "valid": True, "existed": False} for name in names]
    assert cli.ok("topic", "list", "--pattern", f"{topic}-*", "--json").objects == []
    made = cli.ok("topic", "create", *names, topic, "--if-not-exists", "--json").objects
    assert {each["topic"]: each["created"] for each in made} == {**dict.fromkeys(names, True), topic: False}
    again = cli.run("topic", "create", *names)
    assert (again.status, again.stderr.count("already exists")) == (1, 3)
    listed = cli.ok("topic", "list", "--pattern", f"/^{topic}-[01]$/", "--json").objects
    assert [each["topic"] for each in listed] == names[:2]
    assert "no topic is like" in cli.ok("topic", "list", "--pattern", f"{topic}-x*").stderr
    assert cli.run("topic", "list", "--pattern", "/[/").status == 2
    unknown = cli.run("topic", "create", f"{topic}-x", "-c", "retenton.ms=1")
    assert "did you mean 'retention.ms' by 'retenton.ms'?" in unknown.stderr
    gone = cli.ok("topic", "delete", *names, "--yes")
    assert sorted(gone.lines) == [f"deleted {name}" for name in names]
    assert "delete 3 topics with up to 0 records:" in gone.stderr


def test_a_long_plan_is_cut_and_done_in_parts(cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_remove, "_TOPICS_PER_REQUEST", 10)
    names = [f"{topic}-{n:02}" for n in range(25)]
    cli.ok("topic", "create", *names, "-p", "1")
    gone = cli.ok("topic", "delete", *names, "--yes")
    assert len(gone.lines) == 25
    assert "... and 6 more lines" in gone.stderr
