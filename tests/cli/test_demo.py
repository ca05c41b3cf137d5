"""The demo's own parts: a feed that repeats itself from a seed, and a ledger that finds what is missing."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import islice, pairwise

import pytest
from demo.ledger import Ledger
from demo.orders import order_feed
from tests.clients.broker import existing_bootstrap


def test_the_feed_repeats_itself_and_is_believable() -> None:
    first, second = (
        list(islice(order_feed(random.Random(3), begin_ms=0, orders_per_minute=10), 2000)) for _ in range(2)
    )
    assert first == second
    assert [event.sequence for event in first] == list(range(2000))
    assert all(before.timestamp_ms <= after.timestamp_ms for before, after in pairwise(first))
    stories: dict[str, list[str]] = {}
    for event in first:
        stories.setdefault(event.order, []).append(event.state)
    assert all(states[0] == "placed" for states in stories.values())
    assert ["placed", "paid", "packed", "shipped", "delivered"] in stories.values()
    assert ["placed", "cancelled"] in stories.values()


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ([(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c")], None),
        ([(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c"), (1, 1, b"unacknowledged")], None),
        ([(0, 0, b"a"), (0, 1, b"b")], "lost"),
        ([(0, 0, b"a"), (0, 1, b"x"), (1, 0, b"c")], "changed"),
        ([(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c"), (1, 1, b"c")], "doubled"),
    ],
)
def test_the_ledger_finds_every_fault(found: list[tuple[int, int, bytes]], fault: str | None) -> None:
    ledger = Ledger()
    for partition, offset, value in [(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c")]:
        ledger.note(partition, offset, value)
    result = ledger.compare(found)
    assert result.is_clean == (fault is None)
    if fault is not None:
        assert getattr(result, fault) == 1


def test_an_offset_given_twice_is_a_fault() -> None:
    ledger = Ledger()
    ledger.note(0, 0, b"a")
    ledger.note(0, 0, b"b")
    assert not ledger.compare([(0, 0, b"b")]).is_clean


@pytest.mark.skipif(existing_bootstrap() is not None, reason="tests another cluster, not our node")
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--no-spark"], id="without Spark"),
        pytest.param([], id="with Spark", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_the_story_ends_well(arguments: list[str]) -> None:
    played = subprocess.run(
        [sys.executable, "-m", "demo", "7", *arguments],
        capture_output=True,
        text=True,
        timeout=120 if arguments else 800,
        check=False,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    assert "What was shown" in played.stdout
    assert "NOT SO" not in played.stdout
