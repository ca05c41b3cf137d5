"""The states of a segment in the store, and of a partition whose segments are deleted, with Kafka's numbers (KIP-405).

    COPY_STARTED --> COPY_FINISHED --> DELETE_STARTED --> DELETE_FINISHED
         |                                   ^
         +-----------------------------------+

Only a segment whose copy is finished is read. A record that repeats a state changes nothing, because its writer may not
have got an answer and have tried again. Any other transition is rejected.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class SegmentState(IntEnum):
    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3


class PartitionDeleteState(IntEnum):
    MARKED = 0
    STARTED = 1
    FINISHED = 2


_NEXT: Final = {
    SegmentState.COPY_STARTED: (SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED),
    SegmentState.COPY_FINISHED: (SegmentState.DELETE_STARTED,),
    SegmentState.DELETE_STARTED: (SegmentState.DELETE_FINISHED,),
    SegmentState.DELETE_FINISHED: (),
}


def may_follow(before: SegmentState | None, after: SegmentState) -> bool:
    """Return whether a segment may go from one state to another. A new one (None) begins with COPY_STARTED."""
    if before is None:
        return after == SegmentState.COPY_STARTED
    return after == before or after in _NEXT[before]
