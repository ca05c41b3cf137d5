"""AssignReplicasToDirs: a broker says in which of its directories a replica is (KIP-858).

The controller keeps a directory for each replica, and a broker leads nothing that is in a directory it does not have
online. A broker whose disk was replaced has another directory. Until it has said so for each replica, it could follow
and be in sync, and never lead. With the new directory a leader is elected, too, where the partition waits for one.

A replica in another directory than the one on record is a new, empty copy. Its broker leaves the last known ELR: what
that election is for, the records of that broker, is gone. The next one of the last known ELR takes its place.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from strandline.codec.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from strandline.codec.messages.assign_replicas_to_dirs_response import PartitionData
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.state import ControllerState, Decision

Assigned = tuple[uuid.UUID, uuid.UUID, PartitionData]
"""Directory, topic, and the answer of one partition."""


def decide(state: ControllerState, request: AssignReplicasToDirsRequest) -> Iterator[Decision[Assigned]]:
    """Yield the records of each partition and its part of the answer."""
    for directory in request.directories:
        for topic in directory.topics:
            for asked in topic.partitions:
                answer = PartitionData(asked.partition_index)
                records: list[Any] = []
                try:
                    # Checked with every partition: between two of them another life of the broker may be registered.
                    state.broker(request.broker_id, request.broker_epoch)
                    records = _assigned(state, request.broker_id, directory.id, topic.topic_id, asked.partition_index)
                except RequestError as refusal:
                    answer.error_code = refusal.code
                yield records, (directory.id, topic.topic_id, answer)


def _assigned(
    state: ControllerState, broker_id: int, directory_id: uuid.UUID, topic_id: uuid.UUID, index: int
) -> list[Any]:
    topic = state.image.topic_by_id(topic_id)
    if topic is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID, "This topic id does not exist.")
    if not 0 <= index < len(topic.partitions):
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This partition does not exist.")
    if broker_id not in topic.partitions[index].replicas:
        raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Broker {broker_id} has no replica of this partition.")
    change = state.change(topic, index)
    change.election = state.election_of(topic)
    change.directory = (broker_id, directory_id)
    record = change.record()
    return [] if record is None else state.decided([record])
