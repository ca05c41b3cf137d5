"""Batches of a partition as its leader stores them, byte for byte."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from strandline.client.cluster_client import PASSING, READ_UNCOMMITTED, ClusterClient
from strandline.client.failures import ClusterFailed, DataLost
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.errors import Disconnected, ErrorCode, TimedOut, named
from strandline.ids import TopicPartition

_WAIT_MS: Final = 500
_LOST: Final = frozenset((ErrorCode.CORRUPT_MESSAGE, ErrorCode.OFFSET_OUT_OF_RANGE))


def read_batches(
    client: ClusterClient,
    partition: TopicPartition,
    topic_id: UUID,
    offset: int,
    *,
    size_bytes_max: int,
    end: int | None = None,
) -> bytes:
    """Return batches from the one on that holds `offset`; the last may be cut. Raise DataLost if there are none.

    With `end` the answer is empty where compaction left no batch between `offset` and that.
    """
    request = FetchRequest(
        max_wait_ms=_WAIT_MS,
        min_bytes=1,
        max_bytes=size_bytes_max,
        isolation_level=READ_UNCOMMITTED,
        topics=[
            FetchTopic(
                topic=partition.topic,
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=partition.partition, fetch_offset=offset, partition_max_bytes=size_bytes_max
                    )
                ],
            )
        ],
    )

    def attempt() -> bytes | None:
        try:
            leader, _ = client.leader_of(partition, topic_id=topic_id)
            connection = client.connection(client.address_of(leader))
            connection.send(request, connection.version_for(FetchRequest))
            answer = connection.receive_fetched(wait_s=_WAIT_MS / 1000)
        except (Disconnected, TimedOut):
            client.forget(partition.topic)
            raise
        code = named(answer.error_code)
        if code is ErrorCode.NONE and len(answer.records):
            return bytes(answer.records)
        if code is ErrorCode.NONE and end is not None and answer.high_watermark >= end and not answer.throttle_time_ms:
            return b""
        if code in _LOST:
            raise DataLost(f"the leader of {partition} has no sound batch at offset {offset}: {code.name}")
        if code is not ErrorCode.NONE and code not in PASSING:
            raise ClusterFailed(f"{partition} cannot be read at {offset}: {code.name}")
        client.forget(partition.topic)
        return None

    return client.retried(f"read {partition} at offset {offset}", attempt)
