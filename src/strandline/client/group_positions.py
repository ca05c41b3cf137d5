"""The committed positions of a consumer group, by requests that every broker since Kafka 2.5 knows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from strandline.client.cluster_client import ClusterClient
from strandline.client.coordinators import GROUP, ask_coordinator
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.find_coordinator_response import FindCoordinatorResponse
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from strandline.codec.messages.offset_fetch_response import OffsetFetchResponse
from strandline.errors import Disconnected, ErrorCode, TimedOut, UnsupportedVersion, named

_ONE_GROUP_VERSION_MAX: Final = 7
"""The last version of OffsetFetch that asks about one group."""
_NAMES_VERSION_MAX: Final = 9
"""The last version of OffsetFetch that names topics."""
_GROUPS_PER_REQUEST: Final = 100


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


def read_many_positions(
    client: ClusterClient, group_ids: Sequence[str]
) -> dict[str, dict[tuple[str, int], CommittedPosition]]:
    """Return the positions of many groups with one request for a hundred of them.

    Groups are left out whose coordinator moves, or is not there, or refuses; so are all if a broker knows only requests
    about one group.
    """
    found: dict[str, dict[tuple[str, int], CommittedPosition]] = {}
    try:
        for node, some in _by_coordinator(client, group_ids).items():
            for begin in range(0, len(some), _GROUPS_PER_REQUEST):
                part = some[begin : begin + _GROUPS_PER_REQUEST]
                request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(each, topics=None) for each in part])
                answer = client.ask_at(node, request, OffsetFetchResponse, version_max=_NAMES_VERSION_MAX)
                for told in answer.groups:
                    codes = [each.error_code for topic in told.topics for each in topic.partitions]
                    if not told.error_code and not any(codes):
                        found[told.group_id] = {
                            (topic.name, each.partition_index): CommittedPosition(
                                each.committed_offset, each.metadata or ""
                            )
                            for topic in told.topics
                            for each in topic.partitions
                            if each.committed_offset >= 0
                        }
    except (Disconnected, TimedOut, UnsupportedVersion):
        # They are asked for one by one, which finds the next coordinator, or says why there is none.
        return found
    return found


def _by_coordinator(client: ClusterClient, group_ids: Sequence[str]) -> dict[tuple[str, int], list[str]]:
    found: dict[tuple[str, int], list[str]] = {}
    for begin in range(0, len(group_ids), _GROUPS_PER_REQUEST):
        keys = list(group_ids[begin : begin + _GROUPS_PER_REQUEST])
        answer = client.ask_any(FindCoordinatorRequest(key_type=GROUP, coordinator_keys=keys), FindCoordinatorResponse)
        for each in answer.coordinators:
            if not each.error_code:
                found.setdefault((each.host, each.port), []).append(each.key)
    return found


def _code_of(answer: OffsetFetchResponse) -> int:
    codes = [each.error_code for topic in answer.topics for each in topic.partitions if each.error_code]
    return answer.error_code or (codes[0] if codes else ErrorCode.NONE)


@dataclass(frozen=True, slots=True)
class BatchNote:
    """A micro-batch that read a partition up to a committed position, as Spark's queries note it.

    Its text is the metadata of the position, which every tool of Kafka shows.
    """

    query: str
    batch_id: int
    begin: int | None = None
    """The offset at which the batch began in this partition; None if Spark did not say."""

    def has_read(self, offset: int) -> bool:
        """Return whether this batch read a record before the committed position, and no earlier batch did."""
        return self.batch_id == 0 or (self.begin is not None and self.begin <= offset)

    def text(self) -> str:
        found = {"query": self.query, "batch": self.batch_id}
        return json.dumps(found if self.begin is None else {**found, "from": self.begin}, separators=(",", ":"))


def batch_note(text: str | None) -> BatchNote | None:
    """Return the note of a committed offset; None if its metadata is something else."""
    try:
        told = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or not isinstance(told.get("query"), str) or type(told.get("batch")) is not int:
        return None
    begin = told.get("from")
    return BatchNote(told["query"], told["batch"], begin if type(begin) is int else None)
