"""Records that dead letters are about, for those without a copy: read from the source by their offset."""

from __future__ import annotations

import time
from typing import Any

from strandline.cli.common.client import Cluster, kafka_api
from strandline.cli.common.failures import Unreachable, from_kafka_error
from strandline.cli.queue.dead.letters import DeadLetter
from strandline.cli.records.record import Headers
from strandline.cli.topic.topics import OffsetRange

_POLL_S = 0.1
_GONE = ("OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_PARTITION_EOF")

SourceContent = tuple[bytes | None, bytes | None, Headers]
"""Key, value and headers."""


def is_gone(letter: DeadLetter, ranges: dict[tuple[str, int], OffsetRange]) -> bool:
    """Return whether the source no longer has the record, as far as its offsets tell."""
    start, end = ranges.get((letter.topic, letter.partition), (None, None))
    return start is None or end is None or not start <= letter.offset < end


class SourceRecordReader:
    """Reads single records; one connection for all."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._consumer: Any = None

    def read(self, letter: DeadLetter) -> SourceContent | None:
        """Return the record that a dead letter is about; None if the source no longer has it."""
        kafka = kafka_api()
        if self._consumer is None:
            self._consumer = self._cluster.consumer(
                group_id="strandline-cli",
                enable_auto_commit=False,
                enable_partition_eof=True,
                auto_offset_reset="error",
                # The group that gave it up may have read what was never committed.
                isolation_level="read_uncommitted",
                fetch_wait_max_ms=100,
            )
        self._consumer.assign([kafka.TopicPartition(letter.topic, letter.partition, letter.offset)])
        deadline = time.monotonic() + self._cluster.timeout_s
        while time.monotonic() < deadline:
            message = self._consumer.poll(_POLL_S)
            if message is None:
                continue
            if message.error() is not None:
                if message.error().name() in _GONE:
                    return None
                if not message.error().retriable():
                    doing = f"cannot read {letter.source}"
                    raise from_kafka_error(message.error(), bootstrap=self._cluster.bootstrap, doing=doing)
                continue
            if message.offset() != letter.offset:
                # Compaction removed it.
                return None
            return message.key(), message.value(), message.headers() or []
        raise Unreachable(f"{self._cluster.bootstrap} did not send {letter.source} in {self._cluster.timeout_s:g} s")

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
