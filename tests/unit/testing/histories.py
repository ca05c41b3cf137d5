"""Short words for writing histories by hand: each call is one operation, and time passes by one with each."""

from __future__ import annotations

from dataclasses import replace

from strandline.testing.history import Assign, Committed, GivenProducerId, Member, Op, Outcome, Poll, Send, Watermark

P = "orders-0"


def send(process: int, value: str, offset: int | None = None, *, outcome: Outcome = "ok", partition: str = P) -> Op:
    return Op(process, outcome, "send", (Send(partition, value, offset),))


def sends(process: int, *records: tuple[int, str], partition: str = P) -> Op:
    return Op(process, "ok", "send", tuple(Send(partition, value, offset) for offset, value in records))


def poll(
    process: int,
    *records: tuple[int, str],
    outcome: Outcome = "ok",
    final: bool = False,
    rebalanced: tuple[str, ...] = (),
    partition: str = P,
) -> Op:
    return Op(process, outcome, "poll", (Poll(partition, records),), final=final, rebalanced=rebalanced)


def assign(process: int, position: int | None = None, *, partition: str = P) -> Op:
    return Op(process, "ok", "assign", (Assign(partition, position),))


def subscribe(process: int) -> Op:
    return Op(process, "ok", "subscribe")


def member(process: int) -> Op:
    return Op(process, "ok", "subscribe", (Member("readers", f"member-{process}"),))


def crash(process: int) -> Op:
    return Op(process, "ok", "crash")


def watermark(process: int, high: int, *, partition: str = P) -> Op:
    return Op(process, "ok", "poll", (Watermark(partition, high),))


def producer_id(process: int, number: int) -> Op:
    return Op(process, "ok", "init_producer_id", (GivenProducerId(number, 0),))


def commit(process: int, offset: int, *, outcome: Outcome = "ok") -> Op:
    return Op(process, outcome, "commit", (Committed("readers", P, offset),))


def committed(process: int, offset: int) -> Op:
    return Op(process, "ok", "read_committed_offset", (Committed("readers", P, offset),))


def history(*ops: Op) -> list[Op]:
    return [replace(op, invoked_ns=2 * time, completed_ns=2 * time + 1) for time, op in enumerate(ops)]
