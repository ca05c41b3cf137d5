"""Fetch (1), versions 4-18, on the controller listener: the metadata log, for voters and observers.

Only `__cluster_metadata-0` is served, to replicas that name the epoch of their last batch, as all do since version 12;
anything else is an INVALID_REQUEST, as in Kafka. The response has records, the offset to truncate to, or the snapshot
to load instead. Without news it waits, at most as long as the replica asked: for new batches, for a new high watermark,
for another leader. `min_bytes` and fetch sessions have no effect here.
"""

from __future__ import annotations

from strandline.codec.messages.fetch_request import FetchRequest
from strandline.codec.messages.fetch_response import (
    EpochEndOffset,
    FetchResponse,
    LeaderIdAndEpoch,
    SnapshotId,
)
from strandline.errors import ErrorCode, StrandlineError, error_code
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.quorum_member import member_of
from strandline.log.segment.log_slice import LogSlice
from strandline.quorum.raft.fetch import ReplicaFetch, ReplicaFetchAnswer
from strandline.quorum.raft.messages import fetch_response, replica_fetch
from strandline.runtime.runtime import TimerHandle

API_KEY = 1
VERSIONS = (4, 18)
EPOCHS_FROM = 12
NODE_ENDPOINTS_FROM = 16


def handle(context: RequestContext, request: FetchRequest) -> FetchResponse | None:
    if request.cluster_id is not None and request.cluster_id != context.node.cluster_id:
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    fetch = replica_fetch(request)
    if fetch is None:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    if (
        request.max_wait_ms < 0
        or fetch.fetch_offset < 0
        or not 0 <= fetch.last_fetched_epoch <= fetch.current_leader_epoch
    ):
        return _refusal(context, ErrorCode.INVALID_REQUEST)
    try:
        answer = member_of(context).on_fetch(fetch)
    except StrandlineError as error:
        return _refusal(context, error_code(error))
    waiting = WaitingFetch(context, request, fetch)
    if answer.may_wait and request.max_wait_ms > 0:
        waiting.wait()
    else:
        waiting.send(answer)
    return None


class WaitingFetch:
    """A fetch from its arrival to its answer."""

    __slots__ = ("_context", "_fetch", "_request", "_timer")

    def __init__(self, context: RequestContext, request: FetchRequest, fetch: ReplicaFetch) -> None:
        self._context = context
        self._request = request
        self._fetch = fetch
        self._timer: TimerHandle | None = None

    def wait(self) -> None:
        member_of(self._context).wait_for_news(self._look)
        self._timer = self._context.node.runtime.call_later(self._request.max_wait_ms / 1000, self._on_timeout)

    def _look(self) -> None:
        """There is news, of this log or of its leader."""
        if self._context.connection.closed:
            self._stop_waiting()
            return
        try:
            answer = member_of(self._context).answer_fetch(self._fetch)
        except StrandlineError as error:
            self._stop_waiting()
            self._context.reply(_refusal(self._context, error_code(error)))
            return
        if not answer.may_wait:
            self._stop_waiting()
            self.send(answer)

    def _on_timeout(self) -> None:
        self._stop_waiting()
        try:
            answer = member_of(self._context).answer_fetch(self._fetch)
        except StrandlineError as error:
            self._context.reply(_refusal(self._context, error_code(error)))
            return
        self.send(answer)

    def _stop_waiting(self) -> None:
        member_of(self._context).stop_waiting(self._look)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def send(self, answer: ReplicaFetchAnswer) -> None:
        try:
            piece = self._find(answer) if answer.has_records else None
        except StrandlineError as error:
            self._context.reply(_refusal(self._context, error_code(error)))
            return
        if piece is None:
            self._reply(answer, b"")
        elif piece.segment.file().is_cached(piece.position):
            try:
                data = piece.read()
            finally:
                piece.release()
            self._reply(answer, data)
        else:
            self._read_in_thread(answer, piece)

    def _find(self, answer: ReplicaFetchAnswer) -> LogSlice | None:
        metadata = member_of(self._context)
        return metadata.log.read(
            self._fetch.fetch_offset,
            size_bytes_max=max(0, min(self._request.max_bytes, metadata.settings.fetch_max_bytes)),
            limit_offset=None if self._fetch.replica_id >= 0 else answer.high_watermark,
        )

    def _read_in_thread(self, answer: ReplicaFetchAnswer, piece: LogSlice) -> None:
        def on_read(data: bytes | None, error: BaseException | None) -> None:
            piece.release()
            if data is None:
                self._context.reply(_refusal(self._context, ErrorCode.KAFKA_STORAGE_ERROR))
            else:
                self._reply(answer, data)

        self._context.node.runtime.in_thread(piece.read, on_read)

    def _reply(self, answer: ReplicaFetchAnswer, records: bytes) -> None:
        leader = member_of(self._context).raft.leader
        self._context.reply(_in_version(fetch_response(answer, leader, records), self._context.api_version))


def _refusal(context: RequestContext, code: int) -> FetchResponse:
    metadata = member_of(context)
    raft = metadata.raft
    answer = ReplicaFetchAnswer(ErrorCode(code), raft.leader_id, raft.epoch, -1, metadata.log.log_start_offset)
    return _in_version(fetch_response(answer, raft.leader, b""), context.api_version)


def _in_version(response: FetchResponse, version: int) -> FetchResponse:
    """Drop the fields that this version does not have."""
    if version < NODE_ENDPOINTS_FROM:
        response.node_endpoints = []
    if version < EPOCHS_FROM:
        for topic in response.responses:
            for partition in topic.partitions:
                partition.current_leader = LeaderIdAndEpoch()
                partition.diverging_epoch = EpochEndOffset()
                partition.snapshot_id = SnapshotId()
    return response
