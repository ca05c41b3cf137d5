"""From committed bytes to the image: batches of the metadata log are decoded and folded in order, a share per turn.

A leader keeps the records of its own writes until they are committed, so they are never decoded; everybody else reads
them from the log. Only what is committed is read: what is not may still be cut off and replaced.

A batch is folded as a whole, whatever its size, because what one command decided is never to be seen in half: a topic
with some of its partitions would be shown to clients. What takes long of it is done before, in shares, where no reader
of the image sees it: its records are decoded, and its partitions are made (`quorum/controller/prepared_records`).
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from uuid import UUID

from strandline.codec.columns import Columns, Record, decode_batch
from strandline.codec.internal_records import decode_metadata_record
from strandline.codec.messages.remove_topic_record import RemoveTopicRecord
from strandline.codec.messages.voters_record import VotersRecord
from strandline.codec.record_batch import PREFIX, PREFIX_SIZE
from strandline.errors import CorruptLog, StrandlineError
from strandline.log.partition_log import PartitionLog
from strandline.quorum.controller.prepared_records import PreparedRecords, add_folds
from strandline.quorum.image.cluster_image import ClusterImage
from strandline.quorum.image.snapshot_format import decode_control_record
from strandline.runtime.runtime import Runtime

FOLD_S_MAX: Final = 0.005
"""What folding may take of one turn of the loop, save that what was made of one batch is linked as a whole."""
READ_BYTES: Final = 1 << 20
RECORDS_PER_STEP: Final = 200
"""Records that are decoded, or made ready for the image, before the clock is looked at again."""

Done = Callable[[BaseException | None], object]


@dataclasses.dataclass(slots=True)
class Write:
    """A pending write of this leader; one without records is a barrier, done when all before it is."""

    base_offset: int
    end_offset: int
    records: list[Any]
    on_done: Done
    size_bytes: int = 0
    timestamp_ms: int = 0


class MetadataLoader:
    """The image of the cluster, and how far the metadata log is folded into it."""

    def __init__(self, log: PartitionLog, runtime: Runtime) -> None:
        self._log = log
        self._runtime = runtime
        self.image = ClusterImage()
        self.folded_offset = 0
        """Everything below is in the image."""
        self.committed_offset = 0
        self.last_timestamp_ms = 0
        """Of the last batch that was folded."""
        self.unsnapshotted_bytes = 0
        """Of batches that were folded since the last snapshot."""
        self.writes: deque[Write] = deque()
        self.keeps_removed = True
        self.removed_topic_ids: set[UUID] = set()
        """Topics that were deleted, until `forget_removed`."""
        self.on_applied: Callable[[list[Any], Callable[[], object]], None] | None = None
        self._listeners: list[Callable[[list[Any]], object]] = []
        self.on_voters: Callable[[VotersRecord, int], object] = lambda voters, offset: None
        self.on_progress: Callable[[], object] = lambda: None
        """Called after each share that folded something."""
        self.on_error: Callable[[StrandlineError], object] = lambda error: None
        self._is_due = False
        self._ahead: deque[bytes] = deque()
        self._columns: Columns | None = None
        self._decoded: list[Any] = []
        self._folds: list[Any] = []
        """What the image is given for those records of the next batch that were decoded, or made ready."""
        self._ready = 0
        """Records of this leader's next write that were made ready."""

    def subscribe(self, listener: Callable[[list[Any]], object]) -> None:
        """Call `listener` now, and with records when they are in the image and before they are acknowledged.

        Without records the image may be another object, so that everything in it may have changed.
        """
        self._listeners.append(listener)
        listener([])

    def replace(self, image: ClusterImage, offset: int, timestamp_ms: int) -> None:
        """Go on from a snapshot that ends at `offset`."""
        # Versions go on, so that nothing made from the old image passes for made from the new one.
        image.version += self.image.version
        image.brokers_version = image.version
        self.image = image
        self.folded_offset = offset
        self.committed_offset = max(self.committed_offset, offset)
        self.last_timestamp_ms = timestamp_ms
        self.unsnapshotted_bytes = 0
        self._ahead.clear()
        self._columns = None
        self._ready = 0
        for listener in self._listeners:
            listener([])

    def commit(self, offset: int, *, at_once: bool = False) -> None:
        """Everything below `offset` is committed; fold it, all of it `at_once` or a share now and the rest later."""
        self.committed_offset = max(self.committed_offset, offset)
        if at_once:
            self._fold_share(None)
        elif not self._is_due:
            self._fold_now()

    def fail_writes(self, error: BaseException) -> None:
        """Fail the pending writes, whose outcome is unknown, save of those that are committed and wait to be folded."""
        writes, self.writes = self.writes, deque()
        for write in writes:
            if write.end_offset <= self.committed_offset:
                self.writes.append(write)
            else:
                write.on_done(error)

    def on_log_failed(self, error: BaseException) -> None:
        """The log cannot be read any more: own writes that are committed are folded, and that is all."""
        while self.writes and self.writes[0].end_offset <= self.committed_offset and self._is_own_next():
            self._step()
        writes, self.writes = self.writes, deque()
        for write in writes:
            write.on_done(error)

    # Folding

    def _fold_later(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._runtime.call_soon(self._fold_turn)

    def _fold_turn(self) -> None:
        self._is_due = False
        self._fold_now()

    def _fold_now(self) -> None:
        try:
            self._fold_share(self._runtime.monotonic() + FOLD_S_MAX)
        except StrandlineError as error:
            self.on_error(error)

    def _fold_share(self, until: float | None) -> None:
        before = self.folded_offset
        while self.folded_offset < self.committed_offset and self._log.failure is None:
            if until is not None and self._runtime.monotonic() > until:
                self._fold_later()
                break
            self._step()
        while self.writes and not self.writes[0].records and self.writes[0].end_offset <= self.folded_offset:
            self.writes.popleft().on_done(None)
        if self.folded_offset != before:
            self.on_progress()

    def _step(self) -> None:
        """Fold the next batch, or decode a part of it, or make a part of it ready for the image."""
        if self._is_own_next():
            write = self.writes[0]
            if write.records and not self._is_ready(write.records):
                return
            self.writes.popleft()
            if not write.records:
                write.on_done(None)
                return
            self._apply(
                write.records, write.end_offset, write.timestamp_ms, write.size_bytes, partial(write.on_done, None)
            )
            return
        if self._columns is None:
            self._columns, self._decoded, self._folds = self._next_batch(), [], []
        columns = self._columns
        header = columns.header
        if columns.is_control:
            for record in columns:
                control = decode_control_record(record)
                if isinstance(control, VotersRecord):
                    self.on_voters(control, record.offset)
        else:
            first = len(self._decoded)
            places = range(first, min(first + RECORDS_PER_STEP, header.record_count))
            self._decoded += [_decode(columns.record(place)) for place in places]
            add_folds(self._folds, self._decoded[first:])
            if len(self._decoded) < header.record_count:
                return
        self._columns = None
        self._apply(self._decoded, header.last_offset + 1, header.max_timestamp, header.size_bytes, _nothing)

    def _is_ready(self, records: list[Any]) -> bool:
        """Make a part of this leader's next write ready; return whether that was the last part."""
        if isinstance(records, PreparedRecords):
            self._folds = records.folds
            return True
        if self._ready == 0:
            self._folds = []
        add_folds(self._folds, records[self._ready : self._ready + RECORDS_PER_STEP])
        self._ready += RECORDS_PER_STEP
        return self._ready >= len(records)

    def _is_own_next(self) -> bool:
        return bool(self.writes) and self.writes[0].base_offset == self.folded_offset

    def _next_batch(self) -> Columns:
        while True:
            if not self._ahead:
                self._read_ahead()
            columns = decode_batch(self._ahead.popleft())
            # What was read ahead, and came from the writes meanwhile.
            if columns.header.last_offset >= self.folded_offset:
                return columns

    def _read_ahead(self) -> None:
        piece = self._log.read(self.folded_offset, size_bytes_max=READ_BYTES, limit_offset=self.committed_offset)
        if piece is None:
            raise CorruptLog(f"{self._log.directory}: nothing stands at {self.folded_offset}, which is committed")
        try:
            data = piece.read()
        finally:
            piece.release()
        at = 0
        while len(data) - at >= PREFIX_SIZE:
            size = PREFIX.unpack_from(data, at)[1] + PREFIX_SIZE
            if len(data) - at < size:
                break
            self._ahead.append(data[at : at + size])
            at += size
        if not self._ahead:
            raise CorruptLog(f"{self._log.directory}: the batch at {self.folded_offset} is cut off")

    def _apply(
        self, records: list[Any], end_offset: int, timestamp_ms: int, size_bytes: int, then: Callable[[], object]
    ) -> None:
        folds, self._folds, self._ready = self._folds, [], 0
        for each in folds:
            self.image.apply(each, end_offset - 1)
        self.folded_offset = end_offset
        self.last_timestamp_ms = timestamp_ms
        self.unsnapshotted_bytes += size_bytes
        if self.keeps_removed:
            self.removed_topic_ids.update(each.topic_id for each in records if isinstance(each, RemoveTopicRecord))
        for listener in self._listeners:
            listener(records)
        if self.on_applied is None:
            then()
        elif records:
            self.on_applied(records, then)


def _decode(record: Record) -> Any:
    if record.value is None:
        raise CorruptLog(f"metadata log: record {record.offset} has no value")
    return decode_metadata_record(record.value)


def _nothing() -> None:
    """Do nothing: no write of this node waits for the records of another leader."""
