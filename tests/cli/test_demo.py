"""The demo's own parts: a feed that repeats itself from a seed, a ledger and a proof that find what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from demo.feed import invent
from demo.ledger import Ledger
from demo.proof import expected_of, found_in
from tests.clients.broker import existing_bootstrap


def test_the_feed_repeats_itself_and_is_believable() -> None:
    day = invent(3, visits_per_hour=300)
    assert day == invent(3, visits_per_hour=300)
    assert all(before.written <= after.written for before, after in pairwise(day.records))
    assert max(Counter(record.value for record in day.records).values()) == 1
    steps: dict[object, list[object]] = {}
    for record in day.records:
        if record.topic == "clicks":
            visit = str(record.fields["click"]).rpartition("-")[0]
            steps.setdefault(visit, []).append(record.fields["action"])
    assert ["view", "basket", "checkout"] in steps.values()
    assert ["view"] in steps.values()


def test_the_proof_finds_what_is_lost_and_what_is_twice() -> None:
    day = invent(3, visits_per_hour=300)
    orders = [record for record in day.records if record.topic == "orders"]
    expected = expected_of(day.records, day.tomorrow)
    assert sum(count for *_, count, _ in expected.sales) == len(orders) - 1
    assert sum(sold for _, sold, _ in expected.article_sales) == len(orders)
    pairs = [json.dumps({"order_id": order, "click": click}).encode() for order, click in expected.attributed]
    assert found_in("attributed", [(None, pair) for pair in pairs]) == expected.attributed
    found = found_in("attributed", [(None, pair) for pair in [*pairs[1:], pairs[-1]]])
    assert (expected.attributed - found).total() == (found - expected.attributed).total() == 1


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ([("t", 0, 0, b"a"), ("t", 0, 1, b"b"), ("t", 1, 0, b"c")], None),
        ([("t", 0, 0, b"a"), ("t", 0, 1, b"b"), ("t", 1, 0, b"c"), ("t", 1, 1, b"unacknowledged")], None),
        ([("t", 0, 0, b"a"), ("t", 0, 1, b"b")], "lost"),
        ([("t", 0, 0, b"a"), ("t", 0, 1, b"x"), ("t", 1, 0, b"c")], "changed"),
        ([("t", 0, 0, b"a"), ("t", 0, 1, b"b"), ("t", 1, 0, b"c"), ("t", 1, 1, b"c")], "doubled"),
    ],
)
def test_the_ledger_finds_every_fault(found: list[tuple[str, int, int, bytes]], fault: str | None) -> None:
    ledger = Ledger()
    for partition, offset, value in [(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c")]:
        ledger.note("t", partition, offset, value)
    result = ledger.compare(found)
    assert result.is_clean == (fault is None)
    if fault is not None:
        assert getattr(result, fault) == 1


def test_an_offset_given_twice_is_a_fault() -> None:
    ledger = Ledger()
    ledger.note("t", 0, 0, b"a")
    ledger.note("t", 0, 0, b"b")
    assert not ledger.compare([("t", 0, 0, b"b")]).is_clean


@pytest.mark.skipif(existing_bootstrap() is not None, reason="tests another cluster, not our node")
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--no-spark"], id="without Spark", marks=pytest.mark.timeout(700)),
        pytest.param([], id="with Spark", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_the_story_ends_well(arguments: list[str], tmp_path: Path) -> None:
    picture = tmp_path / "story.png"
    played = subprocess.run(
        [sys.executable, "-m", "demo", "7", "--picture", str(picture), *arguments],
        capture_output=True,
        text=True,
        timeout=600 if arguments else 800,
        check=False,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    assert "What was shown" in played.stdout
    assert "NOT SO" not in played.stdout
    assert picture.exists() == (not arguments)
