"""A disk that is full gets room by retention alone, and writers go on: nobody has to come and delete."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Message, Producer
from tests.crash.filesystems import small_tmpfs, why_not_mountable
from tests.crash.test_disk_faults import fill
from tests.scenarios.retention_ground import TOPIC, span, until

from strandline.testing import embedded

NO_MOUNT = why_not_mountable(loop=False)
PROPERTIES = {"log.retention.check.interval.ms": "200", "log.segment.delete.delay.ms": "0"}
VALUE = b"v" * 1000


@pytest.mark.slow
@pytest.mark.skipif(bool(NO_MOUNT), reason=NO_MOUNT)
def test_what_is_past_retention_makes_room_on_a_full_disk(tmp_path: Path) -> None:
    with small_tmpfs(tmp_path, size_mb=64) as disk, embedded(data=disk / "data", properties=PROPERTIES) as broker:
        broker.create_topic(TOPIC, 1, internal_segment_bytes=256 * 1024, retention_ms=15_000)
        outcomes: list[object] = []

        def on_delivery(error: object, _: Message) -> None:
            outcomes.append(error)

        # Refused while the disk is full, and sent again until there is room.
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 120_000, "retry.backoff.max.ms": 1000}
        )
        for _ in range(8_000):
            producer.produce(TOPIC, VALUE, partition=0, on_delivery=on_delivery)
            producer.poll(0)
        assert producer.flush(30) == 0
        assert set(outcomes) == {None}
        ballast = disk / "ballast"
        fill(ballast)
        for _ in range(500):
            producer.produce(TOPIC, VALUE, partition=0, on_delivery=on_delivery)
        assert producer.flush(100) == 0
        assert set(outcomes) == {None}
        assert ballast.exists()
        start, end = span(broker.bootstrap)
        assert start > 0
        assert end == 8_500
        until(lambda: span(broker.bootstrap) == (8_500, 8_500))
