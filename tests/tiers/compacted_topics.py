"""Compacted topics that are tiered, what was written to them, and what of it must be read."""

from __future__ import annotations

import random
import time
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from tests.hostile.peer import Peer
from tests.tiers.raw_reads import listed
from tests.tiers.test_unfinished_copies import place_of
from tests.tiers.tiered_nodes import INTERVAL_MS, WAIT_S, copies, local_bases, objects, properties, read, wait_until

from strandline.local.embedded_broker import EmbeddedBroker

SEGMENT_BYTES = 16 * 1024
LATEST_TIERED = -5
KEYS = 60

Found = list[tuple[int, bytes | None, bytes | None, int]]


def compacting(store: Path, **more: str) -> dict[str, str]:
    """Return the properties of a node that compacts often."""
    return {**properties(store), "log.cleaner.backoff.ms": str(INTERVAL_MS), **more}


def settings_of_compacted(**more: str | int) -> dict[str, Any]:
    return {
        "cleanup_policy": "compact",
        "remote_storage_enable": "true",
        "internal_segment_bytes": SEGMENT_BYTES,
        "index_interval_bytes": 1024,
        "local_retention_bytes": SEGMENT_BYTES,
        "min_cleanable_dirty_ratio": 0.01,
        "file_delete_delay_ms": 0,
        "delete_retention_ms": 3_600_000,
        **more,
    }


class World(NamedTuple):
    log: EmbeddedBroker
    data: Path
    store: Path


class Written:
    """What was written to some topics alike, and their newest values. A value of None deletes."""

    def __init__(self, bootstrap: str, topics: list[str], seed: int) -> None:
        self.bootstrap = bootstrap
        self.topics = topics
        self.rng = random.Random(seed)
        self.newest: dict[bytes, bytes | None] = {}
        self.values: set[tuple[bytes, bytes | None]] = set()
        self.count = 0

    def records(self, count: int, *, keys: int = KEYS) -> Iterator[tuple[bytes, bytes | None]]:
        for _ in range(count):
            self.count += 1
            key = b"key %d" % self.rng.randrange(keys)
            is_deletion = self.rng.random() < 0.15
            yield key, None if is_deletion else b"%d " % self.count + self.rng.randbytes(self.rng.randrange(20, 400))

    def write(self, count: int, *, keys: int = KEYS, per_batch: int = 5) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "enable.idempotence": True})
        for number, (key, value) in enumerate(self.records(count, keys=keys)):
            for topic in self.topics:
                producer.produce(topic, key=key, value=value, partition=0)
            self.newest[key] = value
            self.values.add((key, value))
            if number % per_batch == per_batch - 1:
                assert producer.flush(WAIT_S) == 0
        assert producer.flush(WAIT_S) == 0

    def write_in_transactions(self, count: int) -> None:
        """Write transactions, of which a third is aborted."""
        name = f"writer-{self.rng.randrange(10**9)}"
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": name, "linger.ms": 0})
        producer.init_transactions(WAIT_S)
        for _ in range(count):
            producer.begin_transaction()
            pending = list(self.records(self.rng.randrange(1, 6)))
            for key, value in pending:
                for topic in self.topics:
                    producer.produce(topic, key=key, value=value, partition=0)
            producer.flush(WAIT_S)
            if self.rng.randrange(3):
                producer.commit_transaction(WAIT_S)
                self.newest.update(pending)
                self.values.update(pending)
            else:
                producer.abort_transaction(WAIT_S)

    def check(self, found: Found) -> None:
        """Assert that a reader of all records has the newest value of each key, and nothing that was not written."""
        offsets = [each[0] for each in found]
        assert offsets == sorted(set(offsets)), "an offset came twice, or out of order"
        read_last: dict[bytes, bytes | None] = {}
        for _, key, value, _ in found:
            assert key is not None
            assert (key, value) in self.values, f"{key!r} has a value that was not committed"
            read_last[key] = value
        for key, value in self.newest.items():
            # A tombstone may be gone. Then there must be no older value.
            assert read_last.get(key) == value, f"{key!r}: {read_last.get(key)!r} instead of {value!r}"


def end_of(world: World, topic: str) -> int:
    with Peer(world.log.port) as peer:
        offset: int = listed(peer, topic, -1).offset
        return offset


def read_all(world: World, topic: str, *, start: int = 0) -> Found:
    return read(world.log.bootstrap, topic, start, end_of(world, topic))


def read_while_still(world: World, topic: str, starts: Iterable[int]) -> tuple[Found, dict[int, Found]]:
    """Return what is read from the start and from some offsets on, while no compaction changed the store."""
    end = end_of(world, topic)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        before = objects(world.store)
        whole = read(world.log.bootstrap, topic, 0, end)
        found = {start: read(world.log.bootstrap, topic, start, end) for start in starts}
        if objects(world.store) == before:
            return whole, found
    raise AssertionError(f"the store was never still for {WAIT_S:g} seconds")


def metrics(port: int) -> dict[str, float]:
    """Return the metrics of tiered topics of one moment, without `strandline_remote_` in front."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WAIT_S) as answer:
        lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[:1] != "#")
    prefix = "strandline_remote_"
    return {name.removeprefix(prefix): float(value) for name, value in lines.items() if name.startswith(prefix)}


def stored_bytes(paths: list[Path]) -> int:
    """Return the size of some objects; -1 if one of them was deleted meanwhile."""
    try:
        return sum(path.stat().st_size for path in paths)
    except FileNotFoundError:
        return -1


def wait_compacted(world: World, topic: str, *, segments_max: int = 6, bytes_max: int = 3 * SEGMENT_BYTES) -> None:
    """Wait until all that is sealed is in the store, compacted, and nothing else of the topic is there."""
    topic_id = place_of(world.data, topic).topic_id

    def is_done() -> bool:
        bases = local_bases(world.data, topic)
        with Peer(world.log.port) as peer:
            tiered = listed(peer, topic, LATEST_TIERED).offset
        found = [path for path in objects(world.store) if path.parts[-3] == str(topic_id)]
        logs = [path for path in found if path.suffix == ".log"]
        is_small = len(logs) <= segments_max and 0 <= stored_bytes(logs) <= bytes_max and len(found) == 2 * len(logs)
        return tiered == bases[-1] - 1 and is_small

    try:
        wait_until(is_done, f"{topic} is compacted in the store")
    except AssertionError:
        names = [f"{path.name[:20]} {path.stat().st_size}" for path in copies(world.store)]
        raise AssertionError(f"{topic}: local {local_bases(world.data, topic)}, store {names}") from None
