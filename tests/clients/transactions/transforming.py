"""Consume, transform, produce, for libraries whose consumer and producer know nothing of each other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from tests.clients.transactions.client import WAIT_S_MAX, Positions, Record, TransactionalProducer


class GivingProducer(TransactionalProducer, Protocol):
    def give_positions(self, positions: Positions, identity: Any) -> None: ...


class Member(Protocol):
    @property
    def identity(self) -> Any:
        """What the library gives a producer to tell the coordinator who processed the records."""

    def poll(self) -> list[Record]:
        """Some records, or none in a short while."""

    def seek(self, positions: Positions) -> None: ...

    def close(self) -> None: ...


class MemberAndProducer:
    """Gives the positions behind what it polled to the producer's transaction."""

    def __init__(self, producer: GivingProducer, member: Member) -> None:
        self._producer = producer
        self._member = member
        self._starts: dict[tuple[str, int], int] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._identity: Any = None
        self.begin, self.send = producer.begin, producer.send

    def poll(self) -> list[Record]:
        deadline = time.monotonic() + WAIT_S_MAX
        while not (records := self._member.poll()):
            assert time.monotonic() < deadline, "there was nothing to read"
        for record in records:
            place = record.topic, record.partition
            self._starts.setdefault(place, record.offset)
            self._ends[place] = record.offset + 1
        # Who it was when it read: a coordinator that knows better by now has to say so.
        self._identity = self._member.identity
        return records

    def give_positions(self) -> None:
        self._producer.give_positions(self._ends, self._identity)

    def commit(self) -> None:
        self.give_positions()
        self._producer.commit()
        self._forget()

    def abort(self) -> None:
        self._producer.abort()
        self._member.seek(self._starts)
        self._forget()

    def leave(self) -> None:
        self._member.close()

    def _forget(self) -> None:
        self._starts, self._ends = {}, {}


def values_of(records: Sequence[Record]) -> list[str]:
    return [record.value for record in records]
