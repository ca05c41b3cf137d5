"""Events of the audit topic: their lines, and how repeats are counted."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from strandline.security.audit.audit_event import (
    DETAILS_MAX,
    TEXT_CHARACTERS_MAX,
    AuditEvent,
    CountedEvent,
    audit_line,
    clipped,
    details_of,
)
from strandline.security.audit.repeats import EVENTS_COUNTED_MAX, RepeatCounter

DENIAL = AuditEvent("denial", "denied", principal="User:alice", operation="WRITE", resource="orders")


def event(number: int) -> AuditEvent:
    return DENIAL._replace(resource=f"topic-{number}")


def test_a_line_has_what_the_event_has() -> None:
    line = json.loads(audit_line(CountedEvent(DENIAL, 3, 5, 9), node_id=2, line_id="2-1-0"))
    assert line == {
        "id": "2-1-0",
        "node": 2,
        "time_ms": 9,
        "type": "denial",
        "outcome": "denied",
        "principal": "User:alice",
        "operation": "WRITE",
        "resource": "orders",
        "count": 3,
        "first_ms": 5,
    }


def test_texts_that_clients_choose_are_cut() -> None:
    assert len(clipped("x" * 1_000_000)) == TEXT_CHARACTERS_MAX + 3
    details = dict(details_of({f"key {number}": ["y" * 10_000] * 1_000 for number in range(1_000)}))
    assert len(details) == DETAILS_MAX + 1
    assert details["more"] == 1_000 - DETAILS_MAX
    assert len(details["key 0"]) == DETAILS_MAX + 1
    # What is no text can be in a name that a client sends.
    assert audit_line(CountedEvent(DENIAL._replace(resource="\ud800"), 1, 0, 0), node_id=1, line_id="")


def test_the_first_is_told_at_once_and_repeats_once_a_window() -> None:
    counter = RepeatCounter(60_000)
    assert counter.note(DENIAL, 0) == [CountedEvent(DENIAL, 1, 0, 0)]
    for now_ms in range(1, 1_000):
        assert counter.note(DENIAL, now_ms) == []
    assert counter.due(59_999) == []
    assert counter.due(60_000) == [CountedEvent(DENIAL, 999, 1, 999)]
    assert counter.note(DENIAL, 60_001) == [], "its next window has begun"
    assert counter.due(120_000) == [CountedEvent(DENIAL, 1, 60_001, 60_001)]
    assert counter.due(180_000) == []
    assert counter.due_ms() is None
    assert counter.note(DENIAL, 200_000) == [CountedEvent(DENIAL, 1, 200_000, 200_000)]


def test_events_beyond_the_limit_end_the_oldest_window() -> None:
    counter = RepeatCounter(60_000)
    for number in range(EVENTS_COUNTED_MAX):
        counter.note(event(number), number)
    counter.note(event(0), 5_000)
    ended, new = counter.note(event(-1), 5_001)
    assert ended == CountedEvent(event(0), 1, 5_000, 5_000)
    assert new == CountedEvent(event(-1), 1, 5_001, 5_001)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50))), st.integers(1, 100))
def test_no_event_is_lost_or_counted_twice(noted: list[tuple[int, int]], window_ms: int) -> None:
    counter, now_ms, lines = RepeatCounter(window_ms), 0, list[CountedEvent]()
    for number, later_ms in noted:
        now_ms += later_ms
        lines += counter.due(now_ms)
        lines += counter.note(event(number), now_ms)
    lines += counter.rest()
    for number in range(4):
        happened = sum(1 for each, _ in noted if each == number)
        assert sum(line.times for line in lines if line.event == event(number)) == happened
