"""Object topics through the front door of one node, beside local and tiered ones that were fed alike."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from tests.hostile.peer import Peer
from tests.tiers.raw_reads import fetch, listed
from tests.tiers.tiered_nodes import (
    SEGMENT_BYTES,
    WAIT_S,
    fill,
    objects,
    properties,
    read,
    settings_of_tiered,
    wait_until,
)

import strandline
from strandline.codec.record_batch import CONTROL, HEADER_SIZE
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.tiers.wal.events import COMMIT_TOPIC

RECORDS = 1200
BEGAN_MS = 1_700_000_000_000
KINDS = ("local", "tiered", "object", "wal")
EARLIEST, EARLIEST_LOCAL, LATEST_TIERED = -2, -4, -5
RANGES = 200
SETTINGS = {
    "strandline_object_flush_interval_ms": "30",
    "strandline_object_merge_interval_ms": "400",
    "log_segment_delete_delay_ms": "1000",
    "strandline_object_checkpoint_interval_ms": "500",
}
OBJECT: dict[str, Any] = {"strandline_storage": "object"}
WAL: dict[str, Any] = {**OBJECT, "strandline_object_ack": "wal"}


class World(NamedTuple):
    log: EmbeddedBroker
    data: Path
    store: Path


def wal_objects(store: Path) -> list[Path]:
    """Return the objects of batches that may not be merged yet."""
    found = (Path(folder) / name for folder, _, names in os.walk(store) for name in names)
    return sorted(path for path in found if "wal" in path.relative_to(store).parts)


def create(log: EmbeddedBroker, suffix: str = "") -> list[str]:
    small = {"internal_segment_bytes": SEGMENT_BYTES, "index_interval_bytes": 1024, "retention_ms": -1}
    log.create_topic(f"local{suffix}", **small)
    log.create_topic(f"tiered{suffix}", **settings_of_tiered(retention_ms=-1))
    log.create_topic(f"object{suffix}", **OBJECT, **small, local_retention_bytes=2 * SEGMENT_BYTES)
    log.create_topic(f"wal{suffix}", **WAL, **small, local_retention_bytes=2 * SEGMENT_BYTES, file_delete_delay_ms=0)
    return [f"{kind}{suffix}" for kind in KINDS]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A node that was killed twice, with topics of each kind. Object topics lie in segments, objects and here."""
    store, data = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("data")
    rng = random.Random(11)
    values = [rng.randbytes(rng.randrange(20, 900)) for _ in range(RECORDS)]
    with strandline.embedded(data=data, properties=properties(store, **SETTINGS)) as log:
        topics, transactional = create(log), create(log, "-txn")
        third, transactions = RECORDS // 3, Transactions(log, transactional, rng)
        for part in range(3):
            some = values[part * third : (part + 1) * third]
            fill(log.bootstrap, topics, some, timestamps=BEGAN_MS + part * third)
            transactions.fill(24)
            if part == 0:
                wait_until(lambda: len(objects(store)) > 20, "segments are in the store")
            if part < 2:
                log.kill()
                log.start()
        yield World(log, data, store)


class Transactions:
    """Writes the same transactions to several topics, each record and each marker at the same offset of all."""

    def __init__(self, log: EmbeddedBroker, topics: list[str], rng: random.Random) -> None:
        self._log = log
        self._topics = topics
        self._rng = rng
        self._offset = 0

    def fill(self, turns: int) -> None:
        """Write short transactions inside long ones. A third is aborted."""
        producers = []
        for name in ("long", "short"):
            producers.append(Producer({"bootstrap.servers": self._log.bootstrap, "transactional.id": name}))
            producers[-1].init_transactions(WAIT_S)
        long, short = producers
        for turn in range(turns):
            if turn % 8 == 0:
                long.begin_transaction()
            self._write(long)
            short.begin_transaction()
            for _ in range(self._rng.randrange(1, 5)):
                self._write(short)
            self._end(short, is_commit=bool(self._rng.randrange(3)))
            if turn % 8 == 7:
                self._end(long, is_commit=turn % 16 == 7)

    def _write(self, producer: Producer) -> None:
        value = self._rng.randbytes(self._rng.randrange(500))
        for topic in self._topics:
            producer.produce(topic, value=value, partition=0, timestamp=BEGAN_MS + self._offset)
        producer.flush(WAIT_S)
        self._offset += 1

    def _end(self, producer: Producer, *, is_commit: bool) -> None:
        """End a transaction, and wait for the markers: else their order could differ among the topics."""
        if is_commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
        self._offset += 1
        with Peer(self._log.port) as peer:
            for topic in self._topics:
                wait_until(lambda: listed(peer, topic, -1).offset >= self._offset, "the marker is there")  # noqa: B023


def plain(records: bytes) -> bytes:
    """Return batches without leader epochs, and without the times of markers, which brokers set."""
    out, at = bytearray(records), 0
    while len(out) - at >= HEADER_SIZE:
        out[at + 12 : at + 16] = bytes(4)
        if out[at + 22] & CONTROL:
            out[at + 17 : at + 21], out[at + 27 : at + 43] = bytes(4), bytes(16)
        at += int.from_bytes(out[at + 8 : at + 12], "big") + 12
    return bytes(out)


@pytest.mark.parametrize("suffix", ["", "-txn"])
def test_any_range_reads_alike_in_all_kinds(world: World, suffix: str) -> None:
    rng = random.Random(5)
    with Peer(world.log.port) as peer:
        ends = {kind: listed(peer, f"{kind}{suffix}", -1).offset for kind in KINDS}
        assert len(set(ends.values())) == 1, ends
        seams = [listed(peer, f"{kind}{suffix}", EARLIEST_LOCAL).offset for kind in KINDS[1:]]
        assert all(0 < seam < ends["local"] for seam in seams), seams
        for number in range(RANGES):
            # Every fifth one is near a seam, of each kind in turn.
            seam = seams[number // 5 % len(seams)]
            near = range(max(0, seam - 30), min(seam + 30, ends["local"]))
            offset = rng.randrange(ends["local"]) if number % 5 else rng.choice(near)
            size, committed = rng.choice((1, 200, 3000, 40_000, 300_000)), bool(number % 2)
            found = [fetch(peer, f"{kind}{suffix}", offset, size=size, committed=committed) for kind in KINDS]
            common = min(len(each.records) for each in found)
            assert common > 0
            bodies = {plain(each.records[:common]) for each in found}
            assert len(bodies) == 1, (offset, size)
            assert len({(each.high_watermark, each.last_stable_offset, each.log_start_offset) for each in found}) == 1


@pytest.mark.parametrize("committed", [True, False])
def test_clients_read_the_same_transactions(world: World, committed: bool) -> None:
    with Peer(world.log.port) as peer:
        end = listed(peer, "local-txn", -1).offset
    found = [read(world.log.bootstrap, f"{kind}-txn", 0, end, committed=committed) for kind in KINDS]
    assert len(found[0]) > 100
    assert found[0] == found[1] == found[2] == found[3]


def test_times_are_found_in_all_kinds(world: World) -> None:
    rng = random.Random(2)
    with Peer(world.log.port) as peer:
        for _ in range(60):
            time_ms = BEGAN_MS + rng.randrange(RECORDS)
            found = [listed(peer, kind, time_ms) for kind in KINDS]
            assert len({(each.offset, each.timestamp) for each in found}) == 1, time_ms


def test_the_commit_log_is_cut_at_checkpoints(world: World) -> None:
    """The node was killed and read them."""
    with Peer(world.log.port) as peer:
        assert listed(peer, COMMIT_TOPIC, EARLIEST).offset > 20
    assert 1 <= sum("commits" in path.parts for path in world.store.rglob("*") if path.is_file()) <= 3


def test_small_objects_are_merged_and_deleted(world: World) -> None:
    with Peer(world.log.port) as peer:
        end = listed(peer, "object", -1).offset
        wait_until(lambda: listed(peer, "object", LATEST_TIERED).offset == end - 1, "all records are in segments")
    wait_until(lambda: not wal_objects(world.store), "no object is needed any more")
