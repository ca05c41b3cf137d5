"""Where two logs part: the one rule of truncation (KIP-101, KIP-279).

A leader says of the epoch of a follower's last record: "the largest epoch up to that one which I have is e, and in my
log it ends at n". What the follower holds beyond its own end of e, or beyond n, the leader does not have.
The high watermark plays no part: it is learnt late, and to cut by it has lost acknowledged records.
"""

from __future__ import annotations

from typing import Protocol


class EpochEnds(Protocol):
    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch up to `epoch`, where it ends), or (-1, -1) if all known ones are smaller."""


def truncation_offset(epochs: EpochEnds, log_end_offset: int, leader_epoch: int, leader_end_offset: int) -> int:
    """Where a follower must cut its log, given what its leader said of the epochs. It fetches from there, and if the
    logs still differ, it is told again, one epoch further down."""
    own_epoch, own_end = epochs.end_offset(leader_epoch, log_end_offset)
    if own_epoch < 0:
        return min(leader_end_offset, log_end_offset)
    if own_epoch != leader_epoch:
        # We have nothing of that epoch: what comes after the ones before it, the leader cannot have from us.
        return min(own_end, log_end_offset)
    return min(own_end, leader_end_offset, log_end_offset)
