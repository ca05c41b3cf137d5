"""`examples/feed.py` by itself: it says where it writes, and notices when its log is gone."""

from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka import Consumer, TopicPartition

from strandline.testing import embedded

FEED = [sys.executable, "-u", "examples/feed.py", "--bootstrap"]


def test_the_half_day_is_written_at_once() -> None:
    with embedded() as node:
        fed = subprocess.run([*FEED, node.bootstrap, "--seconds", "0"], capture_output=True, text=True, check=False)
        assert fed.returncode == 0, fed.stdout + fed.stderr
        first, *_, last = fed.stdout.splitlines()
        assert first == f"feed: writing to {node.bootstrap}"
        reader = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "test"})
        topics = ("orders", "clicks", "events", "customers", "rates")
        ends = [reader.get_watermark_offsets(TopicPartition(topic, at))[1] for topic in topics for at in (0, 1)]
        reader.close()
        assert last.split() == [f"{sum(ends):,}", "records", "written;", "the", "shop", "closes"]


@pytest.mark.slow
def test_a_log_that_is_gone_is_told() -> None:
    with embedded() as node:
        feed = subprocess.Popen([*FEED, node.bootstrap, "--seconds", "100"], stdout=subprocess.PIPE, text=True)
        with feed:
            assert feed.stdout is not None
            assert feed.stdout.readline() == f"feed: writing to {node.bootstrap}\n"
            assert "500 records written" in feed.stdout.readline()
            node.kill()
            said = feed.stdout.read()
        assert feed.returncode == 1
        assert "feed: the log does not take records any more (" in said
        assert "the shop closes" not in said
