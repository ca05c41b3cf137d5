"""Topics are created by our own client: once, with what was asked for, or with the words of the broker why not."""

from __future__ import annotations

from contextlib import closing

import pytest

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.failures import ClusterFailed
from strandline.client.topic_creation import create_topic
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.testing import embedded


def test_a_topic_is_created_once(broker: EmbeddedBroker, topic: str) -> None:
    with closing(ClusterClient(ClientSettings.within(broker.bootstrap, "test", 10.0))) as client:
        made = create_topic(client, topic, partitions=3, replicas_max=3, settings={"cleanup.policy": "compact"})
        assert sorted(made.leaders) == [0, 1, 2]
        again = create_topic(client, topic, partitions=5, replicas_max=3, settings={})
        assert again == made
        with pytest.raises(ClusterFailed, match=r"cleanup\.policy"):
            create_topic(client, f"{topic}-2", partitions=1, replicas_max=1, settings={"cleanup.policy": "burn"})
        assert client.topic(f"{topic}-2") is None


@pytest.mark.slow
def test_a_topic_is_created_when_a_broker_has_died() -> None:
    with (
        embedded(nodes=3) as cluster,
        closing(ClusterClient(ClientSettings.within(cluster.bootstrap, "test", 30.0))) as client,
    ):
        create_topic(client, "first", partitions=1, replicas_max=3, settings={})
        cluster.kill(client._controller_id)
        made = create_topic(client, "second", partitions=2, replicas_max=2, settings={})
        assert sorted(made.leaders) == [0, 1]
