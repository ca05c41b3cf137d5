"""Types for the identifiers of the domain, so that an offset is never passed where a position is meant."""

from __future__ import annotations

import uuid
from typing import Final, NamedTuple, NewType

Offset = NewType("Offset", int)
"""The number of a record in its partition. It names the same record for ever, or none."""

LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
BrokerId = NewType("BrokerId", int)
TopicName = NewType("TopicName", str)
GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)

ZERO_UUID = uuid.UUID(int=0)


class TopicPartition(NamedTuple):
    """The name of a topic and the index of one of its partitions."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


# ---- sinks, whose transactional ids have the name `__strandline.sink.<sink>#<name>`

SINK_PREFIX: Final = "__strandline.sink."
SINK_END: Final = "#"


def sink_key(sink_id: str) -> str:
    """Return the prefix of all transactional ids of the sink, by which FindCoordinator finds its coordinator."""
    return f"{SINK_PREFIX}{sink_id}{SINK_END}"


def sink_of(transactional_id: str) -> str | None:
    """Return the sink of a transactional id, or None if it belongs to none."""
    if not transactional_id.startswith(SINK_PREFIX):
        return None
    sink_id, end, _ = transactional_id[len(SINK_PREFIX) :].partition(SINK_END)
    return sink_id if end and sink_id else None
