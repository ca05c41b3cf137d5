"""How many replicas the offsets topic gets, and when it has to wait for brokers."""

from __future__ import annotations

import pytest

from strandline.codec.messages.register_broker_record import RegisterBrokerRecord
from strandline.config.node_config import BrokerConfig
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.new_topics import internal_topic
from strandline.quorum.controller.topic_names import CONSUMER_OFFSETS
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
