"""The judge of groups finds each broken promise, and nothing in a history where all were kept."""

from __future__ import annotations

import pytest
from tests.clients.groups.telling import Line, Place
from tests.clients.groups.verdict import Life, complaints

P: Place = ("t", 0)
WRITTEN = {P: [f"v{offset}" for offset in range(10)]}


def assigned(at_ns: int) -> Line:
    return Line(at_ns, "assigned", places=(P,))


def revoked(at_ns: int) -> Line:
    return Line(at_ns, "revoked", places=(P,))


def read(at_ns: int, start: int, end: int) -> Line:
    return Line(at_ns, "read", records=tuple(("t", 0, offset, f"v{offset}") for offset in range(start, end)))


def committed(asked_ns: int, at_ns: int, position: int) -> Line:
    return Line(at_ns, "committed", positions=(("t", 0, position),), asked_ns=asked_ns)


def handover() -> list[Life]:
    """A reads four and hands over, B reads the rest."""
    a = Life("A", [assigned(1), read(2, 0, 4), committed(3, 4, 4), revoked(5)])
    b = Life("B", [assigned(6), read(7, 4, 10), committed(8, 9, 10)])
    return [a, b]


def test_a_handover_is_fine() -> None:
    assert complaints(handover(), WRITTEN, {P: 10}) == []


def test_what_is_read_again_after_a_death_is_fine() -> None:
    a, b = handover()
    a.lines = [assigned(1), read(2, 0, 4)]
    a.ended_ns = 5
    b.lines[1] = read(7, 0, 10)
    assert complaints([a, b], WRITTEN, {P: 10}) == []


@pytest.mark.parametrize(
    ("member", "line", "replacement", "complaint"),
    [
        (1, 1, read(7, 5, 10), "skipped"),
        (1, 1, read(7, 5, 10), "unread commit"),
        (0, 2, committed(3, 4, 5), "unread commit"),
        (1, 1, Line(7, "read", records=(("t", 0, 4, "other"),)), "altered"),
        (1, 1, Line(7, "read", records=(("t", 0, 4, "v4"), ("t", 0, 6, "v6"))), "jump"),
        (1, 0, assigned(4), "two owners"),
        (0, 2, Line(1, "refused", positions=(("t", 0, 4),), asked_ns=1, why="asked too early"), "unread commit"),
    ],
)
def test_a_broken_promise_is_found(member: int, line: int, replacement: Line, complaint: str) -> None:
    lives = handover()
    lives[member].lines[line] = replacement
    assert any(each.startswith(complaint) for each in complaints(lives, WRITTEN, {P: 10}))


def test_a_position_that_moves_back_is_found() -> None:
    a, b = handover()
    a.stopped_ns = [5]
    a.lines[3:] = [committed(10, 11, 4), revoked(12)]
    assert complaints([a, b], WRITTEN, {P: 10}) == [
        "moved back: A committed 4 of ('t', 0) after B had committed 10",
    ]


def test_commits_at_the_same_time_have_no_order() -> None:
    a, b = handover()
    a.stopped_ns = [5]
    a.lines[3:] = [committed(8, 11, 4), revoked(12)]
    assert complaints([a, b], WRITTEN, {P: 10}) == []


def test_a_position_beyond_the_end_is_found() -> None:
    assert [each.partition(":")[0] for each in complaints(handover(), WRITTEN, {P: 11})] == ["beyond the end"]


def test_what_a_stopped_member_believes_does_not_count() -> None:
    a, b = handover()
    a.stopped_ns = [5]
    a.lines[3] = revoked(20)
    assert complaints([a, b], WRITTEN, {P: 10}) == []
    a.stopped_ns = []
    assert [each.partition(":")[0] for each in complaints([a, b], WRITTEN, {P: 10})] == ["two owners"]


@pytest.mark.parametrize("is_killed", [True, False])
def test_who_was_fenced_had_a_partition_until_its_last_commit_for_certain(is_killed: bool) -> None:
    a, b = handover()
    a.lines[3] = Line(20, "lost", places=(P,))
    if is_killed:
        del a.lines[3]
        a.ended_ns = 20
    assert complaints([a, b], WRITTEN, {P: 10}) == []
    a.lines[2] = committed(7, 8, 4)
    assert [each.partition(":")[0] for each in complaints([a, b], WRITTEN, {P: 10})] == ["two owners"]


def test_who_owns_what() -> None:
    heard = Life("A")
    heard.hear(assigned(1))
    assert heard.owned == {P}
    heard.hear(revoked(2))
    assert heard.owned == set()
    heard.hear(assigned(3))
    heard.end(4)
    assert (heard.owned, heard.ended_ns) == (set(), 4)
