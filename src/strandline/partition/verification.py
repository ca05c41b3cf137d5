"""Verification of transactions at their coordinators, before they begin at a partition (KIP-890).

A batch that begins a transaction is accepted only if the coordinator knows of the transaction. Else no marker would end
it, and read_committed consumers would wait for ever. The answer may come late: after the marker that ended the
transaction, when another one, without this partition, is open at the coordinator. So each verification has a guard,
every marker voids it, and only a valid guard lets the batch in.
"""

from __future__ import annotations

from typing import Final

VERIFICATIONS_MAX: Final = 10_000
"""Verifications of a partition at a time. The oldest are dropped, and their producers retry."""


class VerificationGuard:
    """A verification under way, compared by identity: one begun after a marker is another one."""

    __slots__ = ("began_ms", "epoch", "lowest_sequence", "supports_epoch_bump")

    def __init__(self, began_ms: int, epoch: int, sequence: int, *, supports_epoch_bump: bool) -> None:
        self.began_ms = began_ms
        self.epoch = epoch
        self.lowest_sequence = sequence
        """The lowest sequence of the batches that wait for the answer. If one of them is rejected and retried, later
        batches must not be accepted before it."""
        self.supports_epoch_bump = supports_epoch_bump
        """Whether each transaction of the producer has an epoch of its own, so that its first sequence is 0."""

    def note(self, epoch: int, sequence: int) -> None:
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence


ONGOING: Final = VerificationGuard(0, -1, 0, supports_epoch_bump=False)
"""The guard of a transaction that is open here: it needs no verification for as long as that is so."""


class Verifications:
    __slots__ = ("guards",)

    def __init__(self) -> None:
        self.guards: dict[int, VerificationGuard] = {}

    def begin(
        self, producer_id: int, epoch: int, sequence: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        guard = self.guards.get(producer_id)
        if guard is not None:
            guard.note(epoch, sequence)
            return guard
        guard = VerificationGuard(now_ms, epoch, sequence, supports_epoch_bump=supports_epoch_bump)
        self.guards[producer_id] = guard
        if len(self.guards) > VERIFICATIONS_MAX:
            del self.guards[next(iter(self.guards))]
        return guard

    def end(self, producer_id: int) -> None:
        """Drop the guard: the transaction has begun here, or is over."""
        if self.guards:
            self.guards.pop(producer_id, None)

    def expire(self, *, before_ms: int) -> None:
        for producer_id in [each for each, guard in self.guards.items() if guard.began_ms < before_ms]:
            del self.guards[producer_id]

    def clear(self) -> None:
        self.guards.clear()
