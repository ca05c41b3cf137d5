"""Which registry is the primary: a group of the classic protocol, of type `sr`, with Confluent's and Karapace's JSON.

Each member joins with its address. The group's leader names the eligible member with the lowest address as primary, and
all learn it by SyncGroup. So registries of different makers that share a topic agree on one primary.

The election only saves work. A registry that knows no primary, or can not reach it, writes itself: the transactional id
keeps two writers apart, whatever the group says.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from strandline.client.group_participant import Generation, GroupParticipant

PROTOCOL_TYPE: Final = "sr"
PROTOCOL: Final = "v0"

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
    """A member of the group of registries."""

    type: str = PROTOCOL_TYPE
    name: str = PROTOCOL

    def __init__(self, bootstrap: str, group: str, own: RegistryAddress, on_primary: OnPrimary) -> None:
        self._own = own
        self._on_primary = on_primary
        self._member = GroupParticipant(bootstrap, group, self, client_id="strandline-registry", logger=logger)

    def start(self) -> None:
        self._member.start()

    def stop(self) -> None:
        """Leave the group; a rebalance that is under way is not waited for."""
        self._member.stop()

    def metadata(self) -> bytes:
        return member_metadata(self._own)

    def assign(self, members: Sequence[tuple[str, bytes]]) -> Mapping[str, bytes]:
        told = assignment_of(choose(members))
        return {member_id: told for member_id, _ in members}

    def on_assigned(self, generation: Generation, assignment: bytes) -> None:
        self._on_primary(primary_of(assignment))

    def on_lost(self, *, is_expelled: bool) -> None:
        if not is_expelled:
            # A member that was expelled joins again at once, and the primary may be the same.
            self._on_primary(None)


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
