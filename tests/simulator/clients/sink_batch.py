"""What drivers of sinks do in the simulation, as the history has it: a batch is one transaction of all its tasks.

Each run of a batch is an operation that writes what its tasks wrote, all together, and consumes the batch's number: so
the checker says of a sink what it says of a group of processors. A batch that counts twice is doubled, one that never
counts is skipped, one of which a part is missing is torn.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulator.clients.transaction import SimTransaction

from strandline.testing.history import Consumed, Mop, Op, Outcome, Send


@dataclass(slots=True, eq=False)
class SimBatch:
    """One run of a batch by one driver."""

    process: int
    sink_id: str
    batch_id: int
    begun_ns: int
    listed: list[SimTransaction] = field(default_factory=list)
    """What its tasks wrote; what copies of tasks and failed ones wrote is in `void`."""
    void: list[SimTransaction] = field(default_factory=list)
    asked_ns: int | None = None
    ended_ns: int | None = None
    outcome: Outcome | None = None
    error: str = ""

    def end(self, outcome: Outcome, now_ns: int, error: str = "") -> None:
        self.outcome, self.ended_ns, self.error = outcome, now_ns, error

    @property
    def may_count(self) -> bool:
        return self.asked_ns is not None and self.outcome != "fail"

    def ops(self, now_ns: int, *, label: str) -> list[Op]:
        """Return it as the history has it. `label` is the partition that batches count by.

        If its commit was never asked for, nothing of it may ever be seen.
        """
        outcome: Outcome = "fail" if self.asked_ns is None else self.outcome or "info"
        invoked_ns = self.begun_ns if self.asked_ns is None else self.asked_ns
        completed_ns = max(invoked_ns, now_ns if self.ended_ns is None else self.ended_ns)
        consumed = Consumed(self.sink_id, label, self.batch_id, self.batch_id + 1)
        mops = (*_sends(self.listed), consumed)
        ops = [Op(self.process, outcome, "txn", mops, invoked_ns, completed_ns, error=self.error)]
        if self.void:
            ops.append(Op(self.process, "fail", "txn", _sends(self.void), self.begun_ns, now_ns, error="void"))
        return ops


def _sends(transactions: list[SimTransaction]) -> tuple[Mop, ...]:
    """By offset: tasks write side by side, and no order was promised to them."""
    sends = [
        Send(str(partition), value, None if lane.base_offset is None else lane.base_offset + at)
        for transaction in transactions
        for partition, lane in transaction.lanes.items()
        for at, value in enumerate(lane.values)
    ]
    return tuple(sorted(sends, key=lambda send: -1 if send.offset is None else send.offset))
