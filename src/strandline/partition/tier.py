"""What a partition knows of its records in an object store, as far as requests ask for them.

`broker/tiering` does the work. A partition whose topic is not tiered has no tier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.maintenance.retention import LocalPolicy
from strandline.log.segment.time_lookup import FoundTime


class RemoteRecords:
    """Whole batches that were read from the store, in parts that may be cut anywhere. In the place of a `LogSlice`."""

    __slots__ = ("aborted", "parts", "size_bytes")

    def __init__(self, parts: Sequence[bytes | memoryview], aborted: Sequence[tuple[int, int]] = ()) -> None:
        self.parts = parts
        self.size_bytes = sum(map(len, parts))
        self.aborted = aborted
        """Transactions that a read_committed reader leaves out: (producer id, first offset)."""

    def read(self) -> bytes:
        return b"".join(self.parts)

    def release(self) -> None:
        """Do nothing: no file is held."""


class HighestRemote(NamedTuple):
    """The last offset in the store that is a part of this log, and its epoch; -1 and -1 if there is none."""

    offset: int
    epoch: int


class TierBeginning(NamedTuple):
    """Where a follower begins an empty log, and what it must know of the records before, which are in the store."""

    offset: int
    leader_epochs: LeaderEpochs
    """Up to there."""
    producer_snapshot: bytes | None
    log_start_offset: int
    """Where the leader's log starts, in the store."""


class FollowedState(NamedTuple):
    """What a follower of an object topic may show to readers."""

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int


OnBeginning = Callable[["TierBeginning | None", "BaseException | None"], object]
OnRecords = Callable[[RemoteRecords | None, BaseException | None], object]
OnTime = Callable[[FoundTime | None, BaseException | None], object]


class Tier(Protocol):
    """The part of one partition that is in the store."""

    @property
    def follows_index(self) -> bool:
        """Return whether a follower serves committed records from the store, and none of its local log."""

    def followed(self) -> FollowedState:
        """Return what such a follower may show. Raises NotLeader if it knows nothing yet."""

    def read(self, offset: int, *, size_bytes_max: int, committed_only: bool, then: OnRecords) -> None:
        """Read whole batches from the one with `offset` on. Calls `then` once, perhaps before this returns."""

    def highest(self) -> HighestRemote:
        """Raises RequestError (NOT_LEADER_OR_FOLLOWER) while the metadata of this partition is not read to its end."""

    def find_time(self, timestamp_ms: int, then: OnTime) -> None:
        """Find the first record in the store, below the local start, that is not older. Calls `then` once."""

    def copied_up_to(self) -> int:
        """Return the first offset that the store lacks, as far as is known here."""

    def local_policy(self) -> LocalPolicy:
        """Return by what limits, and up to where, local segments may be deleted."""
