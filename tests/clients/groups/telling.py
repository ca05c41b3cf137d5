"""What a member of a group is told to do, and what it says: one JSON object a line, the same for every client.

A member is a process of its own, so that it can be killed and paused like one. Its only argument is `Wanted` as JSON.
It reads until its standard input ends, which makes it leave; it says what it does on standard output:

    {"at": 81, "did": "assigned", "places": [["orders", 0], ["orders", 1]]}    also "revoked" and "lost"
    {"at": 82, "did": "read", "records": [["orders", 0, 17, "17"]]}
    {"at": 84, "did": "committed", "asked": 83, "positions": [["orders", 0, 18]]}
    {"at": 84, "did": "refused", "asked": 83, "positions": [["orders", 0, 18]], "why": "ILLEGAL_GENERATION"}
    {"at": 90, "did": "closing"}    and "closed" when it has left

Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share. A record is said to be read before
its position is committed, and a line leaves in one write: what was committed was said, whenever the process dies. A
position that was refused is committed again with the next one, unless the partition was taken away.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

Place: TypeAlias = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(frozen=True)
class Wanted:
    """What a member shall be."""

    name: str
    bootstrap: str
    group: str
    topics: tuple[str, ...]
    pattern: str | None = None
    """A regular expression instead of topics; it begins with `^`, as librdkafka wants it."""
    instance: str | None = None
    protocol: str = "classic"
    assignor: str = "range"
    session_ms: int = 6_000
    heartbeat_ms: int = 300
    metadata_age_ms: int = 500

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Wanted:
        fields = json.loads(text)
        return cls(**{**fields, "topics": tuple(fields["topics"])})


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a member did."""

    at_ns: int
    did: str
    places: tuple[Place, ...] = ()
    records: tuple[tuple[str, int, int, str], ...] = ()
    positions: tuple[tuple[str, int, int], ...] = ()
    asked_ns: int = 0
    why: str = ""

    @classmethod
    def of(cls, text: str | bytes) -> Line:
        fields: dict[str, Any] = json.loads(text)
        return cls(
            fields["at"],
            fields["did"],
            tuple((topic, number) for topic, number in fields.get("places", ())),
            tuple((topic, number, offset, value) for topic, number, offset, value in fields.get("records", ())),
            tuple((topic, number, offset) for topic, number, offset in fields.get("positions", ())),
            fields.get("asked", 0),
            fields.get("why", ""),
        )


class Teller:
    """A member's voice; its methods may be called from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._one_at_a_time = threading.Lock()

    def assigned(self, places: Iterable[Place]) -> None:
        self._say("assigned", places=sorted(places))

    def revoked(self, places: Iterable[Place]) -> None:
        self._say("revoked", places=sorted(places))

    def lost(self, places: Iterable[Place]) -> None:
        self._say("lost", places=sorted(places))

    def read(self, records: Iterable[tuple[str, int, int, bytes | None]]) -> None:
        said = [[topic, number, offset, (value or b"").decode()] for topic, number, offset, value in records]
        self._say("read", records=said)

    def committed(self, positions: Mapping[Place, int], asked_ns: int) -> None:
        self._say("committed", asked=asked_ns, positions=_rows(positions))

    def refused(self, positions: Mapping[Place, int], asked_ns: int, why: str) -> None:
        self._say("refused", asked=asked_ns, positions=_rows(positions), why=why)

    def closing(self) -> None:
        self._say("closing")

    def closed(self) -> None:
        self._say("closed")

    def _say(self, did: str, **fields: object) -> None:
        with self._one_at_a_time:
            line = json.dumps({"at": time.monotonic_ns(), "did": did, **fields}).encode() + b"\n"
            while line:
                line = line[os.write(self._descriptor, line) :]


def _rows(positions: Mapping[Place, int]) -> list[tuple[str, int, int]]:
    return [(topic, number, offset) for (topic, number), offset in sorted(positions.items())]
