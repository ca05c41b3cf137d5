"""Which topics a group reads: their offsets are neither deleted nor forgotten while it does.

The metadata of a consumer opens with its topics, in every version of the consumer protocol. Where the metadata of a
group cannot be read, the group may read anything. It is asked for seldom, so nothing is kept: it is read from the
members each time, also while a group rebalances, when Kafka goes by the generation before.
"""

from __future__ import annotations

from collections.abc import Container

from strandline.codec.message_codec import decode
from strandline.codec.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.classic.classic_group import ClassicGroup
from strandline.coordinators.groups.classic.consumer_protocol import PROTOCOL_TYPE, VERSION, version_of
from strandline.errors import MalformedMessage


class _Everything:
    def __contains__(self, topic: object) -> bool:
        return True


EVERYTHING = _Everything()


def subscribed_topics(group: Group) -> Container[str]:
    """Return the topics that members read; `EVERYTHING` if these are unknown."""
    if not isinstance(group, ClassicGroup):
        return group.subscribed_topic_names
    if not uses_consumer_protocol(group):
        return frozenset()
    topics: set[str] = set()
    for member in group.members.values():
        metadata = next((each.metadata for each in member.protocols if each.name == group.protocol_name), None)
        if metadata is None:
            # The group has not agreed on a protocol yet.
            return EVERYTHING
        try:
            topics.update(topics_of(metadata))
        except MalformedMessage:
            return EVERYTHING
    return topics


def uses_consumer_protocol(group: ClassicGroup) -> bool:
    return group.protocol_type == PROTOCOL_TYPE


def topics_of(metadata: bytes) -> list[str]:
    """Raises MalformedMessage. Version 0 is what all versions begin with, those to come too."""
    version_of(metadata)
    subscription, _ = decode(ConsumerProtocolSubscription, 0, metadata, VERSION.size)
    return subscription.topics
