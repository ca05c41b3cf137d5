"""The leader's side of the audit topic: appends the lines of all nodes, each once.

A node numbers its lines. If it does not get an answer, it sends the same lines again, and perhaps more behind them. The
leader remembers the last number of each node, as long as it leads in the same epoch. Lines that it has appended it only
waits for. After a change of leaders a line may stand twice; its id, which is the key of the record, shows that.

Every record has a header `writer`: the principal and address that the leader got the line from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from strandline.broker.audit.anchor_index import AnchorIndex
from strandline.codec.columns import Record, encode_batch
from strandline.codec.messages.append_audit_request import AppendAuditRequest
from strandline.codec.messages.find_anchors_request import FindAnchorsRequest
from strandline.codec.messages.find_anchors_response import FindAnchorsResponse, FoundAnchor
from strandline.errors import ErrorCode, StrandlineError, error_code, named
from strandline.handlers.support.context import BrokerServices
from strandline.partition.delayed_operations import InternalCommit
from strandline.partition.partition import Partition
from strandline.quorum.controller.topic_names import AUDIT_TOPIC
from strandline.runtime.time_slicing import gradually

WRITERS_MAX: Final = 1_000
"""Nodes whose last number is remembered."""

OnWritten = Callable[[ErrorCode], object]
OnCommitted = Callable[[Exception | None], None]


class _Appended(NamedTuple):
    """The lines of one start of a node that were appended in one leader epoch."""

    partition: Partition
    """Another one has its place if the topic was deleted meanwhile."""
    started_ms: int
    leader_epoch: int
    next_number: int
    commits_at: int


class AuditTopic:
    """The audit topic, where this broker leads it."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._newest: dict[int, _Appended] = {}
        self._anchors: AnchorIndex | None = None

    def append(self, request: AppendAuditRequest, writer: str, then: OnWritten) -> None:
        """Append lines, and call `then` once: with NONE when they are committed, else with why they are not."""
        partition = self._services.partition(AUDIT_TOPIC, 0)
        if partition is None or not partition.is_leader:
            then(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        on_committed = partial(self._on_committed, request.node_id, then)
        end, epoch = request.first_number + len(request.lines), partition.leader_epoch
        newest = self._newest.get(request.node_id)
        first = request.first_number
        if newest is not None and newest[:3] == (partition, request.started_ms, epoch):
            first = max(first, newest.next_number)
            if first >= end:
                self._wait(partition, newest.commits_at, on_committed)
                return
        batch = self._batch(request, first, writer)
        commits_at = partition.log.log_end_offset + end - first
        if len(self._newest) >= WRITERS_MAX:
            self._newest.clear()
        self._newest[request.node_id] = _Appended(partition, request.started_ms, epoch, end, commits_at)
        try:
            partition.append_internal(batch, on_committed)
        except (StrandlineError, OSError) as error:
            on_committed(error)

    def find_anchors(self, request: FindAnchorsRequest, then: Callable[[FindAnchorsResponse], object]) -> None:
        """Find the last anchors of partitions, and call `then` once."""
        partition = self._services.partition(AUDIT_TOPIC, 0)
        if partition is None or not partition.is_leader:
            then(FindAnchorsResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        if partition.high_watermark < partition.epoch_start_offset:
            # The last anchors may be committed, and not known as such here yet: a chain would begin without need.
            then(FindAnchorsResponse(error_code=ErrorCode.LEADER_NOT_AVAILABLE))
            return
        if self._anchors is None or self._anchors.partition is not partition:
            self._anchors = AnchorIndex(partition)
        index = self._anchors
        failures: list[BaseException] = []

        def read_on() -> Iterator[None]:
            try:
                yield from index.read_on()
            except (StrandlineError, OSError) as error:
                failures.append(error)

        def on_read(_: list[None]) -> None:
            if failures:
                then(FindAnchorsResponse(error_code=error_code(failures[0])))
                return
            wanted = ((each.topic_id, each.partition_index) for each in request.partitions)
            found = [index.last[place] for place in wanted if place in index.last]
            then(
                FindAnchorsResponse(
                    anchors=[FoundAnchor(each.topic_id, each.partition, each.offset, each.value) for each in found]
                )
            )

        gradually(self._services.runtime, read_on(), on_read)

    def _wait(self, partition: Partition, commits_at: int, on_committed: OnCommitted) -> None:
        if partition.high_watermark >= commits_at:
            on_committed(None)
        else:
            partition.when_committed(commits_at, InternalCommit(on_committed))

    def _batch(self, request: AppendAuditRequest, first: int, writer: str) -> bytes:
        now_ms = self._services.runtime.now_ms()
        begin, headers = f"{request.node_id}-{request.started_ms}-", (("writer", writer.encode()),)
        lines = request.lines[first - request.first_number :]
        return encode_batch(
            [
                Record(timestamp_ms=now_ms, key=f"{begin}{number}".encode(), value=line, headers=headers)
                for number, line in enumerate(lines, first)
            ]
        )

    def _on_committed(self, node_id: int, then: OnWritten, error: Exception | None) -> None:
        if error is not None:
            # The next leader may lack these lines.
            self._newest.pop(node_id, None)
        then(ErrorCode.NONE if error is None else named(error_code(error)))
