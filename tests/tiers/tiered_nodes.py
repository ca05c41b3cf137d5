"""Nodes with tiered topics in a directory, and what tests of them share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

WAIT_S = 60.0
SEGMENT_BYTES = 32 * 1024
INTERVAL_MS = 200


def properties(store: Path, **more: str) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "strandline.remote.store.url": store.as_uri(),
        "remote.log.manager.task.interval.ms": str(INTERVAL_MS),
        "log.retention.check.interval.ms": str(INTERVAL_MS),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def settings_of_tiered(**more: str | int) -> dict[str, Any]:
    return {
        "remote_storage_enable": "true",
        "internal_segment_bytes": SEGMENT_BYTES,
        "index_interval_bytes": 1024,
        "local_retention_bytes": 2 * SEGMENT_BYTES,
        "file_delete_delay_ms": 0,
        **more,
    }


def wait_until(check: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not in {WAIT_S:g} seconds: {what}")


def objects(store: Path) -> list[Path]:
    """Return the objects of segments. Directories may go meanwhile."""
    found = (Path(folder) / name for folder, _, names in os.walk(store) for name in names)
    return sorted(path for path in found if "seg" in path.relative_to(store).parts)


def copies(store: Path) -> list[Path]:
    return [path for path in objects(store) if path.suffix == ".log"]


def local_bases(data: Path, topic: str, index: int = 0) -> list[int]:
    """Return the base offsets of local segments."""
    return sorted(int(path.stem) for path in (data / f"{topic}-{index}").glob("*.log") if path.stem.isdecimal())


def fill(
    bootstrap: str, topics: Iterable[str], values: Iterable[bytes], *, per_batch: int = 5, timestamps: int | None = None
) -> None:
    """Write the same records to each topic, in the same small batches."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 100, "enable.idempotence": True})
    names = list(topics)
    for number, value in enumerate(values):
        for name in names:
            stamp: dict[str, Any] = {} if timestamps is None else {"timestamp": timestamps + number}
            producer.produce(name, key=b"%d" % number, value=value, partition=0, **stamp)
        if number % per_batch == per_batch - 1:
            assert producer.flush(WAIT_S) == 0
    assert producer.flush(WAIT_S) == 0


def read(
    bootstrap: str, topic: str, start: int, end: int, *, committed: bool = True, index: int = 0
) -> list[tuple[int, bytes | None, bytes | None, int]]:
    """Return offset, key, value and time of the records from `start` up to `end`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{time.monotonic_ns()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 100,
        }
    )
    found: list[tuple[int, bytes | None, bytes | None, int]] = []
    try:
        consumer.assign([TopicPartition(topic, index, start)])
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.name() == "_PARTITION_EOF":
                    return found
                raise AssertionError(f"{topic} from {start}: {error}")
            offset = message.offset()
            assert offset is not None
            if offset >= end:
                return found
            found.append((offset, message.key(), message.value(), message.timestamp()[1]))
            if offset == end - 1:
                return found
    finally:
        consumer.close()
    raise AssertionError(f"{topic} from {start} up to {end} was not read in time")


def watermarks(bootstrap: str, topic: str, index: int = 0) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watermarks"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=WAIT_S)
        return low, high
    finally:
        consumer.close()


def delete_topics(bootstrap: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics(list(names)).values():
        future.result(WAIT_S)
