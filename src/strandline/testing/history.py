"""The history that the checker judges: the calls of clients with their outcomes, and their form as JSON lines.

A history is a list of completed operations. An outcome is `ok` (it happened), `fail` (it certainly did not happen) or
`info` (unknown: a timeout, a lost connection). A partition is named `topic-number`, and each value is sent at most
once to a partition, so that a value names its record.

    {"process": 3, "outcome": "ok", "f": "send", "invoked_ns": 10, "completed_ns": 25,
     "mops": [["send", "orders-0", "3:17", 42]]}

An operation is a list of micro-operations (Jepsen's word, "mops"). A transaction (`txn`) holds all that it wrote, to
whatever partitions, what it consumed, and the positions that it committed; it is called when its commit is asked for,
and `ok` means committed, `fail` that its commit was never asked for, or was rejected.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TextIO, TypeAlias

Outcome: TypeAlias = Literal["ok", "fail", "info"]
Function: TypeAlias = Literal[
    "send",
    "poll",
    "assign",
    "subscribe",
    "crash",
    "init_producer_id",
    "commit",
    "read_committed_offset",
    "txn",
    "share_fetch",
    "share_acknowledge",
    "share_start",
]


class Send(NamedTuple):
    """One record sent; the offset is None until the broker says it."""

    partition: str
    value: str
    offset: int | None = None


class Poll(NamedTuple):
    """The records that one call returned for a partition, as (offset, value) in the order they came."""

    partition: str
    records: tuple[tuple[int, str], ...]


class Assign(NamedTuple):
    """A partition the consumer owns from now on: from `position`, or, if None, from where it already was."""

    partition: str
    position: int | None = None


class Watermark(NamedTuple):
    """The high watermark that a client was given."""

    partition: str
    high: int


class GivenProducerId(NamedTuple):
    """What an InitProducerId without a transactional id returned."""

    producer_id: int
    epoch: int


class Committed(NamedTuple):
    """A group's position in a partition, as a client committed or read it."""

    group: str
    partition: str
    offset: int


class Member(NamedTuple):
    """The process is a member of this group from now on: what it polls is processed, what it commits the group's."""

    group: str
    member_id: str = ""


class Consumed(NamedTuple):
    """What a transaction took from a partition for a group: the offsets from `start` up to, and without, `end`."""

    group: str
    partition: str
    start: int
    end: int


class Acquired(NamedTuple):
    """A record that a share consumer was given. Of a fetch without an answer one stands for whatever it gave."""

    group: str
    partition: str
    offset: int
    deliveries: int
    """How often it was delivered, this time included."""
    key: str | None = None
    """Its key, if the group keeps the order of keys."""
    early_ms: int = 0
    """How long before its due time it came; 0 if it was due."""


class Acknowledged(NamedTuple):
    """What a share consumer said of a record that it was given: accept, release or reject."""

    group: str
    partition: str
    offset: int
    deliveries: int
    kind: str


class SharePosition(NamedTuple):
    """The start offset of a share group in a partition, and how often the group may be given a record."""

    group: str
    partition: str
    offset: int
    limit: int


Mop: TypeAlias = (
    Send
    | Poll
    | Assign
    | Watermark
    | GivenProducerId
    | Committed
    | Member
    | Consumed
    | Acquired
    | Acknowledged
    | SharePosition
)


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of one process from call to outcome.

    A process is one client instance: a producer that had to be replaced goes on as another process. Sends of one
    process may overlap in time; their order is the order of the calls.
    """

    process: int
    outcome: Outcome
    f: Function
    mops: tuple[Mop, ...] = ()
    invoked_ns: int = 0
    completed_ns: int = 0
    final: bool = False
    """Part of the full read from the start that ends a run, after all faults have healed."""
    rebalanced: tuple[str, ...] = ()
    """Partitions that were taken or given while the operation ran."""
    error: str = ""


_MOP_TAGS: dict[type[Mop], str] = {
    Send: "send",
    Poll: "poll",
    Assign: "assign",
    Watermark: "watermark",
    GivenProducerId: "producer_id",
    Committed: "committed",
    Member: "member",
    Consumed: "consumed",
    Acquired: "acquired",
    Acknowledged: "acknowledged",
    SharePosition: "share_start",
}


def save(ops: Iterable[Op], file: TextIO) -> None:
    """Writes one JSON object per line; what has its default is left out."""
    for op in ops:
        fields: dict[str, object] = {"process": op.process, "outcome": op.outcome, "f": op.f}
        fields |= {"invoked_ns": op.invoked_ns, "completed_ns": op.completed_ns}
        fields["mops"] = [[_MOP_TAGS[type(mop)], *mop] for mop in op.mops]
        if op.final:
            fields["final"] = True
        if op.rebalanced:
            fields["rebalanced"] = op.rebalanced
        if op.error:
            fields["error"] = op.error
        file.write(json.dumps(fields, separators=(",", ":")) + "\n")


def load(file: TextIO) -> Iterator[Op]:
    """Reads what `save` wrote; ValueError names the line that is no operation."""
    for number, line in enumerate(file, start=1):
        try:
            yield _op_of(json.loads(line))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"line {number} of the history is no operation: {error!r}") from error


def _op_of(fields: dict[str, Any]) -> Op:
    return Op(
        process=fields["process"],
        outcome=fields["outcome"],
        f=fields["f"],
        mops=tuple(_mop_of(*mop) for mop in fields["mops"]),
        invoked_ns=fields["invoked_ns"],
        completed_ns=fields["completed_ns"],
        final=fields.get("final", False),
        rebalanced=tuple(fields.get("rebalanced", ())),
        error=fields.get("error", ""),
    )


def _mop_of(tag: str, *fields: Any) -> Mop:
    match tag:
        case "send":
            return Send(*fields)
        case "poll":
            partition, records = fields
            return Poll(partition, tuple((offset, value) for offset, value in records))
        case "assign":
            return Assign(*fields)
        case "watermark":
            return Watermark(*fields)
        case "producer_id":
            return GivenProducerId(*fields)
        case "committed":
            return Committed(*fields)
        case "member":
            return Member(*fields)
        case "consumed":
            return Consumed(*fields)
        case "acquired":
            return Acquired(*fields)
        case "acknowledged":
            return Acknowledged(*fields)
        case "share_start":
            return SharePosition(*fields)
        case _:
            raise ValueError(f"unknown micro-operation {tag!r}")
