"""What ShareFetch and ShareAcknowledge share: the member, its session, and its acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from strandline.codec.current_leader import NodeEndpoint
from strandline.codec.shares import Batch, SharePartitionRequest, SharePartitionResponse
from strandline.coordinators.shares.delivery.acknowledgements import RENEW, AcknowledgedBatch
from strandline.coordinators.shares.delivery.share_sessions import PartitionName
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.access.client_guard import ClientGuard
from strandline.handlers.access.data_access import guard_of, may_read
from strandline.handlers.support.absent_partitions import ASK_ANOTHER, current_leader, why_absent
from strandline.handlers.support.broker_endpoints import endpoint_of
from strandline.handlers.support.context import BrokerServices, Connection
from strandline.handlers.support.services import ServedSharePartition
from strandline.log.segment.log_slice import LogSlice
from strandline.quorum.image.cluster_image import SHARE_VERSION
from strandline.security.acl.kinds import Operation, ResourceType

MEMBER_ID_CHARACTERS_MAX: Final = 36
"""As long as a UUID in text."""

Result = SharePartitionResponse[LogSlice]


def check_member(
    node: BrokerServices, connection: Connection, api: str, group_id: str | None, member_id: str | None
) -> tuple[str, str, ClientGuard | None]:
    """Return group id, member id and the rights of the client, or raise RequestError."""
    if not node.image.features.get(SHARE_VERSION, 0):
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION, "share groups are not enabled")
    if not group_id:
        raise RequestError(ErrorCode.INVALID_REQUEST, "a share group needs an id")
    guard = None
    if node.authorizer is not None:
        guard = guard_of(node, connection, api)
        if not guard.allows(Operation.READ, ResourceType.GROUP, group_id):
            raise RequestError(ErrorCode.GROUP_AUTHORIZATION_FAILED, f"no access to group {group_id!r}")
    if not member_id or len(member_id) > MEMBER_ID_CHARACTERS_MAX:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"a member id has 1 to {MEMBER_ID_CHARACTERS_MAX} characters: {member_id!r}"
        )
    return group_id, member_id, guard


def served_partition(
    node: BrokerServices, group_id: str, name: PartitionName, guard: ClientGuard | None
) -> ServedSharePartition | ErrorCode:
    """Return a share partition, which may still be loaded, or why this broker does not serve it."""
    if guard is not None and not may_read(guard, node, name[0]):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    found = node.share_delivery.find(group_id, name)
    if found is not None:
        return found
    partitions, index = node.topics.get(name[0]), name[1]
    partition = partitions[index] if partitions is not None and 0 <= index < len(partitions) else None
    if partition is None or not partition.is_leader:
        return why_absent(node, *name)
    return node.share_delivery.open(group_id, partition)


def checked_batches(batches: Iterable[Batch], *, is_renewal: bool) -> list[AcknowledgedBatch]:
    """Return acknowledgements that are in order and whole, or raise RequestError."""
    checked: list[AcknowledgedBatch] = []
    end, type_max = -1, RENEW if is_renewal else RENEW - 1
    for first, last, types in batches:
        if not end < first <= last:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"offsets {first} to {last} behind {end}")
        if not types or (len(types) > 1 and len(types) != last - first + 1):
            raise RequestError(ErrorCode.INVALID_REQUEST, f"{len(types)} types for offsets {first} to {last}")
        if max(types) > type_max:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"unknown acknowledgement type {max(types)}")
        checked.append(AcknowledgedBatch(first, last, types))
        end = last
    return checked


class Acknowledging:
    """The acknowledgements of one request, until all of them are stored or refused."""

    __slots__ = ("_on_all", "pending", "refused")

    def __init__(self) -> None:
        self._on_all: Callable[[], object] | None = None
        self.pending: int = 0
        self.refused: dict[PartitionName, tuple[ErrorCode, str | None]] = {}
        """The outcome for each partition; NONE if it was stored."""

    def start(
        self,
        node: BrokerServices,
        group_id: str,
        member_id: str,
        asked: Iterable[SharePartitionRequest],
        guard: ClientGuard | None,
        on_all: Callable[[], object],
        *,
        is_renewal: bool,
    ) -> None:
        """Apply them. `on_all` is called when the last one is answered, and not before this returns."""
        self._on_all = on_all
        self.pending = 1
        for topic_id, index, batches in asked:
            if not batches:
                continue
            name = topic_id, index
            try:
                checked = checked_batches(batches, is_renewal=is_renewal)
            except RequestError as error:
                self.refused[name] = ErrorCode(error.code), str(error)
                continue
            served = _holder(node, group_id, name, guard)
            if isinstance(served, ErrorCode):
                self.refused[name] = served, None
                continue
            self.pending += 1
            served.acknowledge(member_id, checked, _Outcome(self, name))
        node.runtime.call_soon(self.done_one)

    def done_one(self) -> None:
        self.pending -= 1
        if not self.pending:
            # The request that is called keeps this: without a cycle, both are freed when it is answered.
            on_all, self._on_all = self._on_all, None
            assert on_all is not None
            on_all()


class _Outcome:
    """What takes the answer for one partition."""

    __slots__ = ("_acknowledging", "_name")

    def __init__(self, acknowledging: Acknowledging, name: PartitionName) -> None:
        self._acknowledging = acknowledging
        self._name = name

    def __call__(self, code: ErrorCode, message: str | None) -> None:
        self._acknowledging.refused[self._name] = code, message
        self._acknowledging.done_one()


def _holder(
    node: BrokerServices, group_id: str, name: PartitionName, guard: ClientGuard | None
) -> ServedSharePartition | ErrorCode:
    """Return the share partition in which a member may hold records, or why there is none."""
    if guard is not None and not may_read(guard, node, name[0]):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    found = node.share_delivery.find(group_id, name)
    if found is not None:
        return found
    partitions, index = node.topics.get(name[0]), name[1]
    partition = partitions[index] if partitions is not None and 0 <= index < len(partitions) else None
    if partition is None or not partition.is_leader:
        return why_absent(node, *name)
    # It is led here, and nothing of it was acquired since.
    return ErrorCode.INVALID_RECORD_STATE


def with_leaders(
    node: BrokerServices, results: Sequence[Result], listener_name: str
) -> tuple[list[Result], list[NodeEndpoint]]:
    """Return results that name the leader where the client should ask another broker, and where these are."""
    named: list[Result] = []
    leader_ids: set[int] = set()
    for result in results:
        if result.error_code in ASK_ANOTHER or result.acknowledge_error_code in ASK_ANOTHER:
            leader = current_leader(node, result.topic_id, result.partition)
            if leader is not None:
                result = result._replace(leader=leader)
                leader_ids.add(leader[0])
        named.append(result)
    endpoints = []
    for leader_id in sorted(leader_ids):
        endpoint = endpoint_of(node, leader_id, listener_name)
        if endpoint is not None:
            endpoints.append(NodeEndpoint(leader_id, *endpoint, node.image.brokers[leader_id].rack))
    return named, endpoints
