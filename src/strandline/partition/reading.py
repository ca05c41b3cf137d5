"""What can be read of a partition, whoever leads it: records, epochs, times.

Consumers see what is below the high watermark; a follower sees all.
"""

from __future__ import annotations

import uuid
from typing import Final

from strandline.errors import ErrorCode, OffsetOutOfRange, RequestError
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.aborted_transactions import aborted_transactions
from strandline.log.segment.log_slice import LogSlice
from strandline.log.segment.time_lookup import Search, search_latest_time, search_time
from strandline.partition.look_up import FoundCallback, LookUp
from strandline.partition.producers import Producers
from strandline.partition.serial_gate import Turnstile
from strandline.runtime.runtime import Runtime

ANY_EPOCH: Final = -1
"""What a client says that does not know, or does not care, which epoch the leader has."""


class ReadablePartition:
    __slots__ = (
        "high_watermark",
        "index",
        "leader_epoch",
        "log",
        "producers",
        "runtime",
        "topic",
        "topic_id",
        "turnstile",
    )

    topic: str
    index: int
    topic_id: uuid.UUID
    log: PartitionLog
    runtime: Runtime
    turnstile: Turnstile
    """Where look-ups wait that must open a large batch."""
    high_watermark: int
    leader_epoch: int
    producers: Producers

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Up to where a read_committed reader may see: what is committed, and before the first transaction that is open
        or whose marker is not committed yet."""
        unstable, high_watermark = self.producers.first_unstable_offset, self.high_watermark
        if unstable >= high_watermark:
            return high_watermark
        # The beginning of a transaction may have been deleted.
        return max(unstable, self.log.log_start_offset)

    # Records

    def read_for_follower(
        self, offset: int, *, size_bytes_max: int, at_least_one: bool, may_block: bool
    ) -> LogSlice | None:
        """What a follower has not got yet, committed or not: it is committed by being fetched."""
        return self.log.read(offset, size_bytes_max=size_bytes_max, at_least_one=at_least_one, may_block=may_block)

    # Epochs

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record here; -1 if there is none."""
        return self.log.leader_epochs.epoch_of(self.log.log_end_offset - 1)

    def divergence(self, last_epoch: int, offset: int) -> tuple[int, int] | None:
        """Where a log whose last record before `offset` is of `last_epoch` parts from this one; None if it does not.

        (The largest epoch up to `last_epoch` that is here, where that one ends.)
        """
        epoch, end_offset = self.end_of_epoch(last_epoch)
        if end_offset < 0:
            raise OffsetOutOfRange(f"nothing is known here of epoch {last_epoch}: {self!r}")
        if epoch < 0:
            # There are no records here to compare with: only what lies behind the end is too much.
            return (epoch, end_offset) if end_offset < offset else None
        return (epoch, end_offset) if epoch < last_epoch or end_offset < offset else None

    def replica_divergence(self, last_epoch: int, offset: int, start_offset: int) -> tuple[int, int] | None:
        """As `divergence`, for a replica that holds records from `start_offset` to `offset`.

        If all of them lie below this log's start, and it has no record of their epoch left, the leader cannot tell
        whether they were committed. So they count as diverged.
        """
        diverging, epochs = self.divergence(last_epoch, offset), self.log.leader_epochs.epochs
        is_below = start_offset < offset == self.log.log_start_offset
        if diverging is None and is_below and epochs and last_epoch < epochs[0]:
            return last_epoch, offset
        return diverging

    def read(
        self, offset: int, *, size_bytes_max: int, committed_only: bool, at_least_one: bool, may_block: bool
    ) -> LogSlice | None:
        limit = self.last_stable_offset if committed_only else self.high_watermark
        return self.log.read(
            offset,
            size_bytes_max=size_bytes_max,
            limit_offset=limit,
            at_least_one=at_least_one,
            may_block=may_block,
        )

    def aborted_transactions(
        self, start_offset: int, end_offset: int, *, may_block: bool = True
    ) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that have records between two offsets.

        A few of others may be among them. Raises ColdRead if the page cache does not know and `may_block` is not set.
        """
        return aborted_transactions(self.log, start_offset, end_offset, may_block=may_block)

    def check_leader_epoch(self, epoch: int) -> None:
        """Fence a client whose idea of the leader is older than ours, or newer."""
        if epoch == ANY_EPOCH or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise RequestError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch}; {self.leader_epoch} is current")
        raise RequestError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {epoch} is not known here yet")

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote `offset`, or will if it is the log end; -1 if unknown."""
        return self.leader_epoch if offset >= self.log_end_offset else self.log.leader_epochs.epoch_of(offset)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch up to `epoch`, the offset where it ended), or (-1, -1) if that is not known here."""
        epochs = self.log.leader_epochs
        if epoch == ANY_EPOCH:
            return -1, -1
        if epochs.latest < epoch <= self.leader_epoch:
            # Nothing was written in the current epoch yet: it begins, and every one before it ends, at the log end.
            return self.leader_epoch if epoch == self.leader_epoch else epochs.latest, self.log.log_end_offset
        return epochs.end_offset(epoch, self.log.log_end_offset)

    # Times

    def offset_for_timestamp(self, timestamp_ms: int, callback: FoundCallback, *, committed_only: bool = False) -> None:
        """Find the first visible record at or after a time; `callback(found or None, error or None)`, perhaps later."""
        self._look_up(
            search_time(
                list(self.log.segments),
                timestamp_ms,
                start_offset=self.log.log_start_offset,
                limit_offset=self.last_stable_offset if committed_only else self.high_watermark,
            ),
            callback,
        )

    def max_timestamp_offset(self, callback: FoundCallback, *, committed_only: bool = False) -> None:
        """Find the first visible record with the largest timestamp."""
        self._look_up(
            search_latest_time(
                list(self.log.segments),
                start_offset=self.log.log_start_offset,
                limit_offset=self.last_stable_offset if committed_only else self.high_watermark,
                end_offset=self.log.log_end_offset,
            ),
            callback,
        )

    def _look_up(self, search: Search, callback: FoundCallback) -> None:
        if self.log.failure is not None:
            raise self.log.refusal()
        LookUp(search, self.runtime, self.turnstile, callback).go_on()

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} epoch {self.leader_epoch} high watermark {self.high_watermark}>"
