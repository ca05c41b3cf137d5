"""What a broker does when it comes to lead object partitions: it serves them, and moves and reads nothing for it."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from confluent_kafka import Producer
from tests.hostile.peer import Peer
from tests.tiers.objects.test_object_topics import wal_objects
from tests.tiers.raw_reads import listed
from tests.tiers.tiered_nodes import (
    SEGMENT_BYTES,
    WAIT_S,
    copies,
    fill,
    properties,
    read,
    settings_of_tiered,
    wait_until,
    watermarks,
)

import strandline
from strandline.local.free_ports import free_port

LATEST, LATEST_TIERED = -1, -5
SELDOM = {"strandline_object_flush_interval_ms": "20", "strandline_object_merge_interval_ms": "3600000"}
COUNTS = ("strandline_remote_read_bytes_total", "strandline_object_merged_ranges_total")


def counted(port: int) -> list[float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[:1] != "#")
    return [float(lines[each]) for each in COUNTS]


def test_a_new_leader_leaves_what_former_ones_committed_in_the_store(tmp_path: Path) -> None:
    """It is merged when it is due: a broker may come to lead a thousand partitions at once, whose clients wait."""
    store, port = tmp_path / "store", free_port()
    settings = properties(store, http_listener=f"127.0.0.1:{port}", **SELDOM)
    values = [b"%d" % number + bytes(1000) for number in range(100)]
    with strandline.embedded(data=tmp_path / "data", properties=settings) as log:
        log.create_topic("orders", 5, strandline_storage="object")
        log.create_topic("tiered", **settings_of_tiered())
        fill(log.bootstrap, ["orders"], values)
        log.kill()
        log.start()
        fill(log.bootstrap, ["orders"], [b"next"])
        # The same task that copies segments merges ranges. When it was here, it has been there.
        fill(log.bootstrap, ["tiered"], values)
        wait_until(lambda: copies(store), "segments of the tiered topic are in the store")
        assert counted(port) == [0, 0]
        assert watermarks(log.bootstrap, "orders") == (0, 101)
        assert [each[2] for each in read(log.bootstrap, "orders", 0, 101)] == [*values, b"next"]


def test_a_transaction_is_aborted_by_a_marker_that_is_not_merged(tmp_path: Path) -> None:
    """Its records are in a segment. The new leader knows the marker from the commit log alone."""
    store = tmp_path / "store"
    with strandline.embedded(data=tmp_path / "data", properties=properties(store, **SELDOM)) as log:
        log.create_topic("orders", strandline_storage="object", internal_segment_bytes=SEGMENT_BYTES)
        producer = Producer({"bootstrap.servers": log.bootstrap, "transactional.id": "shop", "log_level": 0})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce("orders", b"aborted", partition=0)
        assert producer.flush(WAIT_S) == 0
        # More than one segment, so that the marker is not in that of the record.
        values = [b"%d" % number + bytes(1000) for number in range(2 * SEGMENT_BYTES // 1000)]
        fill(log.bootstrap, ["orders"], values)
        producer.abort_transaction(WAIT_S)
        with Peer(log.port) as peer:
            wait_until(lambda: listed(peer, "orders", LATEST_TIERED).offset > 0, "the record is in a segment")
        log.kill()
        log.start()
        end = len(values) + 2
        with Peer(log.port) as peer:
            wait_until(
                lambda: listed(peer, "orders", LATEST).offset == end, "it is led, with the record and the marker"
            )
            assert listed(peer, "orders", LATEST_TIERED).offset < end - 1, "the marker is in no segment"
        assert wal_objects(store)
        assert [each[2] for each in read(log.bootstrap, "orders", 0, end)] == values
