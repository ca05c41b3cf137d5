"""Groups as the command line shows, moves and deletes them, of both protocols."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from tests.cli.conftest import CommandLine
from tests.cli.group_reader import GroupReader, settle, shared

from strandline.cli.group import reading as group_reading

PROTOCOLS = ("classic", "consumer")
PARTITIONS = 3


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def full_topic(bootstrap: str) -> str:
    """A topic with four records in each partition, which no test changes."""
    cli, name = CommandLine(bootstrap), f"full-{uuid.uuid4().hex[:8]}"
    cli.ok("topic", "create", name, "--partitions", str(PARTITIONS))
    for partition in range(PARTITIONS):
        cli.ok("produce", name, "--partition", str(partition), stdin=b"a\nb\nc\nd\n")
    return name


@pytest.fixture
def read_topic(cli: CommandLine, full_topic: str, group: str) -> str:
    """That topic; the group stands at its end, without members."""
    cli.ok("group", "reset", group, "--topic", full_topic, "--to-latest", "--yes")
    return full_topic


def positions(cli: CommandLine, group: str) -> dict[int, int]:
    (told,) = cli.ok("group", "describe", group, "--json").objects
    return {each["partition"]: each["committed"] for each in told["offsets"]}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_with_a_member(cli: CommandLine, topic: str, group: str, protocol: str) -> None:
    assert cli.bootstrap is not None
    with GroupReader(cli.bootstrap, group, topic, protocol=protocol, client_id="billing-1") as reader:
        settle([reader], until=lambda: shared([reader], PARTITIONS))
        (listed,) = [each for each in cli.ok("group", "list", "--json").objects if each["group"] == group]
        assert (listed["type"], listed["state"], listed["members"]) == (protocol, "Stable", 1)
        assert isinstance(listed["coordinator"], int)

        (told,) = cli.ok("group", "describe", group, "--json").objects
        assert (told["state"], told["coordinator"]) == ("Stable", listed["coordinator"])
        (member,) = told["members"]
        assert (member["client"], member["topics"]) == ("billing-1", [topic])
        assert member["owned"] == [{"topic": topic, "partition": number} for number in range(PARTITIONS)]
        assert {each["member"] for each in told["offsets"]} == {member["member"]}
        assert {each["committed"] for each in told["offsets"]} == {None}
        assert cli.ok("group", "members", group, "--json").objects == [{"group": group} | member]

        lines = cli.ok("group", "describe", group).lines
        assert any(line.split()[:1] == ["billing-1"] and f"{topic}-0..2" in line for line in lines)
        described = cli.ok("group", "members", group).lines
        assert f"owns        {topic}-0..2" in described
        assert f"subscribes  {topic}" in described

        for command in (["delete", group], ["reset", group, "--topic", topic, "--to-latest"]):
            refused = cli.run("group", *command, "--yes")
            assert refused.status == 1
            assert "while it has 1 live member: billing-1 (" in refused.stderr
            assert "stop its consumers" in refused.stderr


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_librdkafka_tells_where_there_is_no_plain_listener(
    cli: CommandLine, topic: str, group: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.bootstrap is not None
    with GroupReader(cli.bootstrap, group, topic, protocol=protocol, client_id="billing-1") as reader:
        settle([reader], until=lambda: shared([reader], PARTITIONS))
        (plain,) = cli.ok("group", "describe", group, "--json").objects
        monkeypatch.setattr(group_reading, "is_spoken", lambda cluster: False)
        (told,) = cli.ok("group", "describe", group, "--json").objects
        (listed,) = [each for each in cli.ok("group", "list", "--json").objects if each["group"] == group]
        assert cli.run("group", "describe", f"{group}x").status == 3
    assert (listed["type"], listed["state"], listed["members"]) == (protocol, "Stable", 1)
    for name in ("type", "state", "coordinator", "assignor", "offsets"):
        assert told[name] == plain[name]
    for name in ("member", "instance", "client", "host", "owned"):
        assert told["members"][0][name] == plain["members"][0][name]


def test_lists_are_filtered(cli: CommandLine, read_topic: str, group: str) -> None:
    def listed(*options: str) -> list[str]:
        return [each["group"] for each in cli.ok("group", "list", "--json", *options).objects]

    assert group in listed("--state", "empty", "--type", "classic", "--pattern", "group-*")
    assert group not in listed("--state", "Stable")
    assert group not in listed("--type", "consumer")
    assert group not in listed("--pattern", "/^other/")
    assert cli.run("group", "list", "--state", "Sleeping").status == 2
    row = next(line.split() for line in cli.ok("group", "list").lines if line.startswith(group))
    assert row[1:4] == ["classic", "Empty", "0"]


def test_a_group_that_is_not_there(cli: CommandLine, read_topic: str, group: str) -> None:
    for verb in ("describe", "members", "delete"):
        ended = cli.run("group", verb, f"{group}x")
        assert ended.status == 3
        assert f"there is no group '{group}x'" in ended.stderr
        assert f"did you mean '{group}'?" in ended.stderr


def test_a_reset_needs_a_yes_and_shows_its_plan(cli: CommandLine, read_topic: str, group: str) -> None:
    refused = cli.run("group", "reset", group, "--topic", read_topic, "--to-offset", "1")
    assert refused.status == 2
    assert f"move group {group} in 3 partitions: up to 9 records will be read again" in refused.stderr
    assert f"{read_topic}-0: 4 -> 1, 3 records will be read again" in refused.stderr
    assert "--yes" in refused.stderr
    assert positions(cli, group) == {0: 4, 1: 4, 2: 4}
    declined = cli.on_terminal(["group", "reset", group, "--all-topics", "--to-earliest"], typed=b"n\n")
    assert declined.status == 1
    assert b"the group was not moved" in declined.stdout
    moved = cli.ok("group", "reset", group, "--all-topics", "--to-earliest", "--yes")
    assert moved.lines == [f"moved {read_topic}-{number} to 0" for number in range(PARTITIONS)]
    assert sorted(cli.ok("consume", read_topic, "--group", group).lines) == sorted("abcd" * PARTITIONS)


@pytest.mark.parametrize(
    ("options", "after", "told"),
    [
        (("--to-earliest",), [0, 0, 0], (4, 0, None)),
        (("--to-latest",), [4, 4, 4], (0, 0, None)),
        (("--to-offset", "3"), [3, 3, 3], (1, 0, None)),
        (("--to-offset", "9"), [4, 4, 4], (0, 0, "9 is behind the end of the log, which is 4")),
        (("--shift-by", "-1"), [3, 3, 3], (1, 0, None)),
        (("--shift-by", "-9"), [0, 0, 0], (4, 0, "-5 is before the log, which begins at 0")),
        (("--to-datetime", "2001-01-01"), [0, 0, 0], (4, 0, None)),
        (("--to-datetime", "@4102444800000"), [4, 4, 4], (0, 0, "no record is that new")),
        (("--by-duration", "PT1H"), [0, 0, 0], (4, 0, None)),
        (("--by-duration", "1h"), [0, 0, 0], (4, 0, None)),
    ],
)
def test_where_to(
    cli: CommandLine,
    read_topic: str,
    group: str,
    options: tuple[str, ...],
    after: list[int],
    told: tuple[int, int, str | None],
) -> None:
    planned = cli.ok("group", "reset", group, "--topic", read_topic, *options, "--dry-run", "--json").objects
    assert [each["after"] for each in planned] == after
    assert [(each["reread"], each["skipped"], each["note"]) for each in planned] == [told] * PARTITIONS
    assert {(each["before"], each["done"]) for each in planned} == {(4, False)}
    assert positions(cli, group) == {0: 4, 1: 4, 2: 4}, "a dry run moves nothing"
    done = cli.ok("group", "reset", group, "--topic", read_topic, *options, "--yes", "--json").objects
    assert {each["done"] for each in done} == {True}
    assert list(positions(cli, group).values()) == after


def test_chosen_partitions_and_skipped_records(cli: CommandLine, read_topic: str, group: str) -> None:
    cli.ok("group", "reset", group, "--topic", f"{read_topic}:0,2", "--to-offset", "1", "--yes")
    assert positions(cli, group) == {0: 1, 1: 4, 2: 1}
    planned = cli.ok("group", "reset", group, "--all-topics", "--to-offset", "3", "--dry-run").lines
    assert planned == [
        f"{read_topic}-0: 1 -> 3, 2 records will be skipped",
        f"{read_topic}-1: 4 -> 3, 1 record will be read again",
        f"{read_topic}-2: 1 -> 3, 2 records will be skipped",
    ]


def test_positions_go_to_a_file_and_come_back(cli: CommandLine, read_topic: str, group: str, tmp_path: Path) -> None:
    before = cli.ok("group", "describe", group, "--csv")
    assert before.lines == [f"{read_topic},{number},4" for number in range(PARTITIONS)]
    kept = tmp_path / "before.csv"
    kept.write_bytes(before.stdout)
    cli.ok("group", "reset", group, "--all-topics", "--to-earliest", "--yes")
    cli.ok("group", "reset", group, "--from-file", str(kept), "--yes")
    assert positions(cli, group) == {0: 4, 1: 4, 2: 4}
    cli.ok("group", "reset", group, "--from-file", "-", "--yes", stdin=f'{group},"{read_topic}",1,2\n'.encode())
    assert positions(cli, group) == {0: 4, 1: 2, 2: 4}


def test_a_group_can_begin_with_a_position(cli: CommandLine, read_topic: str, group: str) -> None:
    young = f"{group}-young"
    command = ("group", "reset", young, "--topic", read_topic, "--to-offset", "2")
    assert f"move group {young}, which does not exist yet, in 3 partitions" in cli.run(*command).stderr
    assert cli.run("group", "reset", young, "--all-topics", "--to-latest", "--yes").status == 3
    assert cli.run("group", "reset", young, "--topic", read_topic, "--shift-by", "1", "--yes").status == 1
    cli.ok(*command, "--yes")
    assert positions(cli, young) == {0: 2, 1: 2, 2: 2}


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--topic", "{topic}"), 2, "say where to: one of --to-earliest"),
        (("--topic", "{topic}", "--to-earliest", "--to-latest"), 2, "say where to: one of"),
        (("--to-earliest",), 2, "or --all-topics"),
        (("--to-earliest", "--all-topics", "--topic", "{topic}"), 2, "or --all-topics"),
        (("--to-earliest", "--topic", "{topic}-x"), 3, "there is no topic '{topic}-x'"),
        (("--to-earliest", "--topic", "{topic}:7"), 3, "topic '{topic}' has no partition 7"),
        (("--to-earliest", "--topic", "{topic}:a"), 2, "is not TOPIC or TOPIC:PARTITION"),
        (("--to-datetime", "soon", "--topic", "{topic}"), 2, "is no time"),
        (("--to-datetime", "12", "--topic", "{topic}"), 2, "is no time"),
        (("--by-duration", "long", "--topic", "{topic}"), 2, "is no duration"),
        (("--to-offset", "-3", "--topic", "{topic}"), 2, ""),
        (("--from-file", "/does/not/exist"), 3, "cannot read /does/not/exist"),
        (("--from-file", "-"), 2, "- has no offsets for group"),
        (("--from-file", "-", "--all-topics"), 2, "has no offsets for group"),
    ],
)
def test_what_cannot_be_meant(
    cli: CommandLine, read_topic: str, group: str, options: tuple[str, ...], status: int, words: str
) -> None:
    ended = cli.run("group", "reset", group, *(option.format(topic=read_topic) for option in options), "--yes")
    assert ended.status == status
    assert words.format(topic=read_topic) in ended.stderr
    assert positions(cli, group) == {0: 4, 1: 4, 2: 4}


def test_deleting_needs_a_yes(cli: CommandLine, read_topic: str, group: str) -> None:
    refused = cli.run("group", "delete", group)
    assert refused.status == 2
    assert f"delete group {group} (Empty): 3 positions in 1 topic, for good; no record is touched" in refused.stderr
    assert cli.run("group", "delete", group, f"{group}-typo", "--yes").status == 3
    cli.ok("group", "describe", group)
    assert cli.ok("group", "delete", group, "--yes", "--json").objects == [{"group": group, "deleted": True}]
    assert cli.run("group", "describe", group).status == 3


def test_positions_in_a_topic_can_be_forgotten(cli: CommandLine, read_topic: str, group: str) -> None:
    command = ("group", "delete", group, "--topic", f"{read_topic}:0,2")
    refused = cli.run(*command)
    assert refused.status == 2
    assert f"delete 2 positions of group {group}, for good: {read_topic}-0, {read_topic}-2" in refused.stderr
    told = cli.ok(*command, "--yes", "--json").objects
    assert [(each["partition"], each["deleted"]) for each in told] == [(0, True), (2, True)]
    assert positions(cli, group) == {1: 4}
    assert cli.run("group", "delete", group, "--topic", f"{read_topic}-other", "--yes").status == 1
    assert cli.run("group", "delete", group, "--topic", f"{read_topic}:x", "--yes").status == 2


def test_positions_that_members_use_stay(cli: CommandLine, read_topic: str, group: str) -> None:
    assert cli.bootstrap is not None
    with GroupReader(cli.bootstrap, group, read_topic) as reader:
        settle([reader], until=lambda: shared([reader], PARTITIONS))
        refused = cli.run("group", "delete", group, "--topic", read_topic, "--yes")
        assert refused.status == 1
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in refused.stderr
        assert positions(cli, group) == {0: 4, 1: 4, 2: 4}


def test_a_topic_that_is_deleted_is_left_alone(cli: CommandLine, read_topic: str, group: str) -> None:
    other = f"{read_topic}-other"
    cli.ok("topic", "create", other, "--partitions", "1")
    cli.ok("produce", other, stdin=b"a\n")
    cli.ok("consume", other, "--group", group)
    cli.ok("topic", "delete", other, "--yes")
    cli.ok("group", "reset", group, "--all-topics", "--to-earliest", "--yes")
    assert positions(cli, group) == {0: 0, 1: 0, 2: 0}
