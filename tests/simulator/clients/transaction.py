"""One transaction of a simulated client: what it takes, what it writes, how it is to end, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from strandline.ids import TopicPartition
from strandline.testing.history import Committed, Consumed, Op, Outcome, Send


@dataclass(frozen=True, slots=True)
class Membership:
    """For whom positions are committed: what a TxnOffsetCommit says of the member (KIP-447)."""

    group: str
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    tag: str = ""
    """Goes into the metadata of the positions, so that the log tells who moved them."""


@dataclass(slots=True)
class Lane:
    """What goes to one partition, as one batch."""

    values: list[str]
    sequence: int = -1
    encoded: bytes = b""
    base_offset: int | None = None
    is_written: bool = False


@dataclass(slots=True, eq=False)
class SimTransaction:
    process: int
    membership: Membership | None
    consumed: dict[TopicPartition, tuple[int, int]]
    """Offsets from the first up to, and without, the second."""
    lanes: dict[TopicPartition, Lane]
    commits: bool = True
    """Whether its client means to commit it."""
    hangs_s: float = 0.0
    """How long its client does nothing before it ends it."""
    begun_ns: int = 0
    asked_ns: int | None = None
    """When its commit was first asked for."""
    ended_ns: int | None = None
    outcome: Outcome | None = None
    error: str = ""
    positions: dict[TopicPartition, Any] = field(default_factory=dict)
    """The reader's own view of what was consumed, to tell whether it has moved on since."""

    def end(self, outcome: Outcome, now_ns: int, error: str = "") -> None:
        self.outcome, self.ended_ns, self.error = outcome, now_ns, error

    def op(self, now_ns: int) -> Op:
        """Return it as the history has it. If its commit was never asked for, nothing of it may ever be seen."""
        outcome: Outcome = self.outcome or "info"
        if self.asked_ns is None:
            outcome = "fail"
        invoked_ns = self.begun_ns if self.asked_ns is None else self.asked_ns
        mops: list[Send | Consumed | Committed] = []
        for partition, lane in self.lanes.items():
            for at, value in enumerate(lane.values):
                offset = None if lane.base_offset is None else lane.base_offset + at
                mops.append(Send(str(partition), value, offset))
        if self.membership is not None:
            for partition, (start, end) in self.consumed.items():
                mops.append(Consumed(self.membership.group, str(partition), start, end))
                mops.append(Committed(self.membership.group, str(partition), end))
        completed_ns = max(invoked_ns, now_ns if self.ended_ns is None else self.ended_ns)
        return Op(self.process, outcome, "txn", tuple(mops), invoked_ns, completed_ns, error=self.error)
