"""What a scenario asks of a Kafka client. Each stock client has its own driver; the scenarios are written once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

WAIT_S_MAX = 30.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class New:
    """A record to write."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = 0
    timestamp_ms: int | None = None


@dataclass(frozen=True)
class Got:
    """A record as a consumer saw it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = field(default=(), compare=False)
    timestamp_ms: int = field(default=-1, compare=False)
    is_append_time: bool = field(default=False, compare=False)


class ClientFailed(Exception):
    """An error that a broker answered, by Kafka's number."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Member(Protocol):
    """One consumer in a group, with automatic commits off."""

    def poll(self) -> list[Got]:
        """What has arrived; waits a moment when nothing has. Keeps the membership alive."""

    def assignment(self) -> set[int]: ...

    def commit(self) -> None:
        """Commit the position behind everything that `poll` has returned."""

    def close(self) -> None: ...


class Client(Protocol):
    name: str

    def __init__(self, bootstrap: str) -> None: ...

    def told(self, code: int) -> int:
        """The number that this client reports for an error code: -1 where it is older than the code."""

    def produce(
        self,
        topic: str,
        records: list[New],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
        linger_ms: int = 5,
    ) -> list[tuple[int, int]]:
        """Write all and return (partition, offset) of each, in the order given; ClientFailed for the first refused."""

    def read(
        self,
        topic: str,
        starts: dict[int, int],
        count: int,
        *,
        reset: str = "earliest",
        fetch_bytes_max: int | None = None,
        while_waiting: Callable[[], None] | None = None,
    ) -> list[Got]:
        """Assign partitions at offsets and read until `count` records came; `while_waiting` runs after an empty poll.

        With reset `none`, an offset out of range raises ClientFailed.
        """

    def member(self, topic: str, group: str) -> Member: ...

    def committed(self, topic: str, group: str, partition: int) -> int | None: ...

    def earliest(self, topic: str, partition: int) -> int: ...

    def latest(self, topic: str, partition: int) -> int: ...

    def at_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset with that timestamp or a later one."""

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int = 1, **configs: str) -> None:
        """Configs are Kafka's with underscores for dots."""

    def delete_topic(self, name: str) -> None: ...

    def topics(self) -> dict[str, int]:
        """Number of partitions by topic."""

    def close(self) -> None: ...


def until(what: str, attempt: Callable[[], bool]) -> None:
    """Repeat `attempt`, which does something that itself waits, until it is true; fail when it takes for ever."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not attempt():
        assert time.monotonic() < deadline, f"waited {WAIT_S_MAX:g} s in vain: {what}"


def config_names(configs: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in configs.items()}
