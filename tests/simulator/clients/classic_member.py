"""A member of the classic protocol in the simulation: eager, with the range assignor, static or not.

It joins, hands out the partitions if it leads, and is told its own. When a heartbeat says that the group rebalances, it
commits, gives everything up, and joins again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from tests.simulator.clients.consumer_protocol import (
    PROTOCOL_TYPE,
    assignment_of,
    partitions_in,
    range_assignment,
    subscription_of,
)
from tests.simulator.clients.member import SimMember

from strandline.codec.messages.heartbeat_request import HeartbeatRequest
from strandline.codec.messages.heartbeat_response import HeartbeatResponse
from strandline.codec.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.codec.messages.join_group_response import JoinGroupResponse
from strandline.codec.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from strandline.codec.messages.leave_group_response import LeaveGroupResponse
from strandline.codec.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from strandline.codec.messages.sync_group_response import SyncGroupResponse
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition

JOIN_VERSION: Final = 9
SYNC_VERSION: Final = 5
HEARTBEAT_VERSION: Final = 4
LEAVE_VERSION: Final = 5
ANSWER_S: Final = 5.0
"""How much longer than the others may take to join an answer to a JoinGroup is waited for."""


class SimClassicMember(SimMember):
    fenced_by: ClassVar[tuple[ErrorCode, ...]] = (
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    )
    _assigned: tuple[TopicPartition, ...] = ()
    _protocol: str | None = None
    is_rejoining: bool = False
    """Between two generations."""

    def begin(self) -> None:
        self._join()

    def wants(self, partition: TopicPartition) -> bool:
        return partition in self._assigned

    def on_fenced(self) -> None:
        self.member_id, self.generation = "", -1
        self._join()

    def is_told_off(self, code: int) -> bool:
        """Whether the code says that this is no member any more, and something was done about it."""
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self.end()
        elif code in self.fenced_by:
            self.lose()
        else:
            return False
        return True

    # Joining

    def _rejoin(self) -> None:
        """Give everything up first, because the next owner must find what was processed of it."""
        if not self.is_rejoining:
            self.is_rejoining = True
            self.commit(self._join)

    def _join(self) -> None:
        self.is_rejoining = True
        self.give_up()
        self._assigned = ()
        self.claim(())
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=int(self.manners.session_timeout_s * 1000),
            rebalance_timeout_ms=int(self.manners.rebalance_timeout_s * 1000),
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol("range", subscription_of(self.topics))],
        )
        timeout_s = self.manners.rebalance_timeout_s + ANSWER_S
        self.ask_coordinator(request, JOIN_VERSION, JoinGroupResponse, self._on_joined, timeout_s=timeout_s)

    def _on_joined(self, answer: JoinGroupResponse | None) -> None:
        if answer is None or self.is_elsewhere(answer.error_code):
            self.later(self._join)
        elif answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif answer.error_code:
            if not self.is_told_off(answer.error_code):
                self.later(self._join)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self._protocol = answer.protocol_name
            members = [each.member_id for each in answer.members]
            self._sync(members if answer.leader == self.member_id and not answer.skip_assignment else [])

    def _sync(self, members: Sequence[str]) -> None:
        shares = range_assignment(self.subscribed(), sorted(members))
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=[SyncGroupRequestAssignment(name, assignment_of(share)) for name, share in shares.items()],
        )
        self.ask_coordinator(
            request,
            SYNC_VERSION,
            SyncGroupResponse,
            self._on_synced,
            timeout_s=self.manners.rebalance_timeout_s + ANSWER_S,
        )

    def _on_synced(self, answer: SyncGroupResponse | None) -> None:
        if answer is None or self.is_elsewhere(answer.error_code):
            self.later(self._join)
        elif answer.error_code:
            if not self.is_told_off(answer.error_code):
                self._join()
        else:
            assignment = bytes(answer.assignment)
            self.truth.on_classic_assignment(self.group, self.member_id, self.generation, assignment)
            self.is_rejoining = False
            self.send_late()
            self._assigned = tuple(partitions_in(assignment))
            self.claim(self._assigned)
            self.take(self._assigned)
            self._in_term(self.manners.heartbeat_s * self.random.random(), self._heartbeat)

    # While a generation lasts

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        self.ask_coordinator(request, HEARTBEAT_VERSION, HeartbeatResponse, self._on_heartbeat)

    def _on_heartbeat(self, answer: HeartbeatResponse | None) -> None:
        code = ErrorCode.NONE if answer is None else answer.error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin()
        elif not self.is_told_off(code):
            self.is_elsewhere(code)
            self._in_term(self.manners.heartbeat_s * (0.8 + 0.4 * self.random.random()), self._heartbeat)

    def leave(self) -> None:
        self.commit(self._leave)

    def _leave(self) -> None:
        if self.instance_id is not None:
            # A static member that goes says nothing: it means to be back.
            self.end()
            return
        identity = MemberIdentity(member_id=self.member_id, reason="the application ends")
        request = LeaveGroupRequest(group_id=self.group, members=[identity])
        self.give_up()
        self.ask_coordinator(request, LEAVE_VERSION, LeaveGroupResponse, lambda _: self.end())
