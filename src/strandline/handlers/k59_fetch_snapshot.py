"""FetchSnapshot (59), versions 0-1: a part of a snapshot of the metadata log, as bytes, for a replica that is behind.

As in Kafka the bootstrap snapshot is never given away: the first leader writes what it says into the log. The bytes are
read by a thread. A request about no partition, several, or another one is refused, and never costs more than that.
"""

from __future__ import annotations

from strandline.codec.messages.fetch_snapshot_request import FetchSnapshotRequest
from strandline.codec.messages.fetch_snapshot_request import PartitionSnapshot as Asked
from strandline.codec.messages.fetch_snapshot_response import (
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionSnapshot,
    SnapshotId,
    TopicSnapshot,
)
from strandline.errors import ErrorCode, StrandlineError, error_code
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.quorum_member import member_of
from strandline.quorum.controller.topic_names import CLUSTER_METADATA
from strandline.quorum.raft import raft_log
from strandline.quorum.raft.voters import ReplicaKey

API_KEY = 59
VERSIONS = (0, 1)
NODE_ENDPOINTS_FROM = 1


def handle(context: RequestContext, request: FetchSnapshotRequest) -> FetchSnapshotResponse | None:
    if request.cluster_id is not None and request.cluster_id != context.node.cluster_id:
        return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
    topic, asked = request.topics[0], request.topics[0].partitions[0]
    metadata = member_of(context)
    key = ReplicaKey(request.replica_id, asked.replica_directory_id)
    if topic.name != CLUSTER_METADATA or asked.partition != 0:
        return _answer(context, topic.name, asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        code = metadata.on_fetch_snapshot(key, asked.current_leader_epoch, request.cluster_id)
    except StrandlineError as error:
        code = ErrorCode(error_code(error))
    snapshot_id = raft_log.SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    snapshots = metadata.snapshots
    if code == ErrorCode.NONE and snapshot_id not in snapshots.ids:
        code = ErrorCode.SNAPSHOT_NOT_FOUND
    if code != ErrorCode.NONE:
        return _answer(context, topic.name, asked, code)
    size_bytes_max = min(request.max_bytes, metadata.settings.fetch_snapshot_max_bytes)

    def on_read(read: tuple[int, bytes] | None, error: BaseException | None) -> None:
        if read is None:
            # Deleted meanwhile, or the disk failed: the replica fetches again and gets the id of another one.
            context.reply(_answer(context, topic.name, asked, ErrorCode.SNAPSHOT_NOT_FOUND))
            return
        size, data = read
        is_outside = not 0 <= asked.position < size
        code = ErrorCode.POSITION_OUT_OF_RANGE if is_outside else ErrorCode.NONE
        context.reply(_answer(context, topic.name, asked, code, size=size, data=data))

    context.node.runtime.in_thread(lambda: snapshots.read_part(snapshot_id, asked.position, size_bytes_max), on_read)
    return None


def _answer(
    context: RequestContext, topic: str, asked: Asked, code: ErrorCode, *, size: int = 0, data: bytes = b""
) -> FetchSnapshotResponse:
    raft = member_of(context).raft
    partition = PartitionSnapshot(
        index=asked.partition,
        error_code=code,
        current_leader=LeaderIdAndEpoch(leader_id=raft.leader_id, leader_epoch=raft.epoch),
    )
    if code == ErrorCode.NONE:
        partition.snapshot_id = SnapshotId(end_offset=asked.snapshot_id.end_offset, epoch=asked.snapshot_id.epoch)
        partition.size, partition.position, partition.unaligned_records = size, asked.position, data
    response = FetchSnapshotResponse(topics=[TopicSnapshot(name=topic, partitions=[partition])])
    leader = raft.leader
    if leader is not None and context.api_version >= NODE_ENDPOINTS_FROM:
        response.node_endpoints.append(NodeEndpoint(node_id=leader.node_id, host=leader.host, port=leader.port))
    return response
