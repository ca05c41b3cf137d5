"""What a topic holds for readers of committed records."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition


class CommittedRecords:
    """Follows a topic with an independent client; `values` are those of each partition in their order."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.values: list[list[bytes]] = [[] for _ in range(partitions)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "checker",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)])

    def read(self) -> int:
        """Read what comes next. Return how many records were read since the beginning."""
        for each in self._consumer.consume(10_000, 0.2):
            if each.error() is None and (value := each.value()) is not None:
                partition = each.partition()
                assert partition is not None
                self.values[partition].append(value)
        return sum(map(len, self.values))

    def close(self) -> None:
        self._consumer.close()
