"""What the handlers of the quorum's own requests see of it: the node as a member, voter or observer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from strandline.codec.message import Message
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.log.partition_log import PartitionLog
from strandline.quorum.raft.fetch import ReplicaFetch, ReplicaFetchAnswer
from strandline.quorum.raft.raft import Raft
from strandline.quorum.raft.raft_log import SnapshotId
from strandline.quorum.raft.voters import ReplicaKey


class SnapshotSource(Protocol):
    ids: list[SnapshotId]

    def read_part(self, snapshot_id: SnapshotId, position: int, size_bytes_max: int) -> tuple[int, bytes]:
        """Return the size of the whole, and the bytes from `position` on. Blocks on the disk."""


class Limits(Protocol):
    @property
    def fetch_max_bytes(self) -> int: ...

    @property
    def fetch_snapshot_max_bytes(self) -> int: ...


class QuorumMember(Protocol):
    raft: Raft
    log: PartitionLog

    @property
    def settings(self) -> Limits: ...

    @property
    def snapshots(self) -> SnapshotSource: ...

    def on_request(self, request: Message) -> Message:
        """Vote, BeginQuorumEpoch or EndQuorumEpoch; what must be on disk is, when this returns."""

    def on_fetch(self, fetch: ReplicaFetch) -> ReplicaFetchAnswer: ...

    def answer_fetch(self, fetch: ReplicaFetch) -> ReplicaFetchAnswer:
        """Return the answer to a fetch that has been waiting."""

    def on_fetch_snapshot(self, key: ReplicaKey, leader_epoch: int, cluster_id: str | None) -> ErrorCode: ...

    def wait_for_news(self, look: Callable[[], object]) -> None:
        """Call `look` whenever the log has grown, more is committed, or another leads; until `stop_waiting`."""

    def stop_waiting(self, look: Callable[[], object]) -> None: ...


def member_of(context: RequestContext) -> QuorumMember:
    return cast(QuorumMember, context.node.metadata)
