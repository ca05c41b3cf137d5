"""The offsets of a stream as Spark keeps them: `{"orders": {"0": 123}, "#topic-ids": {"orders": "..."}}` (pure).

The topics are in the form of Spark's own Kafka source. The ids say which topic of a name the offsets are about: one
that was deleted and created again under the same name has other records at the same offsets. Offsets that an older
release wrote have no ids, nor have those of a broker that knows none: they belong to any topic of the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from strandline.ids import ZERO_UUID, TopicPartition

TOPIC_IDS: Final = "#topic-ids"
"""No topic can have this name."""

Offset = dict[str, dict[str, Any]]


def as_json(positions: Mapping[TopicPartition, int], topic_ids: Mapping[str, UUID]) -> Offset:
    """Return it always in the same order: Spark compares text."""
    found: Offset = {}
    for (topic, partition), offset in sorted(positions.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    ids = {topic: str(topic_ids[topic]) for topic in found if topic_ids.get(topic, ZERO_UUID) != ZERO_UUID}
    return found | ({TOPIC_IDS: ids} if ids else {})


def from_json(offset: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): position
        for topic, partitions in offset.items()
        if topic != TOPIC_IDS
        for partition, position in partitions.items()
    }


def topic_ids_of(offset: Mapping[str, Mapping[str, Any]]) -> dict[str, UUID]:
    """Return the ids by topic; a topic without one is not in it."""
    return {topic: UUID(each) for topic, each in offset.get(TOPIC_IDS, {}).items()}
