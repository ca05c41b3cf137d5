"""Types for the identifiers of the domain, so that an offset is never passed where a position is meant."""

from __future__ import annotations

import uuid
from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
"""The number of a record in its partition; it names the same record for ever, or none."""

LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
BrokerId = NewType("BrokerId", int)
TopicName = NewType("TopicName", str)
GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)

ZERO_UUID = uuid.UUID(int=0)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
