"""After kill -9 a broker answers before its large logs are recovered, and then serves every acknowledged record."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from strandline.broker.replicas.log_recovery import LOOP_LOG_BYTES_MAX
from strandline.ids import TopicPartition
from strandline.local.embedded import embedded
from strandline.testing.final_read import read_to_the_end
from strandline.testing.history import Poll
from strandline.testing.recorder import Recorder

PARTITIONS = 3
VALUE = b"x" * 100_000
RECORDS = 2 * LOOP_LOG_BYTES_MAX // len(VALUE)
"""For each partition: more than is recovered without a worker."""


@pytest.mark.slow
def test_large_logs_are_recovered_by_workers_and_lose_nothing(tmp_path: Path) -> None:
    with embedded(data=tmp_path / "data") as log:
        log.create_topic("orders", PARTITIONS)
        producer = Producer({"bootstrap.servers": log.bootstrap, "acks": "all", "linger.ms": 0})
        for number in range(PARTITIONS * RECORDS):
            producer.produce("orders", VALUE, partition=number % PARTITIONS)
            producer.poll(0)
        assert producer.flush(60) == 0
        log.kill()
        log.start()
        topics = AdminClient({"bootstrap.servers": log.bootstrap}).list_topics(timeout=30).topics
        assert len(topics["orders"].partitions) == PARTITIONS
        recorder = Recorder()
        partitions = [TopicPartition("orders", index) for index in range(PARTITIONS)]
        read_to_the_end(recorder, log.bootstrap, partitions)
        read = [mop for op in recorder.ops() for mop in op.mops if isinstance(mop, Poll)]
        assert sum(len(mop.records) for mop in read) == PARTITIONS * RECORDS
        # Recovered and closed by a worker, opened by the broker: nothing of that is left for the next start.
        log.restart()
        assert "offline" not in log.stderr_text()
