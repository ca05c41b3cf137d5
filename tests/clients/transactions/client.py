"""What the stories of transactions ask of a client; each library has a driver that offers it.

A producer has taken its transactional id over when it is made. What a driver sends has been acknowledged when the call
returns, so that it stands in the log while its transaction is open. A refusal is told apart by what is left to do:
abort and go on (`is_final` false), or make another producer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

WAIT_S_MAX = 60.0
"""How long anything may take on a busy machine."""
TIMEOUT_MS = 60_000
READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"

Values: TypeAlias = list[list[str]]
"""What stands in each partition of a topic, in order."""
Positions: TypeAlias = Mapping[tuple[str, int], int]


class Refused(Exception):
    """The client raised an error; `code` is the name of Kafka's error, or the library's own word."""

    def __init__(self, code: str, *, is_final: bool) -> None:
        super().__init__(f"{code}, {'final' if is_final else 'to be aborted'}")
        self.code = code
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class Record:
    topic: str
    partition: int
    offset: int
    value: str


class TransactionalProducer(Protocol):
    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, values: Sequence[str]) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...


class Transformer(Protocol):
    """Reads as the member of a group and writes in transactions; what it polled is committed with what it sends."""

    def poll(self) -> list[Record]:
        """Some records, at least one."""

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, values: Sequence[str]) -> None: ...

    def commit(self) -> None:
        """Commit the positions behind what was polled with the transaction."""

    def abort(self) -> None:
        """Abort, and poll the same records again."""

    def give_positions(self) -> None:
        """Make what was polled part of the transaction before it ends."""

    def leave(self) -> None:
        """Leave the group; an open transaction stays open, as when the process dies."""


class TransactionalClient(Protocol):
    name: str

    def producer(self, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> TransactionalProducer: ...

    def transformer(self, transactional_id: str, group: str, topic: str) -> Transformer: ...

    def read(self, topic: str, partitions: int, isolation: str) -> Values:
        """Everything from the beginning to where the broker says that it ends for this isolation level."""

    def close(self) -> None: ...


def refusal(call: Callable[[], object]) -> Refused:
    """What the client refuses to do; it is a mistake if it does it."""
    try:
        call()
    except Refused as refused:
        return refused
    raise AssertionError(f"{call} was not refused")


def until(what: str, holds: Callable[[], bool]) -> None:
    """Ask again until it is so: brokers do not tell when a transaction has timed out."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.02)
