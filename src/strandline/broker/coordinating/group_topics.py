"""What the groups of a node know of its surroundings: the topics of its image, and the settings of single groups."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping

from strandline.coordinators.groups.topics import TopicFacts
from strandline.quorum.image.cluster_image import RESOURCE_GROUP, BrokerImage, ClusterImage, Topic

_NOTHING: Mapping[str, str] = {}


class TopicsOfNode:
    """The topics as the node's image has them now."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image

    def named(self, name: str) -> TopicFacts | None:
        topic = self._image().topic_by_name(name)
        return None if topic is None else self._facts(topic)

    def by_id(self, topic_id: uuid.UUID) -> TopicFacts | None:
        topic = self._image().topic_by_id(topic_id)
        return None if topic is None else self._facts(topic)

    def names(self) -> Iterable[str]:
        return self._image().topics

    def _facts(self, topic: Topic) -> TopicFacts:
        image = self._image()
        # What is kept with a topic goes when the topic changes, but it also depends on where its replicas stand.
        brokers_version, facts = topic.answers.get(TopicsOfNode, (-1, None))
        if facts is None or brokers_version != image.brokers_version:
            facts = TopicFacts(topic.name, topic.id, len(topic.partitions), _racks(topic, image.brokers))
            topic.answers[TopicsOfNode] = (image.brokers_version, facts)
        return facts  # type: ignore[no-any-return]  # Answers are anybody's; this one is ours.


def overrides_of_group(image: Callable[[], ClusterImage], group_id: str) -> Mapping[str, str]:
    """Return the settings that were given to this group alone."""
    return image().configs.get((RESOURCE_GROUP, group_id), _NOTHING)


def _racks(topic: Topic, brokers: Mapping[int, BrokerImage]) -> tuple[tuple[str, ...], ...]:
    rack_of = {broker.id: broker.rack for broker in brokers.values() if broker.rack}
    if not rack_of:
        return ()
    return tuple(
        tuple(sorted({rack_of[broker_id] for broker_id in partition.replicas if broker_id in rack_of}))
        for partition in topic.partitions
    )
