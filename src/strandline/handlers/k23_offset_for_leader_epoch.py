"""OffsetForLeaderEpoch (23), versions 2-4: where a leader epoch ended.

A consumer asks the leader after a change, to learn whether what it has read is still there. Honoured: the epoch that
the client takes for current (fenced if it is older or newer), epochs that are unknown (answered -1 and -1), epochs
without records of their own (answered by the one before). The replica id is ignored.
"""

from __future__ import annotations

from strandline.codec.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from strandline.codec.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from strandline.errors import RequestError, error_code
from strandline.handlers.support.absent_partitions import led_partition
from strandline.handlers.support.context import BrokerServices, RequestContext
from strandline.partition.epochs import end_of_epoch
from strandline.runtime.time_slicing import gradually

API_KEY = 23
VERSIONS = (2, 4)


def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse | None:
    asked = ((topic.topic, each) for topic in request.topics for each in topic.partitions)

    def on_done(answers: list[EpochEndOffset]) -> None:
        left = iter(answers)
        context.reply(
            OffsetForLeaderEpochResponse(
                topics=[
                    OffsetForLeaderTopicResult(topic=topic.topic, partitions=[next(left) for _ in topic.partitions])
                    for topic in request.topics
                ]
            )
        )

    gradually(context.node.runtime, (_answer(context.node, topic, each) for topic, each in asked), on_done)
    return None


def _answer(node: BrokerServices, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    partition = led_partition(node, topic, asked.partition)
    if isinstance(partition, int):
        answer.error_code = partition
        return answer
    try:
        partition.check_leader_epoch(asked.current_leader_epoch)
    except RequestError as error:
        answer.error_code = error_code(error)
        return answer
    if partition.log.failure is not None:
        answer.error_code = error_code(partition.log.failure)
        return answer
    answer.leader_epoch, answer.end_offset = end_of_epoch(partition, asked.leader_epoch)
    return answer
