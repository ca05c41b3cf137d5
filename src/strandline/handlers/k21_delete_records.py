"""DeleteRecords (21), versions 0-2: the records of a partition below an offset, -1 for all that are committed.

Honoured: `cleanup.policy` (POLICY_VIOLATION unless it names `delete`), internal topics (refused), one outcome for each
partition. Answered when the new log start offset is on disk: a crash right after the answer brings nothing back. The
files go away later. The timeout is not used: a write to our own disk either happens or fails.
"""

from __future__ import annotations

from strandline.codec.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsRequest
from strandline.codec.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from strandline.errors import ErrorCode, StrandlineError, error_code
from strandline.handlers.absent_partitions import why_absent
from strandline.handlers.context import Node, RequestContext
from strandline.handlers.shares import gradually
from strandline.partition.trimming import delete_records
from strandline.quorum.topic_names import is_internal

API_KEY = 21
VERSIONS = (0, 2)

NO_LOW_WATERMARK = -1


def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse | None:
    asked = ((topic.name, each) for topic in request.topics for each in topic.partitions)

    def on_deleted(results: list[DeleteRecordsPartitionResult]) -> None:
        if all(result.error_code for result in results):
            context.reply(_response(request, results))
        else:
            context.node.write_start_offsets(lambda error: on_written(results, error))

    def on_written(results: list[DeleteRecordsPartitionResult], error: BaseException | None) -> None:
        if error is not None:
            # They are out of sight, but the next start may show them again.
            for result in results:
                if not result.error_code:
                    result.error_code, result.low_watermark = error_code(error), NO_LOW_WATERMARK
        context.reply(_response(request, results))

    gradually(context.node.runtime, (_delete(context.node, name, each) for name, each in asked), on_deleted)
    return None


def _response(request: DeleteRecordsRequest, results: list[DeleteRecordsPartitionResult]) -> DeleteRecordsResponse:
    left = iter(results)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=topic.name, partitions=[next(left) for _ in topic.partitions])
            for topic in request.topics
        ]
    )


def _delete(node: Node, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=NO_LOW_WATERMARK)
    partition = node.partition(topic, asked.partition_index)
    if partition is None:
        result.error_code = why_absent(node, topic, asked.partition_index)
    elif is_internal(topic):
        result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        try:
            result.low_watermark = delete_records(partition, asked.offset)
        except StrandlineError as error:
            result.error_code = error_code(error)
    return result
