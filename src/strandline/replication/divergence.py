"""Where two logs diverge: the one rule of truncation (KIP-101, KIP-279).

A leader says of the epoch of a follower's last record: "the largest epoch up to that one which I have is e, and in my
log it ends at n". What the follower holds beyond its own end of e, or beyond n, the leader does not have.
The high watermark plays no part: a follower learns it late, and truncating by it has lost acknowledged records.
"""

from __future__ import annotations

from typing import Protocol


class EpochEnds(Protocol):
    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (the largest epoch up to `epoch`, where it ends), or (-1, -1) if all known ones are smaller."""


def truncation_offset(epochs: EpochEnds, log_end_offset: int, leader_epoch: int, leader_end_offset: int) -> int:
    """Return where a follower must truncate its log, given its leader's answer on epochs. It fetches from there. If the
    logs still differ, the leader answers again, one epoch further down."""
    own_epoch, own_end = epochs.end_offset(leader_epoch, log_end_offset)
    if own_epoch < 0:
        return min(leader_end_offset, log_end_offset)
    if own_epoch != leader_epoch:
        # We have no records of that epoch: the leader cannot have what follows the epochs before it.
        return min(own_end, log_end_offset)
    return min(own_end, leader_end_offset, log_end_offset)
