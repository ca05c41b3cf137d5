"""What a group is promised, read from what its members said. Pure.

| complaint | rule |
|---|---|
| altered | a record is what was written at its offset |
| skipped | every record below the group's position was read by somebody |
| unread commit | when a position is committed, every record below it has been read |
| beyond the end | the group's position is no further than what was read |
| moved back | a commit that began after another had succeeded is at the same position or a later one |
| jump | what a member reads of a partition from when it was given is dense and goes up |
| two owners | no partition is two members' at the same time |

"Two owners" leaves out what a member believes while it is stopped and until it notices: no broker can take a partition
from the mind of a process that does not run. A busy machine stops processes, too; so of a member that lost a partition,
or was killed, it is certain only that it had it until its last commit. Commits themselves are never left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.clients.groups.telling import Line, Place


@dataclass
class Life:
    """One member: what it said, and what was done to it."""

    name: str
    lines: list[Line] = field(default_factory=list)
    stopped_ns: list[int] = field(default_factory=list)
    """When it was paused; from then on its word on what it owns does not count until it is given something anew."""
    ended_ns: int | None = None
    """When it was killed or had left."""
    owned: set[Place] = field(default_factory=set)
    """What it said last that it owns."""

    def hear(self, line: Line) -> None:
        self.lines.append(line)
        if line.did == "assigned":
            self.owned |= set(line.places)
        elif line.did in ("revoked", "lost"):
            self.owned -= set(line.places)
        elif line.did == "closing":
            self.owned.clear()

    def end(self, at_ns: int) -> None:
        if self.ended_ns is None:
            self.ended_ns = at_ns
        self.owned.clear()


def complaints(
    lives: Sequence[Life], written: Mapping[Place, Sequence[str]], positions: Mapping[Place, int]
) -> list[str]:
    """What is wrong; `written` are the values by offset, `positions` what the group has committed in the end."""
    found = [*_altered(lives, written), *_unread_commits(lives), *_moved_back(lives), *_jumps(lives)]
    first_read = _first_reads(lives)
    for place, position in sorted(positions.items()):
        unread = [offset for offset in range(position) if (place, offset) not in first_read]
        if position > len(written.get(place, ())):
            found.append(f"beyond the end: {place} is committed at {position} of {len(written.get(place, ()))}")
        elif unread:
            found.append(f"skipped: {place} is committed at {position}, and nobody read {unread[:10]}")
    return [*found, *_two_owners(lives)]


def reads(lives: Sequence[Life]) -> Iterator[tuple[Life, Line, Place, int, str]]:
    for life in lives:
        for line in life.lines:
            for topic, number, offset, value in line.records:
                yield life, line, (topic, number), offset, value


def _first_reads(lives: Sequence[Life]) -> dict[tuple[Place, int], int]:
    first: dict[tuple[Place, int], int] = {}
    for _, line, place, offset, _ in reads(lives):
        first[place, offset] = min(line.at_ns, first.get((place, offset), line.at_ns))
    return first


def _altered(lives: Sequence[Life], written: Mapping[Place, Sequence[str]]) -> Iterator[str]:
    for life, _, place, offset, value in reads(lives):
        values = written.get(place, ())
        if offset >= len(values) or values[offset] != value:
            yield f"altered: {life.name} read {value!r} at {offset} of {place}"


def _unread_commits(lives: Sequence[Life]) -> Iterator[str]:
    first = _first_reads(lives)
    ends: dict[Place, int] = {}
    for place, offset in first:
        ends[place] = max(ends.get(place, 0), offset + 1)
    # When everything below an offset had been read: the latest of the first reads up to there.
    read_below: dict[Place, list[float]] = {}
    for place, end in ends.items():
        times: list[float] = [0]
        for offset in range(end):
            times.append(max(times[-1], first.get((place, offset), float("inf"))))
        read_below[place] = times
    for life in lives:
        for line in life.lines:
            if line.did not in ("committed", "refused"):
                continue
            for topic, number, position in line.positions:
                times = read_below.get((topic, number), [0])
                if position >= len(times) or times[position] > line.asked_ns:
                    yield f"unread commit: {life.name} asked for {position} of {(topic, number)} before all was read"


def _moved_back(lives: Sequence[Life]) -> Iterator[str]:
    """Only commits of which one began when the other was over have an order."""
    commits: dict[Place, list[tuple[int, int, int, str]]] = {}
    for life in lives:
        for line in life.lines:
            if line.did == "committed":
                for topic, number, position in line.positions:
                    commits.setdefault((topic, number), []).append((line.asked_ns, line.at_ns, position, life.name))
    for place, found in sorted(commits.items()):
        by_end = sorted(found, key=lambda commit: commit[1])
        over, highest, holder = 0, -1, ""
        for asked_ns, _, position, name in sorted(found):
            while over < len(by_end) and by_end[over][1] < asked_ns:
                if by_end[over][2] > highest:
                    highest, holder = by_end[over][2], by_end[over][3]
                over += 1
            if position < highest:
                yield f"moved back: {name} committed {position} of {place} after {holder} had committed {highest}"


def _jumps(lives: Sequence[Life]) -> Iterator[str]:
    for life in lives:
        last: dict[Place, int] = {}
        for line in life.lines:
            if line.did in ("assigned", "revoked", "lost"):
                for place in line.places:
                    last.pop(place, None)
            for topic, number, offset, _ in line.records:
                before = last.get((topic, number))
                if before is not None and offset != before + 1:
                    yield f"jump: {life.name} read {offset} of {(topic, number)} after {before}"
                last[topic, number] = offset


def _two_owners(lives: Sequence[Life]) -> Iterator[str]:
    spans: dict[Place, list[tuple[float, float, str]]] = {}
    for life in lives:
        for place, start_ns, end_ns in _ownership(life):
            spans.setdefault(place, []).append((start_ns, end_ns, life.name))
    for place, found in sorted(spans.items()):
        found.sort()
        for (_, end_ns, first), (start_ns, _, second) in pairwise(found):
            if start_ns < end_ns and first != second:
                yield (
                    f"two owners: {place} was given to {second} while {first} had it, for {(end_ns - start_ns) / 1e9} s"
                )


def _ownership(life: Life) -> Iterator[tuple[Place, float, float]]:
    """From when to when a member had a partition for certain."""
    events = [
        # A commit was let pass at some moment between the question and the answer.
        (line.asked_ns, line.did, tuple((topic, number) for topic, number, _ in line.positions))
        if line.did == "committed"
        else (line.at_ns, line.did, line.places)
        for line in life.lines
    ]
    events += [(at_ns, "stopped", ()) for at_ns in life.stopped_ns]
    since: dict[Place, int] = {}
    proven: dict[Place, int] = {}
    for at_ns, did, places in sorted(events, key=lambda event: event[0]):
        if did == "assigned":
            for place in places:
                since.setdefault(place, at_ns)
                proven[place] = at_ns
        elif did == "committed":
            proven.update(dict.fromkeys(places, at_ns))
        elif did == "closing":
            yield from ((place, start_ns, at_ns) for place, start_ns in since.items())
            since = {}
        elif did == "stopped":
            yield from ((place, start_ns, proven[place]) for place, start_ns in since.items())
            since = {}
        elif did in ("revoked", "lost"):
            for place in places:
                if place in since:
                    yield place, since.pop(place), at_ns if did == "revoked" else proven[place]
    is_alive = life.ended_ns is None
    yield from ((place, start_ns, float("inf") if is_alive else proven[place]) for place, start_ns in since.items())
