"""Where a follower begins whose next records are in the store alone: behind them, with the leader's local log.

It copies no tiered data. Of the records before it needs the leader epochs, to compare its log with a leader's, and the
producers, to know duplicates. Both are in the index object of the last segment before the leader's local log.
"""

from __future__ import annotations

from typing import Any, Final

from strandline.broker.tiering.metadata_topic import CONSUMER, MetadataTopic
from strandline.broker.tiering.remote_cache import RemoteCache
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from strandline.errors import DiskFailed, NotLeader
from strandline.log.leader_epochs import LeaderEpochs
from strandline.partition.partition import Partition
from strandline.partition.tier import OnBeginning, TierBeginning
from strandline.runtime.runtime import Runtime
from strandline.tiers.objects import ObjectPart, key_of
from strandline.tiers.records import RemoteSegment, TieredPartition
from strandline.tiers.remote_segments import RemoteSegments, ranges_of
from strandline.tiers.store.waiting import start

EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
_LIST_VERSION: Final = 8
_EPOCH_VERSION: Final = 4


class FollowerBeginnings:
    """Looks up beginnings for the followers of a node."""

    def __init__(self, runtime: Runtime, metadata: MetadataTopic, cache: RemoteCache, cluster_id: str) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._cache = cache
        self._cluster_id = cluster_id

    def find(self, partition: Partition, then: OnBeginning) -> None:
        """Call `then` once, on a later turn."""
        start(self._runtime, self._find(partition), then)

    async def _find(self, partition: Partition) -> TierBeginning:
        place = TieredPartition(partition.topic_id, partition.index, partition.topic)
        local_start = await self._offset(partition, EARLIEST_LOCAL)
        log_start = await self._offset(partition, EARLIEST)
        await self._metadata.catch_up(place)
        segments = self._metadata.states.get(place.key)
        if segments is None:
            raise DiskFailed(f"the metadata of {place} names no segment in the object store")
        segment = await self._segment_before(partition, segments, local_start)
        key = key_of(self._cluster_id, place, segment)
        parts = (await self._cache.indexes(key, segment)).parts
        return TierBeginning(
            segment.end_offset + 1,
            LeaderEpochs.parse(parts[ObjectPart.LEADER_EPOCHS].decode()),
            parts.get(ObjectPart.PRODUCER_SNAPSHOT),
            log_start,
        )

    async def _segment_before(self, partition: Partition, segments: RemoteSegments, offset: int) -> RemoteSegment:
        """Return the segment with the record before `offset` that is in the leader's log."""
        found = [
            (epoch, segment)
            for segment in segments.readable()
            for epoch, first, last in ranges_of(segment)
            if first <= offset - 1 <= last
        ]
        for epoch, segment in sorted(found, key=lambda each: (each[0], each[1].end_offset), reverse=True):
            # Segments of a former leader may hold records that an election took back: the leader knows its epochs.
            answer = await self._end_of_epoch(partition, epoch)
            if answer.leader_epoch == epoch and answer.end_offset >= segment.end_offset + 1:
                return segment
        raise DiskFailed(f"no segment in the object store ends before offset {offset}, where the leader's log begins")

    async def _offset(self, partition: Partition, timestamp: int) -> int:
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            topics=[
                ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=partition.index,
                            current_leader_epoch=partition.leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        response = await self._metadata.ask("list", partition.leader_id, request, _LIST_VERSION)
        answer = _only(response, partition).partitions[0]
        if answer.error_code:
            raise NotLeader(f"node {partition.leader_id} answered error {answer.error_code}")
        offset: int = answer.offset
        return offset

    async def _end_of_epoch(self, partition: Partition, epoch: int) -> Any:
        request = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER,
            topics=[
                OffsetForLeaderTopic(
                    topic=partition.topic,
                    partitions=[
                        OffsetForLeaderPartition(
                            partition=partition.index,
                            current_leader_epoch=partition.leader_epoch,
                            leader_epoch=epoch,
                        )
                    ],
                )
            ],
        )
        response = await self._metadata.ask("list", partition.leader_id, request, _EPOCH_VERSION)
        answer = _only(response, partition).partitions[0]
        if answer.error_code:
            raise NotLeader(f"node {partition.leader_id} answered error {answer.error_code}")
        return answer


def _only(response: Any, partition: Partition) -> Any:
    if response is None:
        raise NotLeader(
            f"node {partition.leader_id}, the leader of {partition.topic}-{partition.index}, does not answer"
        )
    return response.topics[0]
