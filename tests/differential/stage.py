"""What both brokers are given before the first question: the same settings, topics and records."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from tests.differential.talk import Talk

from strandline.codec.columns import Record, encode_batch

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "2",
    # Kafka's stock file gives these, and where a value comes from is told to clients.
    "node.id": "1",
    "process.roles": "broker,controller",
    "num.partitions": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
}
OUR_SETTINGS = SETTINGS | {"http.listener": "127.0.0.1:0"}
"""Both serve the telemetry of clients only where somebody takes it: here an endpoint that shows it, there a plug-in."""
KAFKA_SETTINGS = SETTINGS | {"metric.reporters": "Receiver"}

COORDINATORS = ("a group", "a transaction", "a group:AAAAAAAAAAAAAAAAAAAAAQ:0")
"""Examples of keys: of groups, of transactions, of share groups."""

T0_MS = 1_600_000_000_000
"""When the records of the stage were made. No topic of the stage lets go of old records."""

READ = "read"
"""Never written to by a case: partition 0 has five batches of two records, partition 1 is empty."""
WRITTEN = "written"
KEPT = {"retention.ms": "-1"}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    READ: (2, KEPT),
    "target": (2, KEPT),
    WRITTEN: (2, KEPT),
    "append-time": (2, KEPT | {"message.timestamp.type": "LogAppendTime"}),
    "small": (2, KEPT | {"max.message.bytes": "2000"}),
    "strict-time": (2, {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"}),
    "compacted": (2, {"cleanup.policy": "compact"}),
    "unheard": (2, KEPT),
    "producers": (2, KEPT),
    "trimmed": (3, KEPT),
    "grouped": (2, KEPT),
    "configured": (1, {"retention.ms": "7000000", "cleanup.policy": "compact,delete"}),
    "dotted.name": (1, {}),
    "one": (1, {}),
    "three": (3, {}),
}
BATCHES, RECORDS_PER_BATCH = 5, 2


def records(values: Sequence[str] = ("value",), *, at_ms: int = T0_MS, **options: Any) -> bytes:
    """A batch with a record for each value, a second apart."""
    made = [
        Record(timestamp_ms=at_ms + 1000 * index, key=b"k", value=value.encode()) for index, value in enumerate(values)
    ]
    return encode_batch(made, **options)


def write(talk: Talk, topic: str, batch: bytes, partition: int = 0) -> None:
    content = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
    answer = talk.look(0, 9, acks=-1, timeout_ms=10_000, topic_data=content)
    assert not answer.responses[0].partition_responses[0].error_code


def prepare(port: int) -> dict[str, uuid.UUID]:
    """Sets the stage and returns the ids of its topics. Each kind of coordinator is asked for once, by an example of
    its keys: a broker makes their topics behind our back."""
    talk = Talk(port, {})
    try:
        for topic, (partitions, configs) in TOPICS.items():
            talk.create(topic, partitions, **{name.replace(".", "_"): value for name, value in configs.items()})
        for topic, partition in ((READ, 0), ("trimmed", 0), ("trimmed", 1), ("trimmed", 2)):
            for index in range(BATCHES):
                first = RECORDS_PER_BATCH * index
                batch = records([f"v{first}", f"v{first + 1}"], at_ms=T0_MS + 10_000 * index)
                write(talk, topic, batch, partition)
        # Kafka sets this by itself when its storage is formatted, and where a value comes from is told to clients.
        in_sync = {"name": "min.insync.replicas", "config_operation": 0, "value": "1"}
        changed = talk.look(44, 1, resources=[{"resource_type": 4, "resource_name": "", "configs": [in_sync]}])
        assert not changed.responses[0].error_code
        for kind, key in enumerate(COORDINATORS):
            talk.look(10, 6, coordinator_keys=[key], key_type=kind)
        talk.look(9, 7, group_id="a group", topics=None)
        talk.wait_for("__consumer_offsets", 3)
        return talk.ids
    finally:
        talk.close()
