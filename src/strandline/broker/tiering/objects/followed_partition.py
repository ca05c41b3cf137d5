"""A partition of an object topic as a follower knows it: from the commit log, without a local log.

A reader sees no more than was committed up to where this node has read the commit log. Nothing of that is ever taken
back, so any replica may serve it from its cache or from the store.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from strandline.log.leader_epochs import LeaderEpochs
from strandline.partition.tier import FollowedState
from strandline.runtime.runtime import Runtime

if TYPE_CHECKING:
    from strandline.partition.partition import Partition
    from strandline.tiers.wal.commit_fold import CommittedPartition


class FollowedLog:
    """The log of a follower: all of its records are in the store."""

    has_aborted = False

    def __init__(self, leader_epochs: LeaderEpochs, end_offset: int) -> None:
        self.leader_epochs = leader_epochs
        self.log_start_offset = self.log_end_offset = end_offset


class FollowedPartition:
    """What a read from the store needs of a partition, as it is when the read begins."""

    def __init__(self, partition: Partition, known: CommittedPartition) -> None:
        self.topic: str = partition.topic
        self.topic_id: uuid.UUID = partition.topic_id
        self.index: int = partition.index
        self.runtime: Runtime = partition.runtime
        self.log = FollowedLog(known.epochs, known.end_offset)
        self.log_start_offset = known.start_offset
        self.high_watermark = known.end_offset
        unstable = next(iter(known.producers.open_transactions.values()), known.end_offset)
        # The beginning of a transaction may have been deleted.
        self.last_stable_offset = max(unstable, known.start_offset)

    def __repr__(self) -> str:
        return f"<followed {self.topic}-{self.index} high watermark {self.high_watermark}>"

    def read(self, *_: object, **__: object) -> None:
        """Return no local records: there are none."""
        return

    @property
    def state(self) -> FollowedState:
        return FollowedState(self.log_start_offset, self.high_watermark, self.last_stable_offset)
