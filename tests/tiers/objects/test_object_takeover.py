"""What a broker does when it comes to lead object partitions: it serves them, and moves and reads nothing for it."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from tests.tiers.tiered_nodes import copies, fill, properties, read, settings_of_tiered, wait_until, watermarks

import strandline
from strandline.local.free_ports import free_port

COUNTS = ("strandline_remote_read_bytes_total", "strandline_object_merged_ranges_total")


def counted(port: int) -> list[float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[:1] != "#")
    return [float(lines[each]) for each in COUNTS]


def test_a_new_leader_leaves_what_former_ones_committed_in_the_store(tmp_path: Path) -> None:
    """It is merged when it is due: a broker may come to lead a thousand partitions at once, whose clients wait."""
    store, port = tmp_path / "store", free_port()
    settings = properties(
        store,
        http_listener=f"127.0.0.1:{port}",
        strandline_object_flush_interval_ms="20",
        strandline_object_merge_interval_ms="3600000",
    )
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
