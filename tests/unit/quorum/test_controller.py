"""The controller's decisions, as a table of requests and answers; and that what it writes gives the image it meant."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from strandline.config.node_config import BrokerConfig
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.controller import PARTITIONS_PER_REQUEST_MAX, Controller, TopicRef
from strandline.quorum.controller.new_topics import CreatedTopic, NewTopic, internal_topic, random_uuid
from strandline.quorum.controller.topic_names import CONSUMER_OFFSETS
from strandline.quorum.image.cluster_image import ClusterImage, fold

SEED = 7


class Cluster:
    """A controller and the log it writes to; `image` is what a node that read the log would see."""

    def __init__(self, brokers: int = 1, **settings: str) -> None:
        overrides = {name.replace("_", "."): value for name, value in settings.items()}
        self.image = ClusterImage()
        self.controller = Controller(self.image, config=BrokerConfig.load("", overrides), rng=random.Random(SEED))
        self.log: list[Any] = []
        self.write(self.controller.bootstrap())
        for broker_id in range(1, brokers + 1):
            self.start_broker(broker_id)

    def start_broker(self, broker_id: int, rack: str | None = None) -> None:
        self.write(
            self.controller.register_broker(
                broker_id,
                epoch=len(self.log),
                incarnation_id=uuid.UUID(int=broker_id),
                endpoints=[("PLAINTEXT", "127.0.0.1", 9091 + broker_id)],
                log_dirs=[uuid.UUID(int=1000 + broker_id)],
                rack=rack,
            )
        )

    def write(self, records: list[Any]) -> None:
        for record in records:
            self.image.apply(record, len(self.log))
            self.log.append(record)

    def create(self, *topics: NewTopic, validate_only: bool = False) -> list[CreatedTopic | RequestError]:
        records, outcomes = self.controller.create_topics(topics, validate_only=validate_only)
        self.write(records)
        return outcomes

    def create_offsets_topic(self) -> CreatedTopic | RequestError:
        config = BrokerConfig.load("", {})
        return self.create(internal_topic(CONSUMER_OFFSETS, image=self.image, config=config))[0]

    def delete(self, *refs: TopicRef) -> list[ErrorCode]:
        records, outcomes = self.controller.delete_topics(refs)
        self.write(records)
        return [ErrorCode(outcome.error.code) if outcome.error else ErrorCode.NONE for outcome in outcomes]


def code_of(outcome: CreatedTopic | RequestError) -> ErrorCode:
    return ErrorCode(outcome.code) if isinstance(outcome, RequestError) else ErrorCode.NONE


def test_a_topic_gets_the_defaults_of_its_node() -> None:
    cluster = Cluster(num_partitions="3")
    (created,) = cluster.create(NewTopic("orders"))
    assert isinstance(created, CreatedTopic)
    assert (created.partition_count, created.replication_factor) == (3, 1)
    topic = cluster.image.topic_by_name("orders")
    assert topic is cluster.image.topic_by_id(created.id)
    assert topic is not None
    assert [(p.leader, p.leader_epoch, p.isr, p.replicas) for p in topic.partitions] == [(1, 0, [1], [1])] * 3
    assert topic.partitions[0].directories == [uuid.UUID(int=1001)]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a", ErrorCode.NONE),
        ("a" * 249, ErrorCode.NONE),
        ("A-Z_0.9", ErrorCode.NONE),
        ("...", ErrorCode.NONE),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (".", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("../../etc/passwd", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a\0", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a\n", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("größe", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("٣", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("taken", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("with_dots", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__cluster_metadata", ErrorCode.INVALID_REQUEST),
    ],
)
def test_names(name: str, code: ErrorCode) -> None:
    cluster = Cluster()
    cluster.create(NewTopic("taken"), NewTopic("with.dots"))
    assert [code_of(each) for each in cluster.create(NewTopic(name))] == [code]
    assert (name in cluster.image.topics) == (code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS))


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("t", 1, 1), ErrorCode.NONE),
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", PARTITIONS_PER_REQUEST_MAX + 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 3), ErrorCode.NONE),
        (NewTopic("t", assignment=[(0, [1, 2]), (1, [2, 3])]), ErrorCode.NONE),
        (NewTopic("t", 2, assignment=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, 1, assignment=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignment=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignment=[(0, [1]), (0, [2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignment=[(0, [1]), (1, [1, 2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignment=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignment=[(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignment=[(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", configs=[("segment.bytes", "1048576")]), ErrorCode.NONE),
        (NewTopic("t", configs=[("segment.bytes", "many")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=[("segment.bytes", "-1")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=[("segment.bytes", None)]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=[("no.such.setting", "1")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=[("cleanup.policy", "shred")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=[("flush.mode", "ack")]), ErrorCode.NONE),
    ],
)
def test_numbers_assignments_and_configs(topic: NewTopic, code: ErrorCode) -> None:
    cluster = Cluster(brokers=3)
    assert [code_of(each) for each in cluster.create(topic)] == [code]
    assert ("t" in cluster.image.topics) == (code == ErrorCode.NONE)


def test_one_bad_topic_spoils_no_other() -> None:
    cluster = Cluster()
    outcomes = cluster.create(
        NewTopic("good"), NewTopic("twice"), NewTopic("bad/name"), NewTopic("twice"), NewTopic("a.b"), NewTopic("a_b")
    )
    assert [code_of(outcome) for outcome in outcomes] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert sorted(cluster.image.topics) == ["a.b", "good"]


def test_validate_only_says_the_same_and_writes_nothing() -> None:
    cluster = Cluster()
    asked = [NewTopic("t", 2), NewTopic("a.b"), NewTopic("a_b")]
    codes = [code_of(outcome) for outcome in cluster.create(*asked, validate_only=True)]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert not cluster.image.topics
    assert [code_of(outcome) for outcome in cluster.create(*asked)] == codes


def test_a_decision_counts_before_it_is_in_the_log_and_not_after_it_failed() -> None:
    cluster = Cluster()
    _, (first,) = cluster.controller.create_topics([NewTopic("t")])
    _, (second,) = cluster.controller.create_topics([NewTopic("t")])
    assert (code_of(first), code_of(second)) == (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    assert "t" not in cluster.image.topics
    cluster.controller.revert(cluster.image)
    records, (third,) = cluster.controller.create_topics([NewTopic("t")])
    assert code_of(third) == ErrorCode.NONE
    cluster.controller.revert(cluster.image, still_pending=records)
    _, (fourth,) = cluster.controller.create_topics([NewTopic("t")])
    assert code_of(fourth) == ErrorCode.TOPIC_ALREADY_EXISTS, "its records are still on their way"


def test_configs_of_a_topic_are_kept_with_it() -> None:
    cluster = Cluster()
    (created,) = cluster.create(NewTopic("t", configs=[("retention.ms", "60000")]))
    assert isinstance(created, CreatedTopic)
    topic = cluster.image.topic_by_name("t")
    assert topic is not None
    assert topic.config_overrides == created.config_overrides == {"retention.ms": "60000"}


def test_delete_by_name_and_by_id() -> None:
    cluster = Cluster()
    created = cluster.create(*(NewTopic(name) for name in "abcd"))
    ids = [each.id for each in created if isinstance(each, CreatedTopic)]
    codes = cluster.delete(
        TopicRef("a"),
        TopicRef(id=ids[1]),
        TopicRef("c"),
        TopicRef(id=ids[2]),
        TopicRef("missing"),
        TopicRef(id=uuid.UUID(int=99)),
        TopicRef(),
        TopicRef("d", ids[3]),
    )
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert sorted(cluster.image.topics) == ["c", "d"]
    assert cluster.image.topic_by_id(ids[0]) is None


def test_a_name_is_free_again_after_deletion_and_its_configs_are_gone() -> None:
    cluster = Cluster()
    (old,) = cluster.create(NewTopic("a.b", configs=[("retention.ms", "1")]))
    assert cluster.delete(TopicRef("a.b")) == [ErrorCode.NONE]
    (new,) = cluster.create(NewTopic("a_b"))
    (again,) = cluster.create(NewTopic("a.b"))
    assert (code_of(new), code_of(again)) == (ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION)
    cluster.delete(TopicRef("a_b"))
    (again,) = cluster.create(NewTopic("a.b"))
    assert isinstance(old, CreatedTopic)
    assert isinstance(again, CreatedTopic)
    assert again.id != old.id
    topic = cluster.image.topic_by_name("a.b")
    assert topic is not None
    assert topic.config_overrides == {}


def test_deletion_can_be_switched_off() -> None:
    cluster = Cluster(delete_topic_enable="false")
    cluster.create(NewTopic("t"))
    assert cluster.delete(TopicRef("t")) == [ErrorCode.TOPIC_DELETION_DISABLED]
    assert "t" in cluster.image.topics


def test_the_offsets_topic_takes_the_replicas_there_are() -> None:
    cluster = Cluster(brokers=2)
    created = cluster.create_offsets_topic()
    assert isinstance(created, CreatedTopic)
    assert (created.partition_count, created.replication_factor) == (50, 2)
    topic = cluster.image.topic_by_name(CONSUMER_OFFSETS)
    assert topic is not None
    assert topic.config_overrides["cleanup.policy"] == "compact"


def test_replicas_are_spread_over_brokers_and_racks() -> None:
    cluster = Cluster(brokers=0)
    for broker_id, rack in enumerate(["a", "a", "b", "b"], start=1):
        cluster.start_broker(broker_id, rack)
    (created,) = cluster.create(NewTopic("t", 8, 2))
    assert code_of(created) == ErrorCode.NONE
    partitions = cluster.image.topics["t"].partitions
    led = [partition.leader for partition in partitions]
    assert sorted(led) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert all(len(set(partition.replicas)) == 2 for partition in partitions)
    first_round = partitions[:4]
    assert all({broker_id > 2 for broker_id in partition.replicas} == {True, False} for partition in first_round)


def test_without_a_broker_no_topic() -> None:
    cluster = Cluster(brokers=0)
    (outcome,) = cluster.create(NewTopic("t"))
    assert code_of(outcome) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_restart_gives_every_led_partition_a_new_leader_epoch() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("t", 2))
    before = cluster.image.brokers[1].epoch
    cluster.start_broker(1)
    assert [partition.leader_epoch for partition in cluster.image.topics["t"].partitions] == [1, 1]
    assert cluster.image.brokers[1].epoch > before
    assert cluster.image.brokers[1].is_active


def test_producer_id_blocks_never_overlap_and_survive_the_controller() -> None:
    cluster = Cluster()
    seen: set[int] = set()
    for _ in range(3):
        for _ in range(3):
            records, block = cluster.controller.allocate_producer_ids(1, cluster.image.brokers[1].epoch)
            cluster.write(records)
            ids = set(range(block.first, block.end))
            assert len(ids) == 1000
            assert not ids & seen
            seen |= ids
        # A new controller, as after a restart, knows no more than the log.
        cluster.controller = Controller(fold(cluster.log), config=BrokerConfig.load(), rng=random.Random(SEED))


def test_topic_ids_are_never_reserved_and_never_look_like_an_option() -> None:
    rng = random.Random(SEED)
    ids = [random_uuid(rng) for _ in range(2000)]
    assert len(set(ids)) == len(ids)
    assert not any(topic_id.bytes[0] >> 2 == 62 for topic_id in ids)


@pytest.mark.parametrize("brokers", [1, 2])
def test_the_broker_of_the_only_controller_registers_again_with_share_groups(brokers: int) -> None:
    cluster = Cluster(brokers=brokers)
    cluster.start_broker(1)
    assert "share.version" in {each.name for each in cluster.image.brokers[1].registration.features}
