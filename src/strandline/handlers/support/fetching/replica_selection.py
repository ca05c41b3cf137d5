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
    tier = partition.tier
    if tier is not None and tier.follows_index:
        if not partition.log_start_offset <= offset <= partition.high_watermark:
            # Only a leader may say that an offset is out of range: clients ask again after a follower does.
            return NONE
        # Each of them reads the same store. The partitions are spread over them.
        return found[partition.index % len(found)]
    if tier is not None and offset < tier.copied_up_to():
        # A follower may have it in the store alone, and would send the client back.
        return NONE
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
