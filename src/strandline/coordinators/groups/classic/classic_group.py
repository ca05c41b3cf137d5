"""The state of one group of the classic protocol, and the invariants that hold whatever the protocol does with it.

    Empty ──> PreparingRebalance ──> CompletingRebalance ──> Stable
      ^             │    ^                   │                  │
      └─────────────┘    └───────────────────┴──────────────────┘          any ──> Dead

A generation is one agreed membership. Members that wait for it are parked in `awaiting_join`, members that wait for
their assignment in `awaiting_sync`; both hold the tokens of the requests that are answered when the wait ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from strandline.coordinators.groups.shard_terms import Token
from strandline.errors import ErrorCode


class GroupState(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


class Protocol(NamedTuple):
    """An assignment strategy that a member supports, and its metadata for the leader that assigns with it."""

    name: str
    metadata: bytes


@dataclass(slots=True, eq=False)
class ClassicGroupMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    """Does not know its member id yet, so it cannot send heartbeats and must not wait for ever."""

    def metadata_of(self, protocol_name: str | None) -> bytes:
        return next(protocol.metadata for protocol in self.protocols if protocol.name == protocol_name)


class ClassicGroup:
    def __init__(self, group_id: str, *, now_ms: int = -1) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = now_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}
        """Instance id to member id."""
        self.pending_join: dict[str, None] = {}
        """Member ids that were handed out and not joined with yet. A dict, so that effects come in a fixed order."""
        self.pending_sync: dict[str, None] = {}
        """Members of this generation that have not asked for their assignment yet."""
        self.awaiting_join: dict[str, Token] = {}
        self.awaiting_sync: dict[str, Token] = {}
        self.supporters: Counter[str] = Counter()
        """How many members can follow each protocol."""
        self.is_agreed = True
        """False if the log says that these members never agreed on a generation: who loads the group has it rebalance.
        It was a consumer group, and the one that took over from it died before the first rebalance was done."""
        self.joined_during_initial_delay = False
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0

    # ---- questions

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        return len(self.awaiting_join) == len(self.members) and not self.pending_join

    @property
    def can_rebalance(self) -> bool:
        return self.state in PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    @property
    def is_initial_rebalance(self) -> bool:
        return self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY

    def supports(self, protocol_type: str, protocols: Iterable[Protocol]) -> bool:
        """Return whether a member that offers these protocols can live with the members that are there."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        return protocol_type == self.protocol_type and any(
            self.supporters[protocol.name] == len(self.members) for protocol in protocols
        )

    def member_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return why the sender is not a member; a static one is fenced when another process has its instance id."""
        if group_instance_id is not None:
            known_id = self.static_members.get(group_instance_id)
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def select_protocol(self) -> str:
        """Return the protocol with the most votes; each member votes for its first one that all support."""
        candidates = {name for name, count in self.supporters.items() if count == len(self.members)}
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(protocol.name for protocol in member.protocols if protocol.name in candidates)] += 1
        return max(votes, key=votes.__getitem__)

    # ---- changes

    def transition_to(self, state: GroupState, *, now_ms: int) -> None:
        assert self.state in PREVIOUS_STATES[state], f"group {self.group_id!r}: {self.state} to {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def add(self, member: ClassicGroupMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        assert member.member_id not in self.members
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.supporters.update(protocol.name for protocol in member.protocols)
        self.pending_join.pop(member.member_id, None)

    def update(
        self,
        member: ClassicGroupMember,
        protocols: tuple[Protocol, ...],
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self.supporters.subtract(protocol.name for protocol in member.protocols)
        self.supporters.update(protocol.name for protocol in protocols)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member, whose waiting requests were answered before."""
        assert member_id not in self.awaiting_join
        assert member_id not in self.awaiting_sync
        member = self.members.pop(member_id, None)
        if member is not None:
            self.supporters.subtract(protocol.name for protocol in member.protocols)
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)

    def replace_static(self, old_id: str, new_id: str) -> ClassicGroupMember:
        """Give the instance id to a new process: the same assignment, another member id."""
        assert old_id not in self.awaiting_join
        assert old_id not in self.awaiting_sync
        member = self.members.pop(old_id)
        assert member.group_instance_id is not None
        member.member_id = new_id
        member.is_new = False
        self.members[new_id] = member
        self.static_members[member.group_instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_sync:
            del self.pending_sync[old_id]
            self.pending_sync[new_id] = None
        return member

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined again, else take the first member that has; False if there is none."""
        if self.leader_id is None:
            return False
        if self.leader_id not in self.awaiting_join:
            joined = next((member_id for member_id in self.members if member_id in self.awaiting_join), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True

    def begin_next_generation(self, *, now_ms: int) -> None:
        self.generation_id += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now_ms=now_ms)
        else:
            self.protocol_name = None
            self.transition_to(GroupState.EMPTY, now_ms=now_ms)
        self.pending_sync.clear()
