"""`group history` with real consumers: why it rebalanced, and what moved."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from tests.cli.conftest import CommandLine
from tests.cli.group_reader import GroupReader, settle, shared
from tests.cli.test_groups import PARTITIONS


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def whys(rebalance: dict[str, Any]) -> list[tuple[str, str]]:
    return [(note["client"], note["what"]) for note in rebalance["why"]]


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
def test_who_came_and_went(cli: CommandLine, topic: str, group: str, protocol: str) -> None:
    assert cli.bootstrap is not None
    with GroupReader(cli.bootstrap, group, topic, protocol=protocol, client_id="first") as first:
        settle([first], until=lambda: shared([first], PARTITIONS))
        with GroupReader(cli.bootstrap, group, topic, protocol=protocol, client_id="second") as second:
            settle([first, second], until=lambda: shared([first, second], PARTITIONS))
        settle([first], until=lambda: shared([first], PARTITIONS))

        def told() -> list[dict[str, Any]]:
            return [each for each in cli.ok("group", "history", group, "--json").objects if each["rebalance"]]

        settle([first], until=lambda: len(told()) >= 3 and told()[-1]["ended_ms"] is not None)
        came, second_came, second_went = told()[0], told()[1], told()[-1]
    assert whys(came) == [("first", "joined")]
    assert (came["type"], came["members"]) == (protocol, 1)
    (change,) = came["changes"]
    assert change["gained"] == [{"topic": topic, "partition": number} for number in range(PARTITIONS)]
    assert ("second", "joined") in whys(second_came)
    moved = {each["client"]: (len(each["lost"]), len(each["gained"])) for each in second_came["changes"]}
    assert moved["first"][0] == moved["second"][1] > 0
    assert second_came["took_ms"] >= 0
    assert ("second", "left") in whys(second_went)

    lines = cli.ok("group", "history", group).lines
    word = "generation" if protocol == "classic" else "epoch"
    assert any(f"rebalanced to {word} " in line and "with 2 members in " in line for line in lines)
    assert any("second (127.0.0.1) joined" in line for line in lines)
    assert any(line.split()[:2] == ["first", "gets"] and f"{topic}-0..2" in line for line in lines)
    assert len(cli.ok("group", "history", group, "--last", "1", "--json").objects) == 1


def test_a_client_that_comes_and_goes_flaps(cli: CommandLine, topic: str, group: str) -> None:
    """Beside one that stays; alone it disturbs nobody."""
    assert cli.bootstrap is not None

    def come_and_go(*others: GroupReader) -> None:
        with GroupReader(cli.bootstrap, group, topic, client_id="moody") as reader:
            settle([reader, *others], until=lambda: shared([reader, *others], PARTITIONS))

    for _ in range(3):
        come_and_go()
    told = "moody flaps: 3 times within minutes it joined and was soon gone"
    assert not any("flaps" in line for line in cli.ok("group", "history", group).lines)
    with GroupReader(cli.bootstrap, group, topic, client_id="steady") as steady:
        for _ in range(3):
            come_and_go(steady)
        lines = cli.ok("group", "history", group).lines
        assert any(line.strip().startswith(told) for line in lines)
        flaps = [note["flaps"] for each in cli.ok("group", "history", group, "--json").objects for note in each["why"]]
    assert max(flaps) == 3


def test_nothing_happened_yet_and_no_such_group(cli: CommandLine, topic: str, group: str) -> None:
    cli.ok("group", "reset", group, "--topic", topic, "--to-latest", "--yes")
    ended = cli.ok("group", "history", group)
    assert ended.stdout == b""
    assert f"nothing happened to group {group} since 20" in ended.stderr
    missing = cli.run("group", "history", f"{group}x")
    assert missing.status == 3
    assert f"there is no group '{group}x'" in missing.stderr
