"""Which segments in the store belong to the log of the present leader, by leader epochs.

Leaders of former epochs may have copied records that an unclean election took back. Such a segment has an epoch, or the
start of one, that the leader does not have. It is never read, and never counts for retention.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.log.leader_epochs import LeaderEpochs
from strandline.tiers.records import RemoteSegment

Epochs = Sequence[tuple[int, int]]
"""(leader epoch, first offset), oldest first."""


def filled_epochs(epochs: Epochs) -> list[tuple[int, int]]:
    """Leave out epochs without records: those that begin where the next one does."""
    return [each for at, each in enumerate(epochs) if at + 1 == len(epochs) or each[1] != epochs[at + 1][1]]


def is_in_lineage(segment: RemoteSegment, log_end_offset: int, leader: LeaderEpochs) -> bool:
    """Return whether all records of a segment are a part of the leader's log."""
    kept = filled_epochs(list(zip(leader.epochs, leader.start_offsets, strict=True)))
    if not kept:
        return False
    of_leader, order = dict(kept), [epoch for epoch, _ in kept]
    # The leader knows nothing of epochs that ended before its log start.
    own = [each for each in filled_epochs(segment.epochs) if each[0] >= order[0]]
    if not own or segment.end_offset >= log_end_offset:
        return False
    for at, (epoch, start_offset) in enumerate(own):
        leaders_start = of_leader.get(epoch)
        if leaders_start is None:
            return False
        if at == 0:
            if epoch != order[0] and start_offset < leaders_start:
                return False
        elif start_offset != leaders_start or order[order.index(epoch) - 1] != own[at - 1][0]:
            return False
    following = order.index(own[-1][0]) + 1
    return following == len(order) or segment.end_offset < of_leader[order[following]]


def epochs_between(leader: LeaderEpochs, start_offset: int, end_offset: int) -> tuple[tuple[int, int], ...]:
    """Return the epochs of the records from `start_offset` up to `end_offset`, which is not included."""
    found: list[tuple[int, int]] = []
    for at, (epoch, begins) in enumerate(zip(leader.epochs, leader.start_offsets, strict=True)):
        ends = leader.start_offsets[at + 1] if at + 1 < len(leader.epochs) else end_offset
        if max(begins, start_offset) < min(ends, end_offset):
            found.append((epoch, max(begins, start_offset)))
    return tuple(found)
