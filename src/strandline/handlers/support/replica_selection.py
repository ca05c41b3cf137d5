"""Which replica a consumer should read (KIP-392): one in its rack, if the leader is in another."""

from __future__ import annotations

from typing import Final

from strandline.handlers.support.context import BrokerServices
from strandline.partition.partition import Partition
from strandline.quorum.image.cluster_image import ClusterImage, PartitionImage

NONE: Final = -1


def preferred_replica(node: BrokerServices, partition: Partition, rack: str, offset: int) -> int:
    """Return an in-sync replica in the rack that can serve an offset; -1 if the leader is there, or none is."""
    image = node.image
    topic = image.topic_by_id(partition.topic_id)
    if topic is None or partition.index >= len(topic.partitions):
        return NONE
    known = topic.partitions[partition.index]
    if known.leader_epoch != partition.leader_epoch:
        return NONE
    found = _in_rack(image, known, rack)
    if not found or known.leader in found:
        return NONE
    if partition.tier is not None and partition.tier.follows_index:
        # Each of them reads the same store. The partitions are spread over them.
        return found[partition.index % len(found)]
    followers = {} if partition.in_sync is None else partition.in_sync.followers
    reaching = [
        (followers[each].end_offset, -each)
        for each in found
        if each in followers and followers[each].log_start_offset <= offset <= followers[each].end_offset
    ]
    return -max(reaching)[1] if reaching else NONE


def _in_rack(image: ClusterImage, known: PartitionImage, rack: str) -> list[int]:
    """Return the in-sync replicas in a rack that are alive."""
    found = []
    for each in known.isr:
        broker = image.brokers.get(each)
        if broker is not None and broker.is_active and broker.rack == rack:
            found.append(each)
    return found
