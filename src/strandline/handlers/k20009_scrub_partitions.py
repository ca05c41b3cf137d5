"""ScrubPartitions (20009), version 0: the files of replicas on this node are read and checked now.

It is Strandline's own. Asked of every broker that has a replica: each reads its own files. Answered when all were read,
with what is damaged by then, and what is done about it; partitions that are not here get an error. Damaged records
are never served, with or without this request.
"""

from __future__ import annotations

from typing import Final

from strandline.codec.messages.scrub_partitions_request import ScrubPartitionsRequest
from strandline.codec.messages.scrub_partitions_response import (
    FoundDamage,
    ScrubbedPartition,
    ScrubPartitionsResponse,
)
from strandline.errors import ErrorCode, error_code, error_message
from strandline.handlers.support.absent_partitions import why_absent
from strandline.handlers.support.context import BrokerServices, RequestContext
from strandline.handlers.support.services import ScrubbedLog

API_KEY = 20_009
VERSIONS = (0, 0)
SCRUBBED_MAX: Final = 10_000
"""Partitions that one request may name."""


def handle(context: RequestContext, request: ScrubPartitionsRequest) -> ScrubPartitionsResponse | None:
    node = context.node
    asked = list(dict.fromkeys((topic.topic, index) for topic in request.topics for index in topic.partitions))
    answer = ScrubPartitionsResponse(node_id=node.node_id)
    if len(asked) > SCRUBBED_MAX:
        answer.partitions = [_refused(name, index, ErrorCode.INVALID_REQUEST, "too many") for name, index in asked[:1]]
        return answer
    found = []
    for name, index in asked:
        partition = node.partition(name, index)
        failure = node.log_failure(name, index)
        if partition is not None:
            found.append(partition)
        elif failure is not None:
            answer.partitions.append(_refused(name, index, error_code(failure), error_message(failure)))
        else:
            answer.partitions.append(_refused(name, index, why_absent(node, name, index), None))
    left = len(found)
    if not left:
        return answer

    def on_done(scrub: ScrubbedLog) -> None:
        nonlocal left
        left -= 1
        answer.partitions.append(_scrubbed(node, scrub))
        if not left:
            context.reply(answer)

    node.scrubber.scrub_now(found, on_done)
    return None


def _refused(topic: str, index: int, code: int, message: str | None) -> ScrubbedPartition:
    return ScrubbedPartition(topic=topic, partition=index, error_code=code, error_message=message)


def _scrubbed(node: BrokerServices, scrub: ScrubbedLog) -> ScrubbedPartition:
    partition = scrub.partition
    result = ScrubbedPartition(topic=partition.topic, partition=partition.index, bytes_read=scrub.bytes_read)
    if scrub.error is not None:
        result.error_code, result.error_message = ErrorCode.KAFKA_STORAGE_ERROR, scrub.error
    result.damages = [
        FoundDamage(each.base_offset, each.end_offset, each.position, each.what, each.state)
        for each in node.scrubber.damages_of(partition)
    ]
    return result
