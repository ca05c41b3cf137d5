"""What the metadata says of brokers that may join or leave an in-sync set."""

from __future__ import annotations

from strandline.broker.environment import Environment
from strandline.partition.partition import Partition


def may_leave_in_sync(environment: Environment, partition: Partition) -> bool:
    """Tell whether enough others stay in sync if this node's replica is out of sync for a while.

    With fewer, the controller keeps it as an eligible leader, and then it may not discard its log either.
    """
    topic = environment.image().topic_by_id(partition.topic_id)
    if topic is None or partition.index >= len(topic.partitions):
        return False
    image, node_id = topic.partitions[partition.index], environment.node_id
    others = [each for each in image.isr if each != node_id]
    is_eligible = node_id in (image.eligible_leader_replicas or ())
    return not is_eligible and len(others) >= min(partition.config.min_insync_replicas, len(image.replicas))


def may_be_in_sync(environment: Environment, broker_id: int, broker_epoch: int) -> bool:
    """Return whether a broker may be in sync: alive with this epoch, neither fenced nor leaving (KIP-841, KIP-903)."""
    broker = environment.image().brokers.get(broker_id)
    return broker is not None and broker.epoch == broker_epoch and broker.is_active
