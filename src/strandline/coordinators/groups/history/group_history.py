"""Why groups rebalanced: a bounded buffer in memory.

A rebalance is opened by its cause (`note`: a member joined, left, timed out ...) and closed when the group is at rest
again (`settle`). Notes in between belong to it. At both ends the assignment of each member is taken. A happening that
moves nothing, such as a static member that came back in time, is an entry of its own.

One history serves all shards of a node, so the buffer is bounded for the node. The entries of a group stay when another
node becomes its coordinator. They are lost when the node stops; its log keeps the sentences.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from strandline.coordinators.groups.classic.classic_group import ClassicGroup, GroupState
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroupState
from strandline.coordinators.groups.history.assignment_diff import (
    Group,
    Held,
    MemberAssignment,
    MemberRef,
    assignments_of,
    is_same,
    size_bytes,
)
from strandline.coordinators.groups.history.flapping_members import FlappingMembers

REBALANCES_PER_GROUP_MAX = 100
HISTORY_BYTES_MAX = 16 * 1024 * 1024
"""Approximate size of the history of a node; the oldest entry of any group is dropped first."""
NOTES_MAX = 200
"""Notes of one rebalance; more are only counted."""
CHANGES_MAX = 1_000
"""Members whose changes one rebalance lists; more are only counted."""
REASON_CHARACTERS_MAX = 255

ENTRY_BYTES = 1_000
NOTE_BYTES = 300
CHANGE_BYTES = 400


class Happening(StrEnum):
    JOINED = "joined"
    RETURNED = "returned"
    """A new process of a static member took over its instance id."""
    LEFT = "left"
    AWAY = "away"
    """A static member left for a while; its assignment is kept."""
    REMOVED = "removed"
    """By an administrator, or because the group is full."""
    TIMED_OUT = "timed out"
    """No heartbeat for the session timeout."""
    LATE = "late"
    """Did not join, ask for its assignment or give up partitions within the rebalance timeout."""
    FENCED = "fenced"
    """Another process has its instance id, or it sent an impossible epoch."""
    ASKED = "asked"
    """A member asks for a rebalance, as a leader of the classic protocol does when topics changed."""
    SUBSCRIBED = "subscribed"
    """A member changed its subscription."""
    TOPICS = "topics"
    """Topics of the subscription came, went or grew."""
    CONVERTED = "converted"
    """The group changed to the other protocol."""
    ASSIGNED = "assigned"
    """The assignment is computed again for another reason, which is given."""


BEGINNINGS = frozenset({Happening.JOINED, Happening.RETURNED})
ENDINGS = frozenset({Happening.LEFT, Happening.REMOVED, Happening.TIMED_OUT, Happening.LATE})


class RebalanceNote(NamedTuple):
    at_ms: int
    what: Happening
    who: MemberRef | None
    reason: str = ""
    flaps: int = 0
    """Short memberships of this client within the last minutes, if there are several."""


class AssignmentChange(NamedTuple):
    """The assignment of one member before and after; nothing before it joined and after it left."""

    who: MemberRef
    before: Held
    after: Held


@dataclass(slots=True, eq=False)
class Rebalance:
    group_id: str
    group_type: str
    began_ms: int
    is_rebalance: bool = True
    """False for a happening that moved nothing."""
    ended_ms: int = -1
    epoch: int = -1
    """The generation or group epoch that came out of it; -1 if it did not end while we looked."""
    members: int = 0
    notes: list[RebalanceNote] = field(default_factory=list)
    notes_left_out: int = 0
    changes: tuple[AssignmentChange, ...] = ()
    changes_left_out: int = 0
    size_bytes: int = ENTRY_BYTES
    before: dict[str, MemberAssignment] | None = None
    """What members owned when it began; None once it has ended."""

    def add(self, note: RebalanceNote) -> None:
        if len(self.notes) >= NOTES_MAX:
            self.notes_left_out += 1
        else:
            self.notes.append(note)


class _Observed:
    """What is remembered of one group."""

    __slots__ = ("flapping", "open", "past")

    def __init__(self) -> None:
        self.open: Rebalance | None = None
        # A list, although the first goes first: it is short, and thousands of groups have one.
        self.past: list[Rebalance] = []
        self.flapping = FlappingMembers()


class GroupHistory:
    def __init__(self, *, since_ms: int = 0) -> None:
        self.since_ms = since_ms
        self._groups: dict[str, _Observed] = {}
        self._ended: OrderedDict[Rebalance, None] = OrderedDict()
        """Over all groups, the oldest first."""
        self._size_bytes = 0

    # ---- what is seen

    def note(
        self,
        group: Group,
        what: Happening,
        who: MemberRef | None,
        now_ms: int,
        *,
        reason: str = "",
        opens: bool = True,
    ) -> RebalanceNote:
        """Note what happens, before the group changes, so that the old assignments are still there."""
        observed = self._groups.get(group.group_id)
        if observed is None:
            observed = self._groups[group.group_id] = _Observed()
        flaps = 0 if who is None else _flaps(observed.flapping, group, what, who, now_ms)
        note = RebalanceNote(now_ms, what, who, reason[:REASON_CHARACTERS_MAX], flaps)
        if observed.open is not None:
            observed.open.add(note)
        elif opens:
            observed.open = Rebalance(group.group_id, _type_of(group), now_ms, before=assignments_of(group))
            observed.open.add(note)
        else:
            self._note_alone(observed, group, note)
        return note

    def _note_alone(self, observed: _Observed, group: Group, note: RebalanceNote) -> None:
        """Gather notes that move nothing in one entry: a process that is fenced for ever must not push out the rest."""
        alone = observed.past.pop() if observed.past and not observed.past[-1].is_rebalance else None
        if alone is None:
            alone = Rebalance(group.group_id, _type_of(group), note.at_ms, is_rebalance=False)
        else:
            del self._ended[alone]
            self._size_bytes -= alone.size_bytes
        if len(alone.notes) >= NOTES_MAX:
            del alone.notes[0]
            alone.notes_left_out += 1
        alone.notes.append(note)
        alone.ended_ms = note.at_ms
        alone.epoch = _epoch_of(group)
        alone.members = len(group.members)
        self._keep(observed, alone)

    def settle(self, group: Group, now_ms: int) -> Rebalance | None:
        """End the open rebalance if the group is at rest; return it."""
        observed = self._groups.get(group.group_id)
        if observed is None or observed.open is None or not is_at_rest(group):
            return None
        rebalance, observed.open = observed.open, None
        rebalance.ended_ms = now_ms
        rebalance.epoch = _epoch_of(group)
        rebalance.group_type = _type_of(group)
        rebalance.members = len(group.members)
        observed.flapping.forget_all_but(group.members, group.static_members)
        changes = _changes(rebalance.before or {}, assignments_of(group))
        rebalance.before = None
        rebalance.changes = tuple(changes[:CHANGES_MAX])
        rebalance.changes_left_out = len(changes) - len(rebalance.changes)
        self._keep(observed, rebalance)
        return rebalance

    def is_open(self, group_id: str) -> bool:
        observed = self._groups.get(group_id)
        return observed is not None and observed.open is not None

    def interrupt(self, group_id: str, now_ms: int) -> None:
        """Close the open rebalance, because another coordinator continues it."""
        observed = self._groups.get(group_id)
        if observed is not None and observed.open is not None:
            rebalance, observed.open = observed.open, None
            rebalance.ended_ms = now_ms
            rebalance.before = None
            self._keep(observed, rebalance)

    def start_over(self, group_id: str) -> None:
        """Forget the open rebalance and the times of joining, because the group was loaded from its records."""
        observed = self._groups.get(group_id)
        if observed is not None:
            observed.open = None
            observed.flapping.forget_joins()
            self._maybe_forget(group_id, observed)

    # ---- what is reported

    def of(self, group_id: str) -> list[Rebalance]:
        """Return the rebalances of the group, the oldest first; the last one may be in progress."""
        observed = self._groups.get(group_id)
        if observed is None:
            return []
        return [*observed.past, observed.open] if observed.open is not None else list(observed.past)

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    # ---- what is kept

    def _keep(self, observed: _Observed, rebalance: Rebalance) -> None:
        rebalance.size_bytes = _size_of(rebalance)
        self._size_bytes += rebalance.size_bytes
        self._ended[rebalance] = None
        observed.past.append(rebalance)
        if len(observed.past) > REBALANCES_PER_GROUP_MAX:
            self._let_go(observed)
        while self._size_bytes > HISTORY_BYTES_MAX:
            oldest = next(iter(self._ended))
            of_group = self._groups[oldest.group_id]
            self._let_go(of_group)
            self._maybe_forget(oldest.group_id, of_group)

    def _let_go(self, observed: _Observed) -> None:
        oldest = observed.past.pop(0)
        del self._ended[oldest]
        self._size_bytes -= oldest.size_bytes

    def _maybe_forget(self, group_id: str, observed: _Observed) -> None:
        if not observed.past and observed.open is None and not observed.flapping:
            del self._groups[group_id]


def _changes(before: dict[str, MemberAssignment], after: dict[str, MemberAssignment]) -> list[AssignmentChange]:
    # A static member that came back has another member id and is the same member to everybody.
    came_back = {holding.who.instance_id: holding for member_id, holding in after.items() if member_id not in before}
    came_back.pop(None, None)
    changes = []
    for member_id, (who, held) in before.items():
        now = after.get(member_id) or (came_back.pop(who.instance_id, None) if who.instance_id is not None else None)
        if now is None:
            changes.append(AssignmentChange(who, held, b""))
        elif not is_same(held, now.held):
            changes.append(AssignmentChange(now.who, held, now.held))
    changes.extend(
        AssignmentChange(who, b"", held)
        for member_id, (who, held) in after.items()
        if member_id not in before and (who.instance_id is None or who.instance_id in came_back)
    )
    return changes


def _flaps(flapping: FlappingMembers, group: Group, what: Happening, who: MemberRef, now_ms: int) -> int:
    if what in BEGINNINGS:
        flapping.begin(who, now_ms)
    elif what is Happening.LEFT and len(group.members) <= 1:
        # A command that read what was there and left, and disturbed no other member.
        flapping.leave(who)
    elif what in ENDINGS:
        flapping.end(who, now_ms)
    return flapping.flaps(who, now_ms)


def is_at_rest(group: Group) -> bool:
    if isinstance(group, ClassicGroup):
        return group.state in (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD)
    return group.state in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)


def _epoch_of(group: Group) -> int:
    return group.generation_id if isinstance(group, ClassicGroup) else group.group_epoch


def _type_of(group: Group) -> str:
    return "classic" if isinstance(group, ClassicGroup) else "consumer"


def _size_of(rebalance: Rebalance) -> int:
    notes = sum(NOTE_BYTES + len(note.reason) + _name_bytes(note.who) for note in rebalance.notes)
    changes = sum(
        CHANGE_BYTES + _name_bytes(change.who) + size_bytes(change.before) + size_bytes(change.after)
        for change in rebalance.changes
    )
    return ENTRY_BYTES + notes + changes


def _name_bytes(who: MemberRef | None) -> int:
    return 0 if who is None else len(who.member_id) + len(who.instance_id or "") + len(who.client_id)
