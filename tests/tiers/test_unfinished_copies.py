"""What a process that was killed has left: copies that were begun, and metadata that its successor has yet to read."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Producer
from tests.hostile.peer import Peer
from tests.tiers.raw_reads import fetch_once, listed
from tests.tiers.tiered_nodes import WAIT_S, fill, local_bases, objects, properties, settings_of_tiered, wait_until

import strandline
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.tiers.objects import segment_key
from strandline.tiers.records import (
    METADATA_TOPIC,
    MetadataEvent,
    RemoteSegment,
    SegmentAdded,
    TieredPartition,
    encode_event,
    metadata_partition,
)
from strandline.tiers.segment_states import SegmentState

LATEST_TIERED = -5
METADATA_PARTITIONS = 2


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with strandline.embedded(data=tmp_path / "data", properties=properties(tmp_path / "store")) as found:
        found.create_topic("orders", **settings_of_tiered(retention_ms=-1))
        rng = random.Random(4)
        fill(found.bootstrap, ["orders"], [rng.randbytes(500) for _ in range(400)])
        with Peer(found.port) as peer:
            last = wait_until(lambda: local_bases(tmp_path / "data", "orders")[-1], "there are segments")
            wait_until(lambda: listed(peer, "orders", LATEST_TIERED).offset == last - 1, "they are copied")
        yield found


def place_of(data: Path, topic: str = "orders") -> TieredPartition:
    lines = dict(line.split(": ") for line in (data / f"{topic}-0" / "partition.metadata").read_text().splitlines())
    return TieredPartition(UUID(bytes=base64.urlsafe_b64decode(lines["topic_id"] + "==")), 0, topic)


def write_event(log: EmbeddedBroker, event: MetadataEvent) -> None:
    """Write a record as a node does."""
    producer = Producer({"bootstrap.servers": log.bootstrap})
    index = metadata_partition(event.partition, METADATA_PARTITIONS)
    producer.produce(METADATA_TOPIC, value=encode_event(event), partition=index)
    assert producer.flush(WAIT_S) == 0


def cluster_of(store: Path) -> str:
    return next(path.relative_to(store).parts[0] for path in objects(store))


def unfinished(tmp_path: Path, broker_id: int, number: int) -> tuple[SegmentAdded, list[Path]]:
    """Return the record of a copy that was begun, and make its objects."""
    place, store = place_of(tmp_path / "data"), tmp_path / "store"
    begun = RemoteSegment(
        UUID(int=number), 0, 99, ((0, 0),), 5, 1000, broker_id, 7, SegmentState.COPY_STARTED, is_txn_index_empty=True
    )
    key = segment_key(cluster_of(store), place, 0, begun.id)
    paths = [store / f"{key}{end}" for end in (".log", ".idx")]
    for path in paths:
        path.write_bytes(b"half of it")
    return SegmentAdded(place, begun), paths


def test_copies_that_a_former_process_began_are_deleted(log: EmbeddedBroker, tmp_path: Path) -> None:
    own, own_paths = unfinished(tmp_path, 1, 71)
    others, others_paths = unfinished(tmp_path, 9, 72)
    before = set(objects(tmp_path / "store")) - {*own_paths, *others_paths}
    write_event(log, own)
    write_event(log, others)
    wait_until(lambda: not any(path.exists() for path in own_paths), "its own former copy is deleted")
    # Another node may still be at it.
    assert set(objects(tmp_path / "store")) == before | set(others_paths)
    with Peer(log.port) as peer:
        assert not fetch_once(peer, "orders", 0, wait_ms=500).error_code, "and finished ones stay"


def test_records_that_no_node_wrote_are_passed_over(log: EmbeddedBroker, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": log.bootstrap})
    for index in range(METADATA_PARTITIONS):
        for value in (b"", b"\x00\x00", b"\x63\x00abc", b"\x00\x00" + bytes(200), None):
            producer.produce(METADATA_TOPIC, value=value, partition=index)
    assert producer.flush(WAIT_S) == 0
    test_copies_that_a_former_process_began_are_deleted(log, tmp_path)


@pytest.mark.slow
def test_a_leader_that_has_not_read_its_metadata_asks_to_come_again(log: EmbeddedBroker) -> None:
    codes: set[int] = set()
    for _ in range(4):
        log.kill()
        log.start()
        with Peer(log.port) as peer:
            while True:
                answer = fetch_once(peer, "orders", 0, wait_ms=0)
                codes.add(answer.error_code)
                assert answer.log_start_offset in (0, -1)
                if answer.records:
                    break
                assert listed(peer, "orders", LATEST_TIERED).error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert codes <= {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}, f"a consumer would jump, or give up: {codes}"
