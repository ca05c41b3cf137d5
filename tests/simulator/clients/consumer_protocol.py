"""What simulated members of the classic protocol say to each other: | version int16 | subscription or assignment |

It shares no code with the coordinator's reading of these bytes, so that a mistake in one does not hide in the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from strandline.codec.message_codec import decode, encode
from strandline.codec.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from strandline.codec.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from strandline.codec.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from strandline.ids import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
VERSION: Final = 1
_VERSION = Struct(">h")


def subscription_of(topics: Iterable[str]) -> bytes:
    return _VERSION.pack(VERSION) + encode(ConsumerProtocolSubscription(topics=list(topics)), VERSION)


def assignment_of(partitions: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, AssignedTopic] = {}
    for name, index in partitions:
        topics.setdefault(name, AssignedTopic(topic=name)).partitions.append(index)
    return _VERSION.pack(VERSION) + encode(
        ConsumerProtocolAssignment(assigned_partitions=list(topics.values())), VERSION
    )


def partitions_in(assignment: bytes) -> list[TopicPartition]:
    if not assignment:
        return []
    told, _ = decode(ConsumerProtocolAssignment, _VERSION.unpack_from(assignment)[0], assignment, _VERSION.size)
    return [TopicPartition(topic.topic, index) for topic in told.assigned_partitions for index in topic.partitions]


def range_assignment(partitions: Sequence[TopicPartition], members: Sequence[str]) -> dict[str, list[TopicPartition]]:
    """Of each topic a range of partitions to each member; the first ones get one more where it does not come out."""
    shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
    topics: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    for owned in topics.values() if members else ():
        size, extra = divmod(len(owned), len(members))
        at = 0
        for number, member in enumerate(members):
            count = size + (number < extra)
            shares[member] += owned[at : at + count]
            at += count
    return shares
