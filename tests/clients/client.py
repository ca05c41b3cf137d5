"""What a scenario asks of a Kafka client. Each stock client has its own driver; the scenarios are written once.

A driver raises ClientFailed with Kafka's number whenever the broker answered an error. What a client has no means for
is said in one place, the table in `scenarios.py`; its driver then simply lacks the method.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

WAIT_S_MAX = 90.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class New:
    """A record to write."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
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


@dataclass(frozen=True)
class Limits:
    """What a consumer asks for in one fetch; None leaves the client's default."""

    partition_bytes_max: int | None = None
    response_bytes_max: int | None = None
    bytes_min: int | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Setting:
    """One configuration entry; the source by its number in the protocol, None where the client does not tell."""

    value: str | None
    source: int | None
    is_read_only: bool
    is_sensitive: bool


@dataclass(frozen=True)
class Replicas:
    leader: int
    assigned: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class Cluster:
    cluster_id: str
    controller: int
    brokers: frozenset[int]


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


class Reader(Protocol):
    """One consumer of partitions that were assigned by hand."""

    def poll(self, count_max: int = 1000) -> list[Got]:
        """What has arrived; waits a moment when nothing has."""

    def seek(self, partition: int, offset: int) -> None: ...

    def pause(self, partition: int) -> None: ...

    def resume(self, partition: int) -> None: ...

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

    def reader(
        self, topic: str, starts: Mapping[int, int], *, reset: str = "earliest", limits: Limits = NO_LIMITS
    ) -> Reader: ...

    def read(
        self,
        topic: str,
        starts: Mapping[int, int],
        count: int,
        *,
        reset: str = "earliest",
        limits: Limits = NO_LIMITS,
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

    def at_latest_time(self, topic: str, partition: int) -> int | None:
        """The offset of the record with the greatest timestamp."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
        **configs: str,
    ) -> None:
        """Configs are Kafka's with underscores for dots; an assignment names the brokers of each partition."""

    def create_partitions(self, topic: str, count: int) -> None:
        """Grow the topic to `count` partitions."""

    def delete_topic(self, name: str) -> None: ...

    def delete_topic_by_id(self, name: str) -> None:
        """Look the id of the topic up, and delete by it."""

    def topics(self) -> dict[str, int]:
        """Number of partitions by topic."""

    def partitions(self, topic: str) -> dict[int, Replicas]: ...

    def cluster(self) -> Cluster: ...

    def config(self, kind: str, name: str) -> dict[str, Setting]:
        """All settings of a `topic` or a `broker`."""

    def alter_config(
        self,
        kind: str,
        name: str,
        *,
        put: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
    ) -> None:
        """IncrementalAlterConfigs: what is not named stays."""

    def replace_config(self, kind: str, name: str, settings: Mapping[str, str]) -> None:
        """AlterConfigs: what is not named goes back to its default."""

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete below an offset of each partition (-1: the high watermark); the log start offsets afterwards."""

    def log_sizes(self, topic: str) -> dict[int, int]:
        """Bytes by partition, on all brokers together."""

    def producers(self, topic: str, partition: int) -> list[tuple[int, int, int]]:
        """Producer id, epoch and last sequence number of each that the partition remembers."""

    def close(self) -> None: ...


def until(what: str, attempt: Callable[[], bool]) -> None:
    """Repeat `attempt`, which does something that itself waits, until it is true; fail when it takes for ever."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not attempt():
        assert time.monotonic() < deadline, f"waited {WAIT_S_MAX:g} s in vain: {what}"


def read_all(reader: Reader, what: str, count: int, while_waiting: Callable[[], None] | None = None) -> list[Got]:
    """Poll until `count` records came, and close the reader."""
    found: list[Got] = []

    def attempt() -> bool:
        came = reader.poll(count - len(found))
        found.extend(came)
        if not came and while_waiting is not None:
            while_waiting()
        return len(found) >= count

    try:
        until(f"{count} records of {what}", attempt)
    finally:
        reader.close()
    return found


def config_names(configs: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in configs.items()}
