"""What a consumer group is at, asked in a way that every broker since Kafka 2.5 knows."""

from __future__ import annotations

from typing import Final

from strandline.codec.messages.offset_fetch_request import OffsetFetchRequest
from strandline.codec.messages.offset_fetch_response import OffsetFetchResponse
from strandline.errors import ErrorCode, named
from strandline.ids import TopicPartition
from strandline.spark.sink.cluster import GROUP, SinkCluster

_ONE_GROUP_VERSION_MAX: Final = 7
"""The last version of OffsetFetch that asks about one group."""


def read_positions(cluster: SinkCluster, what: str, group_id: str) -> tuple[ErrorCode, dict[TopicPartition, int]]:
    """Every position that the group has, when no transaction can change it any more; or why they cannot be read."""
    answer = cluster.ask_coordinator(
        what,
        group_id,
        OffsetFetchRequest(group_id=group_id, topics=None, require_stable=True),
        OffsetFetchResponse,
        _code_of,
        key_type=GROUP,
        version_max=_ONE_GROUP_VERSION_MAX,
    )
    positions = {
        TopicPartition(topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }
    return named(_code_of(answer)), positions


def _code_of(answer: OffsetFetchResponse) -> int:
    codes = [each.error_code for topic in answer.topics for each in topic.partitions if each.error_code]
    return answer.error_code or (codes[0] if codes else ErrorCode.NONE)
