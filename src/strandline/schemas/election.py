"""Which registry is the primary: a group of the classic protocol, of type `sr`, with Confluent's and Karapace's JSON.

Each member joins with its address. The group's leader names the eligible member with the lowest address as primary, and
all learn it by SyncGroup. So registries of different makers that share a topic agree on one primary.

The election only saves work. A registry that knows no primary, or can not reach it, writes itself: the transactional id
keeps two writers apart, whatever the group says.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.coordinators import GROUP, ask_coordinator
from strandline.client.failures import ClientFailed
from strandline.codec.messages.heartbeat_request import HeartbeatRequest
from strandline.codec.messages.heartbeat_response import HeartbeatResponse
from strandline.codec.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.codec.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from strandline.codec.messages.leave_group_request import LeaveGroupRequest
from strandline.codec.messages.leave_group_response import LeaveGroupResponse
from strandline.codec.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from strandline.codec.messages.sync_group_response import SyncGroupResponse
from strandline.errors import Disconnected, ErrorCode, TimedOut, named

PROTOCOL_TYPE: Final = "sr"
PROTOCOL: Final = "v0"
SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 6_000
HEARTBEAT_S: Final = 2.0
_PAUSE_S: Final = 1.0
_LEAVE_VERSION_MAX: Final = 2
"""The last version of LeaveGroup that names one member; every broker knows it."""

logger = logging.getLogger("strandline.schemas")


@dataclass(frozen=True)
class RegistryAddress:
    """Where a registry serves HTTP."""

    host: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


OnPrimary = Callable[[RegistryAddress | None], None]
"""Takes the primary's address, None if it is not known; called by the election's thread."""


def member_metadata(address: RegistryAddress) -> bytes:
    """Return what a member tells the group's leader about itself."""
    return json.dumps({"version": 2, **_identity(address)}, separators=(",", ":")).encode()


def choose(members: Sequence[tuple[str, bytes]]) -> tuple[str, RegistryAddress] | None:
    """Return the member id and the address of the primary: the eligible member with the lowest address."""
    found = []
    for member_id, metadata in members:
        value = _object(metadata)
        address = _address(value)
        if address is not None and value.get("master_eligibility") is not False:
            found.append((address.scheme, address.host, address.port, member_id, address))
    if not found:
        return None
    *_, member_id, address = min(found, key=lambda each: each[:4])
    return member_id, address


def assignment_of(chosen: tuple[str, RegistryAddress] | None) -> bytes:
    """Return what the group's leader tells each member."""
    if chosen is None:
        value: dict[str, Any] = {"version": 2, "error": 0, "master": None, "master_identity": None}
    else:
        value = {"version": 2, "error": 0, "master": chosen[0], "master_identity": _identity(chosen[1])}
    return json.dumps(value, separators=(",", ":")).encode()


def primary_of(assignment: bytes) -> RegistryAddress | None:
    """Return the address of the primary that an assignment names."""
    identity = _object(assignment).get("master_identity")
    return _address(identity) if isinstance(identity, dict) else None


class PrimaryElection:
    """A member of the group, in a thread of its own."""

    def __init__(self, bootstrap: str, group: str, own: RegistryAddress, on_primary: OnPrimary) -> None:
        self._group = group
        self._own = own
        self._on_primary = on_primary
        self._member_id = ""
        self._is_stopping = threading.Event()
        self._client = ClusterClient(
            ClientSettings(
                bootstrap,
                client_id="strandline-registry",
                request_timeout_s=(SESSION_MS + REBALANCE_MS) / 1000,
                api_timeout_s=2 * SESSION_MS / 1000,
            )
        )
        self._thread = threading.Thread(target=self._run, name="registry-election", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leave the group; a rebalance that is under way is not waited for."""
        self._is_stopping.set()
        self._thread.join(HEARTBEAT_S)

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                self._take_part()
            except (ClientFailed, Disconnected, TimedOut) as error:
                self._on_primary(None)
                logger.info("the election of a primary failed, and is tried again: %s", error)
                self._is_stopping.wait(_PAUSE_S)
        try:
            self._leave()
        except (ClientFailed, Disconnected, TimedOut) as error:
            logger.info("the group %s was not left: %s", self._group, error)
        self._client.close()

    def _take_part(self) -> None:
        """Join, learn the primary, and send heartbeats until the group changes."""
        joined = self._join()
        if joined is None:
            return
        assignment = self._sync(joined)
        if assignment is None:
            return
        self._on_primary(primary_of(assignment))
        while not self._is_stopping.wait(HEARTBEAT_S):
            if not self._beat(joined.generation_id):
                return

    def _join(self) -> JoinGroupResponse | None:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=member_metadata(self._own))],
        )
        answer = ask_coordinator(
            self._client,
            "join the group of registries",
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
            members: list[JoinGroupResponseMember] = joined.members
            told = assignment_of(choose([(each.member_id, each.metadata) for each in members]))
            assignments = [SyncGroupRequestAssignment(member_id=each.member_id, assignment=told) for each in members]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        answer = ask_coordinator(
            self._client,
            "learn the primary registry",
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
            "stay in the group of registries",
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
                "leave the group of registries",
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
        if code not in _JOIN_AGAIN:
            self._on_primary(None)
            logger.warning("the group %s rejected a %s: %s", self._group, what, code.name)
            self._is_stopping.wait(_PAUSE_S)
        return False


_JOIN_AGAIN: Final = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.MEMBER_ID_REQUIRED,
)


def _identity(address: RegistryAddress) -> dict[str, Any]:
    return {"host": address.host, "port": address.port, "scheme": address.scheme, "master_eligibility": True}


def _address(value: dict[str, Any]) -> RegistryAddress | None:
    host, port, scheme = value.get("host"), value.get("port"), value.get("scheme", "http")
    if not isinstance(host, str) or not isinstance(port, int) or not isinstance(scheme, str):
        return None
    return RegistryAddress(host, port, scheme)


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
