"""Which settings internal topics get, how many replicas, and when they have to wait for brokers."""

from __future__ import annotations

import pytest

from strandline.codec.messages.register_broker_record import RegisterBrokerRecord
from strandline.config.node_config import BrokerConfig
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.new_topics import internal_topic
from strandline.quorum.controller.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from strandline.quorum.image.cluster_image import fold

WAITS = "waits"


@pytest.mark.parametrize(
    ("setting", "brokers", "voters", "replicas"),
    [
        # A node alone, and brokers that joined it.
        (None, (1,), (1,), 1),
        (None, (1, 2), (1,), 2),
        (None, (1, 2, 3, 4), (1,), 3),
        # Voters that are brokers as well, while they start one by one.
        (None, (1,), (1, 2, 3), WAITS),
        (None, (1, 3), (1, 2, 3), WAITS),
        (None, (1, 2, 3), (1, 2, 3), 3),
        (None, (1,), (1, 2), WAITS),
        (None, (1, 2), (1, 2), 2),
        # Controllers that are nothing else.
        (None, (1,), (9,), WAITS),
        (None, (1, 2, 3), (7, 8, 9), 3),
        (None, (1, 2), (7, 8, 9), WAITS),
        # A setting is kept to the letter.
        ("1", (1,), (1, 2, 3), 1),
        ("1", (1, 2, 3), (1, 2, 3), 1),
        ("3", (1,), (1,), WAITS),
        ("2", (1, 2, 3), (1,), 2),
        ("5", (1, 2, 3), (1, 2, 3), WAITS),
    ],
)
def test_the_offsets_topic_waits_for_its_replicas(
    setting: str | None, brokers: tuple[int, ...], voters: tuple[int, ...], replicas: int | str
) -> None:
    image = fold(RegisterBrokerRecord(broker_id=broker_id) for broker_id in brokers)
    config = BrokerConfig.load("" if setting is None else f"offsets.topic.replication.factor={setting}")
    if replicas == WAITS:
        with pytest.raises(RequestError, match=f"and {len(brokers)} brokers are registered") as refused:
            internal_topic(CONSUMER_OFFSETS, image=image, config=config, voter_ids=voters)
        assert refused.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    else:
        topic = internal_topic(CONSUMER_OFFSETS, image=image, config=config, voter_ids=voters)
        assert topic.replication_factor == replicas


def test_the_topic_of_share_groups_has_its_own_settings_and_never_expires() -> None:
    image = fold(RegisterBrokerRecord(broker_id=broker_id) for broker_id in (1, 2, 3))
    prefix = "share.coordinator.state.topic"
    config = BrokerConfig.load(
        f"{prefix}.num.partitions=7\n{prefix}.replication.factor=2\n{prefix}.min.isr=1\n{prefix}.segment.bytes=2097152\n"
        "log.retention.bytes=1000000\nlog.retention.ms=1000\nlog.cleanup.policy=compact\n"
    )
    topic = internal_topic(SHARE_GROUP_STATE, image=image, config=config)
    assert (topic.partition_count, topic.replication_factor) == (7, 2)
    assert dict(topic.configs) == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "segment.bytes": "2097152",
    }
    with pytest.raises(RequestError, match=r"share\.coordinator\.state\.topic\.replication\.factor"):
        internal_topic(SHARE_GROUP_STATE, image=fold([RegisterBrokerRecord(broker_id=1)]), config=config)
