"""The appends that one shard has asked for, and the responses that wait until they are committed.

Records that the shard asks for within one turn of the loop go into one batch, and a response leaves when every batch
before it is committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from strandline.codec.columns import Record as BatchRecord
from strandline.codec.columns import encode_batch, encode_record
from strandline.coordinators.groups.events import AppendTransactional, AppendWhole
from strandline.coordinators.groups.pending_request import Waiting
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.errors import ErrorCode, StrandlineError
from strandline.handlers.support.services import EncodedWait
from strandline.runtime.runtime import Runtime

BATCH_BYTES_MAX = 512 * 1024
"""Payload after which a batch is closed. A single record may be larger; the partition then judges it."""

RECORDS_PER_TURN_MAX = 2_000
"""Records of one shard that are written in one turn of the loop; each costs it some microseconds."""

OnCommitted = Callable[[Exception | None], None]


class InternalPartition(Protocol):
    """What a partition that this node leads offers to its coordinator."""

    def append_internal(self, batch: bytes, on_committed: OnCommitted, *, guard: Any = None) -> None:
        """Append one batch and call back when it is below the high watermark, or will never be.

        A transactional one may need the `guard` of a verification.
        """

    def read_all(self) -> Iterator[bytes]:
        """Every batch from the log start to the end."""

    def is_committed(self) -> bool:
        """Whether everything in the log is below the high watermark."""


class PendingAppends:
    """What one shard waits for: numbered appends, and responses that are held until their number is committed."""

    __slots__ = (
        "_append_number",
        "_committed_number",
        "_held",
        "_on_failed",
        "_partition",
        "_runtime",
        "_unwritten",
        "_writing",
        "closed",
    )

    def __init__(
        self, runtime: Runtime, partition: InternalPartition, on_failed: Callable[[Exception], object]
    ) -> None:
        self.closed = False
        self._runtime = runtime
        self._partition = partition
        self._on_failed = on_failed
        self._held: deque[tuple[int, Waiting | EncodedWait, Any]] = deque()
        """Responses that wait until the append with this number is committed."""
        self._unwritten: list[CoordinatorRecord] = []
        """Asked for in this turn of the loop, under the present number."""
        self._writing: deque[tuple[int, list[CoordinatorRecord] | AppendTransactional | AppendWhole]] = deque()
        """By number: asked for in earlier turns, and too much for one turn to write; or in a batch of its own."""
        self._append_number = 0
        self._committed_number = 0

    def append(self, records: Sequence[CoordinatorRecord]) -> None:
        self._begin()
        self._unwritten.extend(records)

    def append_apart(self, effect: AppendTransactional | AppendWhole) -> None:
        """Append records in a batch that holds nothing else."""
        self._seal()
        self._begin()
        self._writing.append((self._append_number, effect))

    def append_plain(self, record: CoordinatorRecord, waiting: EncodedWait, response: bytes) -> None:
        """Append one record, and answer when it is committed."""
        self._begin()
        self._unwritten.append(record)
        self._held.append((self._append_number, waiting, response))

    def hold(self, waiting: Waiting | EncodedWait, response: Any) -> None:
        """Answer when all that was asked for before is committed."""
        if self._append_number == self._committed_number:
            waiting.answer(response)
        else:
            self._held.append((self._append_number, waiting, response))

    def append_now(self, append: Callable[[OnCommitted], object]) -> None:
        """Have `append` write a batch behind all that was asked for; what comes later waits for it, too.

        Raises what `append` raises.
        """
        self._append_number += 1
        try:
            append(_AppendCommitted(self, self._append_number))
        except BaseException:
            self._append_number -= 1
            raise

    def _begin(self) -> None:
        """Begin an append, with a number of its own, unless this turn has one that takes further records."""
        if not self._unwritten:
            self._append_number += 1
            if not self._writing:
                # Else the next share of what is being written is due, and this comes behind.
                self._runtime.call_soon(self.flush)

    def flush(self) -> None:
        """Append what the shard asked for since the last turn of the loop."""
        if self.closed:
            return
        self._seal()
        written = 0
        while self._writing and written < RECORDS_PER_TURN_MAX and not self.closed:
            number, asked = self._writing.popleft()
            if isinstance(asked, list):
                self._append_share(number, asked)
                break
            if isinstance(asked, AppendWhole):
                self._append_batch(asked.records, _AppendCommitted(self, number))
            else:
                self._append_transactional(number, asked)
            written += len(asked.records)
            # A client that was answered at once may have sent more, which saw that this is not over.
            self._seal()
        if self._writing:
            self._runtime.call_soon(self.flush)

    def flush_all(self) -> None:
        """Append all of it now, because no later turn will."""
        while (self._unwritten or self._writing) and not self.closed:
            self.flush()

    def _seal(self) -> None:
        """Complete what was asked for under its number: what comes next, comes behind it."""
        if self._unwritten:
            self._writing.append((self._append_number, self._unwritten))
            self._unwritten = []

    def _append_share(self, number: int, records: list[CoordinatorRecord]) -> None:
        count = 1 if len(records) == 1 else _count_of_share(records)
        on_committed: OnCommitted = _AppendCommitted(self, number)
        if count < len(records):
            # A deleted group may leave ten thousand tombstones: others are served before the rest is written.
            self._writing.appendleft((number, records[count:]))
            on_committed = self._on_part_committed
        self._append_batch(records[:count], on_committed)

    def _append_batch(self, records: Sequence[CoordinatorRecord], on_committed: OnCommitted) -> None:
        try:
            self._partition.append_internal(_batch_of(records, self._runtime.now_ms()), on_committed)
        except (StrandlineError, OSError) as error:
            self._on_failed(error)

    def _append_transactional(self, number: int, effect: AppendTransactional) -> None:
        now_ms = self._runtime.now_ms()
        left = list(effect.records)
        while left and not self.closed:
            # One batch, unless it would be too large. The marker makes one of them in any case.
            count = _count_of_share(left)
            share, left = left[:count], left[count:]
            batch = encode_batch(
                [BatchRecord(timestamp_ms=now_ms, key=key, value=value) for key, value in share],
                producer_id=effect.producer_id,
                producer_epoch=effect.producer_epoch,
                transactional=True,
            )
            on_committed: OnCommitted = self._on_part_committed if left else _AppendCommitted(self, number)
            try:
                self._partition.append_internal(batch, on_committed, guard=effect.verified)
            except (StrandlineError, OSError) as error:
                self._on_failed(error)

    def _on_part_committed(self, error: Exception | None) -> None:
        if error is not None:
            self._on_failed(error)

    def on_committed(self, number: int, error: Exception | None) -> None:
        if error is not None:
            self._on_failed(error)
            return
        if number > self._committed_number:
            self._committed_number = number
        held = self._held
        while held and held[0][0] <= self._committed_number:
            _, waiting, response = held.popleft()
            waiting.answer(response)

    def close(self, refusal: ErrorCode | None) -> None:
        """Append nothing more, and refuse what waits; without a `refusal` it is answered as its appends commit."""
        self.closed = True
        if refusal is not None:
            held, self._held = self._held, deque()
            for _, waiting, _ in held:
                waiting.refuse(refusal)


class _AppendCommitted:
    """The callback of one append."""

    __slots__ = ("_appends", "_number")

    def __init__(self, appends: PendingAppends, number: int) -> None:
        self._appends = appends
        self._number = number

    def __call__(self, error: Exception | None) -> None:
        self._appends.on_committed(self._number, error)


def _count_of_share(records: list[CoordinatorRecord]) -> int:
    """Return how many of the records go into the next batch."""
    size = 0
    for count, record in enumerate(records[:RECORDS_PER_TURN_MAX]):
        size += record.size_bytes
        if count and size > BATCH_BYTES_MAX:
            return count
    return min(len(records), RECORDS_PER_TURN_MAX)


def _batch_of(records: Sequence[CoordinatorRecord], now_ms: int) -> bytes:
    if len(records) == 1:
        key, value = records[0]
        return encode_record(value, key, (), now_ms)
    return encode_batch([BatchRecord(timestamp_ms=now_ms, key=key, value=value) for key, value in records])
