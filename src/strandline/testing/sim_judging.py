"""The verdict on the history of a run, topic by topic, and the errors of a node that end a run at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from strandline.testing.history import Assign, Committed, Consumed, Mop, Op, Poll, Send, Watermark
from strandline.testing.sim_invariants import Violation


def ops_of(ops: list[Op], topics: set[str]) -> list[Op]:
    """What was done on some topics; what names no partition belongs to all."""
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


def without_offsets(op: Op) -> Op:
    """Where a record is told to be that one replica alone has, another may come to lie."""
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
