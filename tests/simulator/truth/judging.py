"""The verdict on the history of a run, topic by topic, and the errors of a node that end a run at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby

from tests.simulator.truth.invariants import Violation

from strandline.testing.history import Assign, Committed, Consumed, Mop, Op, Poll, Send, Watermark


def ops_of(ops: list[Op], topics: set[str]) -> list[Op]:
    """Return what was done on some topics; what names no partition belongs to all."""
    found = []
    wanted = {"", *topics}
    for op in ops:
        # A batch goes to one partition. What a consumer does may span topics.
        mops = op.mops[:1] if op.f == "send" else op.mops
        named = {_topic_of(mop) for mop in mops}
        if named <= wanted:
            found.append(op)
        elif not named.isdisjoint(topics):
            found.append(replace(op, mops=tuple(mop for mop in mops if _topic_of(mop) in wanted)))
    return found


def in_order_of_sending(ops: list[Op]) -> list[Op]:
    """Return the operations with the sends of each process in the order in which they were made.

    A producer has several batches under way, and one that is refused on the way is acknowledged after later ones.
    """
    sends = [op for op in ops if op.f == "send"]
    sends.sort(key=lambda op: (op.process, op.invoked_ns, [_number(mop) for mop in op.mops[:1]]))
    made: dict[int, Iterator[Op]] = {
        process: iter(list(each)) for process, each in groupby(sends, key=lambda op: op.process)
    }
    return [next(made[op.process]) if op.f == "send" else op for op in ops]


def _number(mop: Mop) -> int:
    """Return which of the values of its process this is."""
    assert isinstance(mop, Send)
    return int(mop.value.rpartition(":")[2])


def without_offsets(op: Op) -> Op:
    """Drop offsets of records that one replica alone holds, because other records may come to lie there."""
    if op.f != "send":
        return op
    return replace(op, mops=tuple(Send(mop.partition, mop.value) for mop in op.mops if isinstance(mop, Send)))


def _topic_of(mop: Mop) -> str:
    if isinstance(mop, Send | Poll | Assign | Watermark | Committed | Consumed):
        return mop.partition.rpartition("-")[0]
    return ""


class _Loud(logging.Handler):
    """A node survives its own mistakes, at the price of a connection. In a simulation they end the run."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            if isinstance(record.exc_info[1], Violation):
                raise record.exc_info[1]
            raise Violation(f"{record.getMessage()}: {record.exc_info[1]!r}") from record.exc_info[1]


@contextmanager
def failing_loudly() -> Iterator[None]:
    """While this holds, whatever a node logs with a traceback raises."""
    root = logging.getLogger("strandline")
    handler = _Loud(logging.ERROR)
    was_propagating, level = root.propagate, root.level
    root.addHandler(handler)
    root.propagate = False
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.propagate = was_propagating
        root.setLevel(level)
