"""Sinks: many transactional ids whose transactions are decided together, one batch after the other.

A sink is what a job writes to, with a transaction for each of its tasks; its driver says which of them make up a batch.
What was decided last is one record. That it commits these and aborts all others that were open follows from it, and is
carried out for one transactional id after the other (`batches.roll`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

NO_BATCH: Final = -1
NEVER: Final = -1
ANY_BATCH: Final = -2
"""A driver that does not care which batch was the last one."""
NO_NOTE: Final = b""


class TaskTransaction(NamedTuple):
    """A transaction, as the driver of a sink names it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class BatchDecision(NamedTuple):
    """The members are committed, and every other transaction that the sink has open here is aborted."""

    sink_id: str
    batch_id: int
    decided_ms: int
    members: tuple[TaskTransaction, ...]
    note: bytes = NO_NOTE
    """What the driver wants to find again, in its own words."""


@dataclass(slots=True)
class BatchedSink:
    sink_id: str
    last_batch_id: int = NO_BATCH
    decided_ms: int = NEVER
    note: bytes = NO_NOTE
    """The last batch."""
    committed: dict[int, int] = field(default_factory=dict)
    """Producer ids and epochs that the last batch committed. By them a late copy of its request is told from another
    attempt at the same batch."""
    transactional_ids: dict[str, None] = field(default_factory=dict)

    @property
    def is_decided(self) -> bool:
        """Whether any batch of it was ever committed."""
        return self.last_batch_id != NO_BATCH
