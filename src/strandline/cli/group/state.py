"""A group at one moment: its members, what each owns, and how that is said in words (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

NAMES_SHOWN = 5
STATIC_LEAVE_EPOCH = -2

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True)
class GroupMember:
    """`owned` is None where what it owns cannot be read; epochs are None where the protocol has none."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    owned: tuple[Place, ...] | None
    target: tuple[Place, ...] | None = None
    """What it shall own, where the coordinator assigns and that is something else than it owns."""
    protocol: str = "classic"
    epoch: int | None = None
    rack: str | None = None
    topics: tuple[str, ...] | None = None
    """What it subscribes to by name; None where that is not told."""
    pattern: str | None = None

    @property
    def name(self) -> str:
        """What a person calls it."""
        return self.instance_id or self.client_id or self.member_id

    @property
    def is_away(self) -> bool:
        """Whether this is a static member that said it would be back."""
        return self.epoch == STATIC_LEAVE_EPOCH

    @property
    def described(self) -> str:
        facts = [self.host.removeprefix("/")] if self.host else []
        facts += ["away, its seat is kept"] if self.is_away else []
        return f"{self.name} ({', '.join(facts)})" if facts else self.name


@dataclass(frozen=True)
class GroupDescription:
    group_id: str
    group_type: str
    state: str
    coordinator: int | None
    protocol_type: str = "consumer"
    assignor: str = ""
    epoch: int | None = None
    assignment_epoch: int | None = None
    members: tuple[GroupMember, ...] | None = ()
    """None where they are not told, as for kinds of groups that we do not know."""


def partitions_words(places: Iterable[Place] | None) -> str:
    """`orders-0..2, orders-5, paid-0`: runs of partitions are drawn together."""
    if places is None:
        return "unknown"
    words: list[str] = []
    ordered = sorted(places)
    at = 0
    while at < len(ordered):
        topic, first = ordered[at]
        last = first
        while at + 1 < len(ordered) and ordered[at + 1] == (topic, last + 1):
            at, last = at + 1, last + 1
        at += 1
        words.append(f"{topic}-{first}" if first == last else f"{topic}-{first}..{last}")
    return ", ".join(words) or "nothing"


def names_words(members: Iterable[GroupMember]) -> str:
    """Who they are, the first few by name."""
    names = [member.described for member in members]
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def places_json(places: Iterable[Place] | None) -> list[dict[str, object]] | None:
    if places is None:
        return None
    return [{"topic": topic, "partition": partition} for topic, partition in sorted(places)]
