"""A consumer of a group beside the command line; it reads only while a test lets it."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer

PATIENCE_S = 30.0


class GroupReader:
    def __init__(self, bootstrap: str, group_id: str, topic: str, *, protocol: str = "classic", **more: Any) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        self.consumer = Consumer(settings | {name.replace("_", "."): value for name, value in more.items()})
        self.consumer.subscribe([topic])

    def __enter__(self) -> GroupReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.consumer.close()

    @property
    def owned(self) -> list[int]:
        return sorted(each.partition for each in self.consumer.assignment())


def settle(readers: list[GroupReader], *, until: Callable[[], bool]) -> None:
    """Let the readers go on until it is so; a member of a group has to be polled for anything to happen."""
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < deadline, [reader.owned for reader in readers]
        for reader in readers:
            reader.consumer.poll(0.05)


def shared(readers: list[GroupReader], partitions: int) -> bool:
    """Whether each has some and all partitions are read."""
    owned = [reader.owned for reader in readers]
    return all(owned) and sorted(number for each in owned for number in each) == list(range(partitions))
