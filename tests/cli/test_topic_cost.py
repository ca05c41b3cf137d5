"""`strandline topic cost` against a running node."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import CommandLine


def test_the_rate_is_measured_or_given(cli: CommandLine, topic: str) -> None:
    assert cli.run("topic", "cost", topic).status == 1, "an empty topic tells nothing"
    given = ("--rate", "10MB", "--record-size", "1kB", "--retention", "7d", "--local-retention", "1d")
    local, tiered, objects = cli.ok("topic", "cost", topic, *given, "--json").objects
    assert [each["kind"] for each in (local, tiered, objects)] == ["local", "tiered", "object"]
    assert (local["is_now"], tiered["is_now"]) == (True, False)
    assert local["records_per_second"] == 10_000
    assert local["disk_bytes"] == 10_000_000 * 7 * 86_400
    assert local["disk_dollars"] == pytest.approx(6048 * 0.08)
    assert tiered["disk_bytes"] == 10_000_000 * 86_400
    assert objects["total_dollars"] > 0
    cli.ok("produce", topic, stdin=b"x" * 100 + b"\n")
    (first, _, _) = cli.ok("topic", "cost", topic, "--measure", "0.5", "--json").objects
    assert first["bytes_per_second"] == 0
    shown = cli.ok("topic", "cost", topic, *given)
    assert shown.lines[0].split()[:3] == ["KIND", "PUTS", "GETS"]
    assert [line.split()[0] for line in shown.lines[1:]] == ["local", "tiered", "object"]
    assert "disk_gb_month=0.08" in shown.stderr


def test_prices_come_from_a_file_and_from_flags(cli: CommandLine, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "prices"
    file.write_text("# ours\ndisk.gb.month = 1\nstore.gb.month=0\n")
    given = ("--rate", "1MB", "--record-size", "1kB", "--retention", "1d", "--json")
    local, tiered, _ = cli.ok("topic", "cost", topic, *given, "--prices", str(file), "--zone-price", "0").objects
    assert local["total_dollars"] == pytest.approx(86.4)
    assert tiered["store_dollars"] == 0
    (dear, _, _) = cli.ok("topic", "cost", topic, *given, "--prices", str(file), "--disk-price", "2").objects
    assert dear["disk_dollars"] == pytest.approx(172.8)
    for wrong in (("--price", "egress=1"), ("--prices", str(tmp_path / "none")), ("--rate", "fast")):
        assert cli.run("topic", "cost", topic, *wrong).status == 2
