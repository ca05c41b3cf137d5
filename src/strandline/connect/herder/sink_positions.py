"""Positions of sinks: the committed offsets of their consumer groups, in the form of Connect's REST API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.coordinators import GROUP, ask_coordinator
from strandline.client.failures import ClientFailed
from strandline.client.group_positions import read_positions
from strandline.codec.messages.delete_groups_request import DeleteGroupsRequest
from strandline.codec.messages.delete_groups_response import DeleteGroupsResponse
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_commit_response import OffsetCommitResponse
from strandline.codec.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from strandline.codec.messages.offset_delete_response import OffsetDeleteResponse
from strandline.connect.herder.interface import RequestFailed
from strandline.connect.records import SourcePosition, TopicPosition
from strandline.errors import Disconnected, ErrorCode, TimedOut, named

TOPIC: Final = "kafka_topic"
PARTITION: Final = "kafka_partition"
OFFSET: Final = "kafka_offset"
TIMEOUT_S: Final = 20.0
_NAMES_UP_TO: Final = 9
"""From version 10 on an OffsetCommit names topics by their ids."""


def read(bootstrap: str, group: str) -> list[SourcePosition]:
    """Return the positions of a sink's group."""
    with _Client(bootstrap) as client:
        code, positions = read_positions(client, f"read the offsets of {group}", group, require_stable=False)
    if code != ErrorCode.NONE:
        raise RequestFailed(500, f"the offsets of the group {group} cannot be read: {code.name}")
    return [
        ({TOPIC: topic, PARTITION: partition}, {OFFSET: each.offset})
        for (topic, partition), each in sorted(positions.items())
    ]


def alter(bootstrap: str, group: str, positions: Sequence[SourcePosition]) -> None:
    """Set the positions of a group that has no members; those without an offset are deleted."""
    commits: dict[str, OffsetCommitRequestTopic] = {}
    deletes: dict[str, OffsetDeleteRequestTopic] = {}
    for (topic, partition), offset in parse(positions).items():
        if offset is None:
            found = deletes.setdefault(topic, OffsetDeleteRequestTopic(name=topic))
            found.partitions.append(OffsetDeleteRequestPartition(partition_index=partition))
        else:
            wanted = commits.setdefault(topic, OffsetCommitRequestTopic(name=topic))
            wanted.partitions.append(
                OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
            )
    with _Client(bootstrap) as client:
        if commits:
            committed = ask_coordinator(
                client,
                f"set the offsets of {group}",
                group,
                OffsetCommitRequest(group_id=group, topics=list(commits.values())),
                OffsetCommitResponse,
                _code_of,
                key_type=GROUP,
                version_max=_NAMES_UP_TO,
            )
            _check(group, _code_of(committed))
        if deletes:
            deleted = ask_coordinator(
                client,
                f"delete offsets of {group}",
                group,
                OffsetDeleteRequest(group_id=group, topics=list(deletes.values())),
                OffsetDeleteResponse,
                lambda answer: answer.error_code or _code_of(answer),
                key_type=GROUP,
            )
            _check(group, deleted.error_code or _code_of(deleted))


def delete(bootstrap: str, group: str) -> None:
    """Delete a group that has no members, with its offsets."""
    with _Client(bootstrap) as client:
        answer = ask_coordinator(
            client,
            f"delete the group {group}",
            group,
            DeleteGroupsRequest(groups_names=[group]),
            DeleteGroupsResponse,
            lambda told: told.results[0].error_code,
            key_type=GROUP,
        )
    code = answer.results[0].error_code
    if code != ErrorCode.GROUP_ID_NOT_FOUND:
        _check(group, code)


def parse(positions: Sequence[SourcePosition]) -> dict[TopicPosition, int | None]:
    """Return positions as an administrator writes them. Raise RequestFailed for one that makes no sense."""
    return dict(_parsed(*each) for each in positions)


def _parsed(partition: Any, offset: Any) -> tuple[TopicPosition, int | None]:
    topic, number = partition.get(TOPIC), partition.get(PARTITION)
    if not isinstance(topic, str) or not topic:
        raise RequestFailed(
            400,
            f"The partition for a sink connector offset must contain the key '{TOPIC}', the name of a topic",
        )
    number = _number(number, PARTITION)
    return TopicPosition(topic, number), None if offset is None else _number(offset.get(OFFSET), OFFSET)


def _number(value: Any, name: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or isinstance(value, bool):
        raise RequestFailed(400, f"'{name}' of a sink connector offset must be a number that is not negative")
    return number


def _code_of(answer: Any) -> int:
    return next((each.error_code for topic in answer.topics for each in topic.partitions if each.error_code), 0)


def _check(group: str, number: int) -> None:
    code = named(number)
    if code == ErrorCode.NONE:
        return
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
        raise RequestFailed(
            400,
            f"the group {group} still has members: its tasks are about to stop, or others read with this group id",
        )
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise RequestFailed(400, f"the group {group} cannot have offsets of a topic that does not exist")
    raise RequestFailed(500, f"the offsets of the group {group} cannot be changed: {code.name}")


class _Client:
    """A client for one question."""

    def __init__(self, bootstrap: str) -> None:
        self._client = ClusterClient(ClientSettings.within(bootstrap, "strandline-connect", TIMEOUT_S))

    def __enter__(self) -> ClusterClient:
        return self._client

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._client.close()
        if isinstance(error, ClientFailed | Disconnected | TimedOut):
            raise RequestFailed(500, str(error)) from error
