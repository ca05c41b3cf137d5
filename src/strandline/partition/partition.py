"""One partition as its leader sees it.

`append` checks a batch, stores it and says up to where the high watermark must move for it to count as committed;
`advance` moves the high watermark and wakes whoever waited for it. What counts is decided by `flush.mode`: with `ack`
only flushed records do, so neither a reader nor a producer is ever told of one that a power cut could take back.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from crc32c import crc32c

from strandline.codec.record_batch import (
    CONTROL,
    CRC_START,
    HEADER,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    HeaderFields,
    check_batch,
)
from strandline.errors import (
    BatchTooLarge,
    ErrorCode,
    InvalidBatch,
    InvalidTimestamp,
    RequestError,
    StrandlineError,
)
from strandline.log.flusher import Flusher
from strandline.log.log_slice import LogSlice
from strandline.log.partition_log import PartitionLog
from strandline.log.time_lookup import Search, search_latest_time, search_time
from strandline.partition.look_up import FoundCallback, LookUp
from strandline.partition.producers import Producers
from strandline.partition.reencoding import opened_now
from strandline.partition.turnstile import Turnstile
from strandline.partition.waiting import AdvanceListener, CommitListener
from strandline.topic_config import TopicConfig

ANY_EPOCH: Final = -1
"""What a client says that does not know, or does not care, which epoch the leader has."""

_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
_CRC_AT: Final = 17
_NOT_FOR_CLIENTS: Final = CONTROL | TRANSACTIONAL


class Partition:
    __slots__ = (
        "_unseen_bytes",
        "advance_listeners",
        "batches_in",
        "bytes_in",
        "bytes_out",
        "config",
        "flush_before_ack",
        "flusher",
        "high_watermark",
        "in_sync_count",
        "index",
        "is_internal",
        "leader_epoch",
        "log",
        "opened_at_offset",
        "opens_batches",
        "producers",
        "runtime",
        "topic",
        "topic_id",
        "turnstile",
        "waiting_produces",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: uuid.UUID,
        *,
        log: PartitionLog,
        producers: Producers,
        flusher: Flusher,
        config: TopicConfig,
        leader_epoch: int,
        is_only_copy: bool = True,
        is_internal: bool = False,
        turnstile: Turnstile | None = None,
    ) -> None:
        self.topic = topic
        self.is_internal = is_internal
        """Whether clients may only read it."""
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.producers = producers
        self.flusher = flusher
        self.runtime = flusher.runtime
        self.turnstile = turnstile or Turnstile()
        """Where look-ups wait that must open a large batch."""
        self.leader_epoch = leader_epoch
        self.in_sync_count = 1
        self.waiting_produces: deque[tuple[int, CommitListener]] = deque()
        self.advance_listeners: dict[AdvanceListener, None] = {}
        self._unseen_bytes = 0
        # Since this process opened the log. Records need no counter: offsets are one.
        self.opened_at_offset = log.log_end_offset
        self.batches_in = self.bytes_in = self.bytes_out = 0
        self.configure(config, is_only_copy=is_only_copy)
        self.high_watermark = log.flushed_offset if self.flush_before_ack else log.log_end_offset
        log.on_flushed = self._on_flushed
        log.on_failed = self._on_failed
        log.on_flush_wanted = self._on_flush_wanted

    def configure(self, config: TopicConfig, *, is_only_copy: bool) -> None:
        self.config = config
        self.log.config = config
        # `auto` flushes before the ack whenever no other replica holds the records. flush.messages=1 asks for the same.
        self.flush_before_ack = (
            config.flush_mode == "ack" or (config.flush_mode == "auto" and is_only_copy) or config.flush_messages == 1
        )
        self.opens_batches = config.compact or config.compression_codec >= 0

    def reconfigure(self, config: TopicConfig, *, is_only_copy: bool) -> None:
        """Settings changed under a partition that is in use."""
        self.configure(config, is_only_copy=is_only_copy)
        if not self.flush_before_ack:
            # Nobody waits for the disk any longer, nor may anybody be left waiting: the next flush moves nothing.
            self.advance(self.log.log_end_offset)
        elif self.log.unflushed:
            # What readers have seen already is brought to the disk, so that from here on the promise holds for all.
            self.flusher.flush_soon(self.log)

    @property
    def records_in(self) -> int:
        """Records that were appended since this process opened the log."""
        return self.log.log_end_offset - self.opened_at_offset

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Up to where a read_committed reader may see: all of it, as long as there are no transactions."""
        return self.high_watermark

    # Writing

    def append(self, batch: memoryview | bytearray, now_ms: int, *, is_opened: bool = False) -> tuple[int, int, int]:
        """Store a producer's batch: (base offset, the high watermark that commits it, append time or -1).

        A batch that is here already is not stored again; the producer is told where it is. Raises StrandlineError with
        nothing changed; OpensLater if the batch must go through a `Reencoder` first and come back with `is_opened`.
        """
        if self.log.failure is not None:
            # Before anything else: a retry of a batch that is here would wait for a high watermark that moves no more.
            raise self.log.refusal()
        config = self.config
        header = check_batch(batch)
        if len(batch) > config.max_message_bytes:
            raise BatchTooLarge(
                f"a batch of {len(batch)} bytes; max.message.bytes of {self.topic} is {config.max_message_bytes}"
            )
        if header[5] & _NOT_FOR_CLIENTS:
            if header[5] & CONTROL:
                raise InvalidBatch("clients may not write control batches")
            # Kafka's code for transactional records in a request that names no transaction; there are none here yet.
            raise RequestError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records outside a transaction"
            )
        producer_id = header[9]
        if producer_id >= 0:
            base_sequence = header[11]
            if base_sequence < 0:
                raise InvalidBatch("a producer id without a sequence")
            known = self.producers.check(
                producer_id, header[10], base_sequence, (base_sequence + header[6]) & 0x7FFFFFFF
            )
            if known is not None:
                return known, known + header[6] + 1, -1
        if self.opens_batches and not is_opened:
            opened = opened_now(batch, header, config)
            if opened is not batch:
                batch = opened
                header = HEADER.unpack_from(batch)
        append_time_ms = -1
        if config.log_append_time:
            header = stamp_append_time(batch, header, now_ms)
            append_time_ms = now_ms
        elif (
            header[8] > now_ms + config.timestamp_after_max_ms
            or 0 <= header[7] < now_ms - config.timestamp_before_max_ms
        ):
            raise InvalidTimestamp(
                f"timestamps {header[7]} to {header[8]} are outside what {self.topic} accepts at {now_ms}"
            )
        base_offset = self.log.append(batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        last_offset = base_offset + header[6]
        if producer_id >= 0:
            self.producers.note(producer_id, header[10], header[11], last_offset, header[6], header[8])
        self._appended(len(batch))
        return base_offset, last_offset + 1, append_time_ms

    def append_internal(self, batch: bytes, on_committed: Callable[[Exception | None], None]) -> None:
        """Store a batch of the node's own (a coordinator's records), and call back when it is committed."""
        owned = bytearray(batch)
        header: HeaderFields = HEADER.unpack_from(owned)
        base_offset = self.log.append(owned, header, leader_epoch=self.leader_epoch, now_ms=self.runtime.now_ms())
        self._appended(len(owned))
        commits_at = base_offset + header[6] + 1
        if self.high_watermark >= commits_at:
            on_committed(None)
        else:
            self.when_committed(commits_at, _InternalCommit(on_committed))

    def read_all(self) -> Iterator[bytes]:
        """Every batch of the log, for a coordinator that loads its state."""
        return self.log.batches()

    def _appended(self, size_bytes: int) -> None:
        self._unseen_bytes += size_bytes
        self.bytes_in += size_bytes
        self.batches_in += 1
        if self.flush_before_ack:
            self.flusher.flush_soon(self.log)
            return
        log = self.log
        if log.log_end_offset - log.flushed_offset >= self.config.flush_messages:
            self.flusher.flush_soon(log)
        self.advance(log.log_end_offset)

    def when_committed(self, high_watermark: int, listener: CommitListener) -> None:
        """Tell `listener` when the high watermark has reached `high_watermark`."""
        self.waiting_produces.append((high_watermark, listener))

    def _on_flush_wanted(self) -> None:
        self.flusher.flush_soon(self.log)

    def _on_flushed(self) -> None:
        if self.flush_before_ack:
            self.advance(self.log.flushed_offset)

    def advance(self, high_watermark: int) -> None:
        """Readers may see up to `high_watermark` from now on; it never goes back."""
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        waiting = self.waiting_produces
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1].on_commit(0)
        if self.advance_listeners:
            size_bytes = self._unseen_bytes
            self._unseen_bytes = 0
            for listener in list(self.advance_listeners):
                listener.on_advance(size_bytes)
        elif high_watermark == self.log.log_end_offset:
            self._unseen_bytes = 0

    # Reading

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

    def offset_for_timestamp(self, timestamp_ms: int, callback: FoundCallback) -> None:
        """Find the first visible record at or after a time; `callback(found or None, error or None)`, perhaps later."""
        self._look_up(
            search_time(
                list(self.log.segments),
                timestamp_ms,
                start_offset=self.log.log_start_offset,
                limit_offset=self.high_watermark,
            ),
            callback,
        )

    def max_timestamp_offset(self, callback: FoundCallback) -> None:
        """Find the first visible record with the largest timestamp."""
        self._look_up(
            search_latest_time(
                list(self.log.segments),
                start_offset=self.log.log_start_offset,
                limit_offset=self.high_watermark,
                end_offset=self.log.log_end_offset,
            ),
            callback,
        )

    def _look_up(self, search: Search, callback: FoundCallback) -> None:
        if self.log.failure is not None:
            raise self.log.refusal()
        LookUp(search, self.runtime, self.turnstile, callback).go_on()

    # Ending

    def _on_failed(self, error: StrandlineError) -> None:
        self.abandon(int(error.code))

    def abandon(self, error_code: int) -> None:
        """The partition is gone from this node or its log failed: nobody waits here any longer."""
        waiting = self.waiting_produces
        while waiting:
            waiting.popleft()[1].on_commit(error_code)
        for listener in list(self.advance_listeners):
            listener.on_gone()

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} epoch {self.leader_epoch} high watermark {self.high_watermark}>"


class _InternalCommit:
    __slots__ = ("_on_committed",)

    def __init__(self, on_committed: Callable[[Exception | None], None]) -> None:
        self._on_committed = on_committed

    def on_commit(self, error_code: int) -> None:
        self._on_committed(RequestError(ErrorCode(error_code), "the append was not committed") if error_code else None)


def stamp_append_time(batch: memoryview | bytearray, header: HeaderFields, now_ms: int) -> HeaderFields:
    """LogAppendTime: the header says so and carries the broker's time, so the CRC is made anew."""
    attributes = header[5] | LOG_APPEND_TIME
    batch[_ATTRIBUTES_AT : _ATTRIBUTES_AT + 2] = attributes.to_bytes(2, "big")
    batch[_MAX_TIMESTAMP_AT : _MAX_TIMESTAMP_AT + 8] = now_ms.to_bytes(8, "big")
    batch[_CRC_AT : _CRC_AT + 4] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
    return HEADER.unpack_from(batch)
