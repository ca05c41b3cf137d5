"""`strandline topic scrub`, and what a user sees of damage: where it is, that it is not served, and the ways out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import CommandLine
from tests.cli.test_topic_storage import fill, stored
from tests.clients.broker import existing_bootstrap
from tests.clients.client import until

from strandline.testing import embedded

pytestmark = pytest.mark.skipif(existing_bootstrap() is not None, reason="only our brokers check their files")


def flip(path: Path, position: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 4
    path.write_bytes(content)


def offsets(cli: CommandLine, *arguments: str) -> list[int]:
    return [record["offset"] for record in cli.run("consume", "orders", "--json", *arguments).objects]


def found_by_scrub(cli: CommandLine) -> list[Any]:
    ended = cli.run("topic", "scrub", "orders", "--now", "--json")
    (told,) = ended.objects
    assert ended.status == (5 if told["damages"] else 0)
    assert told["error"] is None
    assert told["bytes_read"] > 10**6
    damages: list[Any] = told["damages"]
    return damages


def test_files_that_are_whole(cli: CommandLine, topic: str) -> None:
    fill(cli.bootstrap or "", topic, 0.5)
    before = cli.ok("topic", "scrub", topic, "-p", "0").lines
    assert before == [f"{topic}-0 on broker 1: not read yet; every 1 week"]
    assert cli.ok("topic", "scrub", topic, "-p", "0", "--now").lines == [
        f"read {topic}-0 on broker 1: 489 KiB, all of it is whole"
    ]
    (after,) = cli.ok("topic", "scrub", topic, "-p", "0").lines
    assert after.startswith(f"{topic}-0 on broker 1: read and found whole ")
    assert cli.run("topic", "scrub", f"{topic}-typo", "--now").status == 3


@pytest.mark.slow
def test_damage_of_the_only_copy_from_finding_it_to_the_way_out(tmp_path: Path) -> None:
    with embedded(data=tmp_path / "data") as broker:
        cli = CommandLine(broker.bootstrap)
        cli.ok("topic", "create", "orders", "-c", "segment.bytes=1048576")
        count = fill(broker.bootstrap, "orders", 2.5)
        assert found_by_scrub(cli) == []
        broker.stop()
        segment = tmp_path / "data" / "orders-0" / "00000000000000000000.log"
        flip(segment, 250_000)
        broker.start()

        (damage,) = found_by_scrub(cli)
        assert (damage["base_offset"], damage["end_offset"]) == (0, 10)
        assert 0 < damage["position"] <= 250_000
        said = cli.run("topic", "scrub", "orders")
        assert said.status == 5
        assert "damage: offsets 0–9, byte 200," in said.stdout.decode()
        assert "not served" in said.stdout.decode()
        (log,) = stored(cli, "orders")
        assert [each["state"] for each in log["segments"]] == ["damaged", "sealed", "active"]
        for command in (["doctor"], ["cluster", "health"]):
            ended = cli.run(*command)
            assert ended.status == 5
            assert "orders-0 on broker 1 is damaged: offsets 0–9" in ended.stdout.decode()

        # The record with the changed bit is not served; those before it and behind it are.
        refused = cli.run("consume", "orders", "--from", "earliest", "--json")
        assert refused.status == 1
        assert "what is stored there is damaged, and not served" in refused.stderr
        assert [record["offset"] for record in refused.objects] == [0, 1]
        assert offsets(cli, "--from", "3") == list(range(3, count))

        cli.ok("topic", "trim", "orders", "--before", "3", "--yes")
        assert offsets(cli, "--from", "earliest") == list(range(3, count))
        cli.ok("topic", "trim", "orders", "--before", "10", "--yes")
        until("the damage is gone with the segment", lambda: cli.run("topic", "scrub", "orders").status == 0)
        assert found_by_scrub(cli) == []
