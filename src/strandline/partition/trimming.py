"""Records leave a partition at its start, because somebody asked for it.

They are out of sight at once. Whoever answers for it first has the log start offset written down, so that no restart
brings them back. Files that hold nothing else are renamed a share per turn of the loop, oldest first, and then removed
in a thread; what a crash leaves of them, the next start takes away.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from strandline.errors import ErrorCode, OffsetOutOfRange, RequestError
from strandline.log.segment import Segment
from strandline.partition.partition import Partition

UP_TO_HIGH_WATERMARK: Final = -1
"""What DeleteRecords says for "all that may be deleted"."""
RENAME_S_MAX: Final = 0.005
"""What renaming the files of one partition may take of one turn of the loop."""

log = logging.getLogger("strandline.partition")


def delete_records(partition: Partition, offset: int) -> int:
    """Everything below `offset` is gone; the log start offset. StrandlineError, and nothing is changed, if it may not.

    An offset below the log start offset asks for nothing.
    """
    if partition.log.failure is not None:
        raise partition.log.refusal()
    if "delete" not in partition.config.cleanup_policy:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {partition.topic} does not allow records to be deleted"
        )
    start_offset = partition.high_watermark if offset == UP_TO_HIGH_WATERMARK else offset
    if not 0 <= start_offset <= partition.high_watermark:
        raise OffsetOutOfRange(f"cannot delete up to {start_offset}: {partition!r}")
    if start_offset > partition.log_start_offset:
        _Removal(partition, partition.log.cut_front(start_offset)).go_on()
    return partition.log_start_offset


def follow_start(partition: Partition, log_start_offset: int) -> None:
    """What the leader's log no longer holds, a follower's need not either; nor may it, if somebody asked for that."""
    if partition.log_start_offset < log_start_offset <= partition.high_watermark:
        _Removal(partition, partition.log.cut_front(log_start_offset)).go_on()


class _Removal:
    def __init__(self, partition: Partition, segments: list[Segment]) -> None:
        self._partition = partition
        self._segments = deque(segments)
        self._removals: list[Callable[[], None]] = []
        self._is_removing = False

    def go_on(self) -> None:
        runtime = self._partition.runtime
        until = runtime.monotonic() + RENAME_S_MAX
        # If the partition was deleted meanwhile, its files go with it, and their names may be another log's by now.
        while self._segments and self._partition.log.failure is None:
            try:
                self._segments.popleft().delete(self._remove_later)
            except OSError as error:
                self._leave(error)
                break
            if self._segments and runtime.monotonic() > until:
                runtime.call_soon(self.go_on)
                break

    def _remove_later(self, remove: Callable[[], None]) -> None:
        """At once for a segment that nobody reads, else when its last reader lets go."""
        self._removals.append(remove)
        if not self._is_removing:
            self._remove()

    def _remove(self) -> None:
        removals, self._removals = self._removals, []
        self._is_removing = bool(removals)
        if removals:
            self._partition.runtime.in_thread(lambda: _run_all(removals), self._on_removed)

    def _on_removed(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._leave(error)
        self._remove()

    def _leave(self, error: BaseException) -> None:
        log.warning("%r: files below the log start offset stay until the next start: %s", self._partition, error)


def _run_all(removals: list[Callable[[], None]]) -> None:
    for remove in removals:
        remove()
