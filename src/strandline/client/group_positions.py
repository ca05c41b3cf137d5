"""The committed positions of a consumer group, by requests that every broker since Kafka 2.5 knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.client.cluster_client import ClusterClient
from strandline.client.coordinators import GROUP, ask_coordinator
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequest
from strandline.codec.messages.offset_fetch_response import OffsetFetchResponse
from strandline.errors import ErrorCode, named

_ONE_GROUP_VERSION_MAX: Final = 7
"""The last version of OffsetFetch that asks about one group."""


@dataclass(frozen=True)
class CommittedPosition:
    offset: int
    metadata: str = ""


def read_positions(
    client: ClusterClient, what: str, group_id: str, *, require_stable: bool = True
) -> tuple[ErrorCode, dict[tuple[str, int], CommittedPosition]]:
    """Return every position of the group by topic and partition, or why they cannot be read.

    With `require_stable` the coordinator is asked again until no open transaction can change a position.
    """
    answer = ask_coordinator(
        client,
        what,
        group_id,
        OffsetFetchRequest(group_id=group_id, topics=None, require_stable=require_stable),
        OffsetFetchResponse,
        _code_of,
        key_type=GROUP,
        version_max=_ONE_GROUP_VERSION_MAX,
    )
    positions = {
        (topic.name, each.partition_index): CommittedPosition(each.committed_offset, each.metadata or "")
        for topic in answer.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }
    return named(_code_of(answer)), positions


def _code_of(answer: OffsetFetchResponse) -> int:
    codes = [each.error_code for topic in answer.topics for each in topic.partitions if each.error_code]
    return answer.error_code or (codes[0] if codes else ErrorCode.NONE)
