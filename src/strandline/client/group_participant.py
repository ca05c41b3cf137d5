"""A member of a group of the classic protocol that shares something other than partitions of topics.

Schema registries elect their primary this way, and Connect's workers share tasks. A thread joins, learns its
assignment and sends heartbeats until the group changes. What members tell one another is up to a `GroupProtocol`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.coordinators import GROUP, ask_coordinator
from strandline.client.failures import ClientFailed
from strandline.codec.messages.heartbeat_request import HeartbeatRequest
from strandline.codec.messages.heartbeat_response import HeartbeatResponse
from strandline.codec.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.codec.messages.join_group_response import JoinGroupResponse
from strandline.codec.messages.leave_group_request import LeaveGroupRequest
from strandline.codec.messages.leave_group_response import LeaveGroupResponse
from strandline.codec.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from strandline.codec.messages.sync_group_response import SyncGroupResponse
from strandline.errors import Disconnected, ErrorCode, TimedOut, named

SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 6_000
HEARTBEAT_S: Final = 2.0
_PAUSE_S: Final = 1.0
_LEAVE_VERSION_MAX: Final = 2
"""The last version of LeaveGroup that names one member; every broker knows it."""
_JOIN_AGAIN: Final = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.MEMBER_ID_REQUIRED,
)


class GroupProtocol(Protocol):
    """What the members of a group tell one another. The member's thread calls every method."""

    type: str
    name: str

    def metadata(self) -> bytes:
        """Return what this member tells the leader when it joins."""

    def assign(self, members: Sequence[tuple[str, bytes]]) -> Mapping[str, bytes]:
        """Return the assignment of each member, by its id; only the leader's is called."""

    def on_assigned(self, generation: Generation, assignment: bytes) -> None:
        """Take what the leader has assigned."""

    def on_lost(self, *, is_expelled: bool) -> None:
        """Learn that the group cannot be reached, or that it has expelled this member: others have its work then."""


@dataclass(frozen=True)
class Generation:
    """A member's place in the group, until the next rebalance."""

    number: int
    member_id: str
    leader_id: str

    @property
    def is_leader(self) -> bool:
        return self.member_id == self.leader_id


@dataclass(frozen=True)
class GroupTimes:
    """When the group gives up a silent member, and how long it waits for members to join."""

    session_ms: int = SESSION_MS
    rebalance_ms: int = REBALANCE_MS
    heartbeat_s: float = HEARTBEAT_S


class GroupParticipant:
    """A member of a group, in a thread of its own."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        protocol: GroupProtocol,
        *,
        client_id: str,
        times: GroupTimes | None = None,
        logger: logging.Logger,
    ) -> None:
        self._group = group
        self._protocol = protocol
        self._times = times = times or GroupTimes()
        self._logger = logger
        self._member_id = ""
        self._is_stopping = False
        self._woken = threading.Event()
        self._wants_to_join = False
        self._client = ClusterClient(
            ClientSettings(
                bootstrap,
                client_id=client_id,
                request_timeout_s=(times.session_ms + times.rebalance_ms) / 1000,
                api_timeout_s=2 * times.session_ms / 1000,
            )
        )
        self._thread = threading.Thread(target=self._run, name=f"group-{group}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def rejoin(self) -> None:
        """Have the group rebalance, for example because there is something new to assign. Any thread may call this."""
        self._wants_to_join = True
        self._woken.set()

    def stop(self) -> None:
        """Leave the group; a rebalance that is under way is not waited for."""
        self._is_stopping = True
        self._woken.set()
        self._thread.join(self._times.heartbeat_s)

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                self._take_part()
            except (ClientFailed, Disconnected, TimedOut) as error:
                self._protocol.on_lost(is_expelled=False)
                self._logger.info("the group %s cannot be joined, and is tried again: %s", self._group, error)
                self._pause()
        try:
            self._leave()
        except (ClientFailed, Disconnected, TimedOut) as error:
            self._logger.info("the group %s was not left: %s", self._group, error)
        self._client.close()

    def _pause(self) -> None:
        if not self._is_stopping:
            self._woken.wait(_PAUSE_S)

    def _take_part(self) -> None:
        """Join, learn the assignment, and send heartbeats until the group changes."""
        self._wants_to_join = False
        joined = self._join()
        if joined is None:
            return
        assignment = self._sync(joined)
        if assignment is None:
            return
        self._protocol.on_assigned(Generation(joined.generation_id, joined.member_id, joined.leader), assignment)
        while not self._is_stopping and not self._wants_to_join:
            self._woken.wait(self._times.heartbeat_s)
            self._woken.clear()
            if self._is_stopping or self._wants_to_join or not self._beat(joined.generation_id):
                return

    def _join(self) -> JoinGroupResponse | None:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=self._times.session_ms,
            rebalance_timeout_ms=self._times.rebalance_ms,
            member_id=self._member_id,
            protocol_type=self._protocol.type,
            protocols=[JoinGroupRequestProtocol(name=self._protocol.name, metadata=self._protocol.metadata())],
        )
        answer = ask_coordinator(
            self._client,
            f"join the group {self._group}",
            self._group,
            request,
            JoinGroupResponse,
            lambda answer: answer.error_code,
            key_type=GROUP,
        )
        code = named(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self._member_id = answer.member_id
        return answer if self._is_fine(code, "join") else None

    def _sync(self, joined: JoinGroupResponse) -> bytes | None:
        assignments = []
        if joined.leader == joined.member_id:
            assigned = self._protocol.assign([(each.member_id, each.metadata) for each in joined.members])
            assignments = [SyncGroupRequestAssignment(member_id=each, assignment=it) for each, it in assigned.items()]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type=self._protocol.type,
            protocol_name=self._protocol.name,
            assignments=assignments,
        )
        answer = ask_coordinator(
            self._client,
            f"learn the assignment of the group {self._group}",
            self._group,
            request,
            SyncGroupResponse,
            lambda answer: answer.error_code,
            key_type=GROUP,
        )
        return answer.assignment if self._is_fine(named(answer.error_code), "sync") else None

    def _beat(self, generation_id: int) -> bool:
        request = HeartbeatRequest(group_id=self._group, generation_id=generation_id, member_id=self._member_id)
        answer = ask_coordinator(
            self._client,
            f"stay in the group {self._group}",
            self._group,
            request,
            HeartbeatResponse,
            lambda answer: answer.error_code,
            key_type=GROUP,
        )
        return self._is_fine(named(answer.error_code), "heartbeat")

    def _leave(self) -> None:
        if self._member_id:
            ask_coordinator(
                self._client,
                f"leave the group {self._group}",
                self._group,
                LeaveGroupRequest(group_id=self._group, member_id=self._member_id),
                LeaveGroupResponse,
                lambda answer: answer.error_code,
                key_type=GROUP,
                version_max=_LEAVE_VERSION_MAX,
            )

    def _is_fine(self, code: ErrorCode, what: str) -> bool:
        """Say whether the group goes on as it is; if not, the next step is to join again."""
        if code == ErrorCode.NONE:
            return True
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = ""
            self._protocol.on_lost(is_expelled=True)
        if code not in _JOIN_AGAIN:
            self._protocol.on_lost(is_expelled=False)
            self._logger.warning("the group %s rejected a %s: %s", self._group, what, code.name)
            self._pause()
        return False
