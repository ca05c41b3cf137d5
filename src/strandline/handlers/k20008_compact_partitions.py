"""CompactPartitions (20008), version 0: the replicas on this node are compacted now, whatever their dirty ratio.

It is Strandline's own. Asked of every broker that has a replica: each cleans its own files. The active segment is
rolled first, so that its records count. Answered when all is done, which may take as long as the logs are large; what
may not be cleaned yet, for an open transaction or `min.compaction.lag.ms`, is left, and `clean_up_to` says from where.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from strandline.codec.messages.compact_partitions_request import CompactPartitionsRequest
from strandline.codec.messages.compact_partitions_response import CompactedPartition, CompactPartitionsResponse
from strandline.errors import ErrorCode, StrandlineError, error_code, error_message
from strandline.handlers.support.absent_partitions import why_absent
from strandline.handlers.support.context import RequestContext
from strandline.log.maintenance.cleanable import Cleaned
from strandline.partition.partition import Partition

API_KEY = 20_008
VERSIONS = (0, 0)
COMPACTED_MAX: Final = 10_000
"""Partitions that one request may name."""


def handle(context: RequestContext, request: CompactPartitionsRequest) -> None:
    _Compaction(context, request).begin()


class _Compaction:
    def __init__(self, context: RequestContext, request: CompactPartitionsRequest) -> None:
        self._context = context
        self._node = context.node
        self._asked = list(
            dict.fromkeys((topic.topic, index) for topic in request.topics for index in topic.partitions)
        )
        self._answer = CompactPartitionsResponse(node_id=context.node.node_id)
        self._left = len(self._asked)

    def begin(self) -> None:
        if len(self._asked) > COMPACTED_MAX:
            name, index = self._asked[0]
            self._answer.partitions = [_refused(name, index, ErrorCode.INVALID_REQUEST, "too many partitions")]
            self._context.reply(self._answer)
            return
        if not self._asked:
            self._context.reply(self._answer)
        for name, index in self._asked:
            partition = self._node.partition(name, index)
            failure = self._node.log_failure(name, index)
            if failure is not None:
                self._add(_refused(name, index, error_code(failure), error_message(failure)))
            elif partition is None:
                self._add(_refused(name, index, why_absent(self._node, name, index), None))
            else:
                self._begin_one(partition)

    def _begin_one(self, partition: Partition) -> None:
        try:
            self._node.cleaner.compact(partition, partial(self._on_done, partition))
        except (StrandlineError, OSError) as error:
            self._on_done(partition, None, error)

    def _on_done(self, partition: Partition, cleaned: Cleaned | None, error: BaseException | None) -> None:
        name, index = partition.topic, partition.index
        if error is not None:
            self._add(_refused(name, index, error_code(error), str(error)))
            return
        compacted = CompactedPartition(topic=name, partition=index)
        if cleaned is not None:
            compacted.bytes_before, compacted.bytes_after = cleaned.size_bytes_before, cleaned.size_bytes_after
            compacted.records_before, compacted.records_after = cleaned.result.records_read, cleaned.result.records_kept
            compacted.records_without_key = cleaned.result.records_without_key
            compacted.clean_up_to = cleaned.result.clean_up_to
        elif partition.log.failure is None:
            compacted.clean_up_to = self._node.cleaner.judge(partition).first_dirty
        self._add(compacted)

    def _add(self, compacted: CompactedPartition) -> None:
        self._answer.partitions.append(compacted)
        self._left -= 1
        if not self._left:
            self._context.reply(self._answer)


def _refused(topic: str, index: int, code: int, message: str | None) -> CompactedPartition:
    return CompactedPartition(topic=topic, partition=index, error_code=code, error_message=message)
