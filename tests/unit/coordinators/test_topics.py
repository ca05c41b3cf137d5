"""What groups see of topics, and the number by which they notice that it has changed."""

from __future__ import annotations

import uuid

from strandline.broker.coordinating.group_topics import TopicsOfNode, overrides_of_group
from strandline.codec.messages.config_record import ConfigRecord
from strandline.codec.messages.partition_record import PartitionRecord
from strandline.codec.messages.register_broker_record import RegisterBrokerRecord
from strandline.codec.messages.remove_topic_record import RemoveTopicRecord
from strandline.codec.messages.topic_record import TopicRecord
from strandline.coordinators.groups.topics import FixedTopics, TopicFacts, metadata_hash
from strandline.quorum.image.cluster_image import RESOURCE_GROUP, ClusterImage

A, B = uuid.UUID(int=11), uuid.UUID(int=12)
ORDERS = TopicFacts("orders", A, 3)


def hash_of(*topics: TopicFacts, names: tuple[str, ...] = ("orders", "users")) -> int:
    return metadata_hash(FixedTopics(topics), dict.fromkeys(names).keys())


def test_the_hash_tells_whatever_an_assignment_depends_on() -> None:
    users = TopicFacts("users", B, 1)
    different = [
        hash_of(),
        hash_of(ORDERS),
        hash_of(users),
        hash_of(ORDERS, users),
        hash_of(TopicFacts("orders", B, 3)),
        hash_of(TopicFacts("orders", A, 4)),
        hash_of(TopicFacts("orders", A, 3, (("r1",), ("r1",), ("r2",)))),
    ]
    assert len(set(different)) == len(different)
    assert hash_of() == 0


def test_the_hash_does_not_tell_order_nor_other_topics() -> None:
    users, other = TopicFacts("users", B, 1), TopicFacts("other", uuid.UUID(int=13), 1)
    assert hash_of(ORDERS, users, names=("orders", "users")) == hash_of(users, ORDERS, names=("users", "orders"))
    assert hash_of(ORDERS, other) == hash_of(ORDERS)


def test_the_hash_is_the_same_in_every_process() -> None:
    # It is stored: a coordinator that takes over compares it with its own.
    assert hash_of(ORDERS) == 6691900649136823235


class Watched:
    """A node, as far as its groups look at it."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.topics = TopicsOfNode(lambda: self.image)

    def make(self, name: str, topic_id: uuid.UUID, *, replicas: tuple[tuple[int, ...], ...]) -> None:
        self.image.apply(TopicRecord(name=name, topic_id=topic_id))
        for index, brokers in enumerate(replicas):
            self.add(topic_id, index, brokers)

    def add(self, topic_id: uuid.UUID, index: int, brokers: tuple[int, ...]) -> None:
        self.image.apply(PartitionRecord(topic_id=topic_id, partition_id=index, replicas=list(brokers), leader=1))

    def broker(self, broker_id: int, rack: str | None) -> None:
        self.image.apply(RegisterBrokerRecord(broker_id=broker_id, rack=rack))


def test_the_node_tells_topics_as_its_image_has_them() -> None:
    node = Watched()
    node.broker(1, None)
    node.make("orders", A, replicas=((1,), (1,)))
    facts = node.topics.named("orders")
    assert facts == TopicFacts("orders", A, 2)
    assert node.topics.by_id(A) is facts, "made once"
    assert list(node.topics.names()) == ["orders"]
    node.add(A, 2, (1,))
    assert node.topics.named("orders") == TopicFacts("orders", A, 3)
    node.image.apply(RemoveTopicRecord(topic_id=A))
    assert node.topics.named("orders") is None
    assert node.topics.by_id(A) is None


def test_racks_follow_the_replicas_and_the_brokers() -> None:
    node = Watched()
    node.broker(1, "r1")
    node.broker(2, "r2")
    node.broker(3, None)
    node.make("orders", A, replicas=((2, 1), (3,), (2,)))
    facts = node.topics.named("orders")
    assert facts is not None
    assert facts.racks == (("r1", "r2"), (), ("r2",))
    node.broker(2, "r9")
    moved = node.topics.named("orders")
    assert moved is not None
    assert moved.racks == (("r1", "r9"), (), ("r9",))
    assert moved.hash != facts.hash


def test_settings_of_a_group_come_from_the_image() -> None:
    node = Watched()
    assert overrides_of_group(lambda: node.image, "g") == {}
    node.image.apply(
        ConfigRecord(resource_type=RESOURCE_GROUP, resource_name="g", name="consumer.session.timeout.ms", value="50000")
    )
    assert overrides_of_group(lambda: node.image, "g") == {"consumer.session.timeout.ms": "50000"}
