"""Access to records: what Produce and Fetch may do, checked for each topic without decoding more than they do."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from strandline.codec.produce import PartitionRecords, PartitionResult, ProduceRequest
from strandline.codec.record_batch import ATTRIBUTES, HEADER, HEADER_SIZE, TRANSACTIONAL
from strandline.coordinators.offsets.plain_commit import PlainCommit
from strandline.errors import ErrorCode
from strandline.handlers.access.client_guard import ClientGuard
from strandline.handlers.support.context import BrokerServices, Connection
from strandline.security.acl.kinds import Operation, ResourceType

# Plain numbers, because those of an enumeration take longer to compute with.
_WRITE, _TOPIC, _TRANSACTIONAL_ID = int(Operation.WRITE), int(ResourceType.TOPIC), int(ResourceType.TRANSACTIONAL_ID)


def guard_of(node: BrokerServices, connection: Connection, api: str) -> ClientGuard:
    """Return the guard of a request that a hot handler reads itself, on a node that has an authorizer."""
    authorizer = node.authorizer
    assert authorizer is not None
    return ClientGuard(authorizer, connection.session.principal, connection.peer_host, api)


def topic_name(node: BrokerServices, topic: str | bytes) -> str | None:
    """Return the name of a topic that a request names by its name or by the bytes of its id; None if it is unknown."""
    if isinstance(topic, str):
        return topic
    found = node.image.topic_by_id(UUID(bytes=bytes(topic)))
    return None if found is None else found.name


def writable(
    node: BrokerServices, connection: Connection, request: ProduceRequest, results: list[PartitionResult]
) -> list[PartitionRecords]:
    """Return the partitions that the client may write to, and put the refusals of the others into `results`.

    As in Kafka, a transactional id counts only with transactional records, and such records are refused without one.
    """
    if _may_write_all(node, connection, request):
        return request.partitions
    guard = guard_of(node, connection, "Produce")
    transactional_id = request.transactional_id
    right = Operation.WRITE, ResourceType.TRANSACTIONAL_ID
    if (
        transactional_id is not None
        and not guard.rights.allows(*right, transactional_id)
        and _is_transactional(request)
        and not guard.excuses(*right, transactional_id)
    ):
        _refuse(node, request.partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, results)
        return []
    refused = {
        topic
        for topic in {asked[0] for asked in request.partitions}
        if (name := topic_name(node, topic)) is not None and not guard.allows(Operation.WRITE, ResourceType.TOPIC, name)
    }
    if not refused:
        return request.partitions
    if transactional_id is None and _is_transactional(request):
        _refuse(node, request.partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, results)
        return []
    denied = [asked for asked in request.partitions if asked[0] in refused]
    _refuse(node, denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED, results)
    return [asked for asked in request.partitions if asked[0] not in refused]


def _may_write_all(node: BrokerServices, connection: Connection, request: ProduceRequest) -> bool:
    """Return whether nothing is denied: the answer to nearly every request, found without logging or sorting."""
    authorizer = node.authorizer
    assert authorizer is not None
    allows = authorizer.rights_of(connection.session.principal, connection.peer_host).allows
    for topic, _, _ in request.partitions:
        name = topic if isinstance(topic, str) else topic_name(node, topic)
        if name is not None and not allows(_WRITE, _TOPIC, name):
            return False
    transactional_id = request.transactional_id
    return transactional_id is None or allows(_WRITE, _TRANSACTIONAL_ID, transactional_id)


def _is_transactional(request: ProduceRequest) -> bool:
    return any(
        records is not None and len(records) >= HEADER_SIZE and HEADER.unpack_from(records)[ATTRIBUTES] & TRANSACTIONAL
        for _, _, records in request.partitions
    )


def _refuse(
    node: BrokerServices, denied: Sequence[PartitionRecords], code: ErrorCode, results: list[PartitionResult]
) -> None:
    for topic, index, _ in denied:
        node.count_error(0, code)
        results.append(PartitionResult(topic, index, code, -1, -1, -1))


def may_read(guard: ClientGuard, node: BrokerServices, topic: str | bytes) -> bool:
    """Return whether a consumer may read a topic. What is unknown is for the handler to refuse."""
    name = topic_name(node, topic)
    return name is None or guard.allows(Operation.READ, ResourceType.TOPIC, name)


def may_replicate(guard: ClientGuard) -> bool:
    """Return whether a client may fetch as a follower does."""
    return guard.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)


def may_commit(guard: ClientGuard, plain: PlainCommit) -> bool:
    """Return whether a client may commit like this. A denial is logged when the commit is decoded."""
    return guard.rights.allows(Operation.READ, ResourceType.GROUP, plain.group_id) and guard.rights.allows(
        Operation.READ, ResourceType.TOPIC, plain.topic
    )
