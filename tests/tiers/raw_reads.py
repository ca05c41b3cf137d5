"""Requests of a reader, byte by byte: what a client library would hide."""

from __future__ import annotations

import time
from typing import Any

from tests.hostile.peer import Peer

from strandline.codec.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

FETCH_VERSION = 12
LIST_VERSION = 11
DELETE_VERSION = 2
STILL_S = 20.0


def fetch_once(
    peer: Peer,
    topic: str,
    offset: int,
    *,
    size: int = 1 << 20,
    committed: bool = False,
    wait_ms: int = 100,
    index: int = 0,
) -> Any:
    """Return the answer for one partition."""
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 24,
        isolation_level=int(committed),
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=size)],
            )
        ],
    )
    return peer.ask(request, FETCH_VERSION).responses[0].partitions[0]


def fetch(peer: Peer, topic: str, offset: int, **more: Any) -> Any:
    """Return an answer with records, or with an error: a read of the store may take longer than a fetch."""
    deadline = time.monotonic() + STILL_S
    while time.monotonic() < deadline:
        found = fetch_once(peer, topic, offset, **more)
        if found.error_code or found.records:
            return found
    raise AssertionError(f"no records of {topic} from {offset} on in {STILL_S:g} seconds")


def listed(peer: Peer, topic: str, timestamp: int, *, index: int = 0) -> Any:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp)])
        ],
    )
    return peer.ask(request, LIST_VERSION).topics[0].partitions[0]


def delete_records(peer: Peer, topic: str, offset: int) -> Any:
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])],
        timeout_ms=10_000,
    )
    return peer.ask(request, DELETE_VERSION).topics[0].partitions[0]
