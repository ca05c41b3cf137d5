"""One partition on this node: as its leader, or as a follower of another's.

`append` stores a batch and returns the high watermark that commits it; `advance` moves the high watermark and completes
requests that wait for it. With `flush.mode=ack` only flushed records count, because a power cut takes back others.

The functions of the other modules work on this state. `leading` is the leader's view of its replicas, `following` what
a follower does to its log, `internal_appends` what the node itself writes, `epochs` where logs diverge.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from strandline.codec.record_batch import (
    BASE_TIMESTAMP,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    MAX_TIMESTAMP,
    TRANSACTIONAL,
    Buffer,
    HeaderFields,
    check_batch,
    stamp_append_time,
)
from strandline.config.topic_config import TopicConfig
from strandline.errors import (
    COMES_AGAIN,
    BehindRefused,
    ErrorCode,
    InvalidBatch,
    NotLeader,
    OutOfOrderSequence,
    RequestError,
    StrandlineError,
)
from strandline.log.flusher import Flusher
from strandline.log.log_replay import learn_markers
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.log_slice import LogSlice
from strandline.partition.delayed_operations import (
    AdvanceListener,
    AppendListener,
    CommitListener,
    DelayedOperations,
    InternalCommit,
    OnCommitted,
)
from strandline.partition.look_up import FoundCallback, look_up_latest_time, look_up_time
from strandline.partition.producers import Producers
from strandline.partition.record_validation import RecordValidation
from strandline.partition.reencoding import opened_now
from strandline.partition.refusals import out_of_time, too_large
from strandline.partition.serial_gate import SerialGate
from strandline.partition.tier import Tier
from strandline.partition.transactions import check_beginning, check_outside, check_verified, refuse_kind
from strandline.partition.verification import ONGOING, VerificationGuard
from strandline.replication.in_sync import InSyncReplicas, Proposal

_NOT_PLAIN: Final = CONTROL | TRANSACTIONAL
NO_LEADER: Final = -1
ANY_EPOCH: Final = -1
"""Sent by a client that does not know the leader epoch, or does not care."""
LOOK_BYTES: Final = 1 << 40
"""Reported to readers that are to look at once, however many bytes they wait for."""


def _ignore(*_: object) -> None:
    """Do nothing: a partition without a broker has no subscribers."""


class Partition:
    """The state of one replica. `leading` and `following` change its role as the metadata log says."""

    __slots__ = (
        "advance_listeners",
        "append_listeners",
        "batches_in",
        "bytes_in",
        "bytes_out",
        "config",
        "delayed",
        "epoch_start_offset",
        "flush_before_ack",
        "flusher",
        "high_watermark",
        "in_sync",
        "in_sync_count",
        "index",
        "is_internal",
        "is_leader",
        "is_watched",
        "leader_epoch",
        "leader_id",
        "log",
        "on_failed",
        "on_flushed",
        "on_lag",
        "on_proposal",
        "opened_at_offset",
        "partition_epoch",
        "producers",
        "runtime",
        "serial_gate",
        "tier",
        "topic",
        "topic_id",
        "unseen_bytes",
        "validation",
        "verifies_transactions",
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
        serial_gate: SerialGate | None = None,
        high_watermark: int | None = None,
    ) -> None:
        """Make a leader without other replicas. `high_watermark` is the last one known, if there are others."""
        self.topic = topic
        self.is_internal = is_internal
        """Whether clients may only read it."""
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.producers = producers
        self.flusher = flusher
        self.runtime = flusher.runtime
        self.serial_gate = serial_gate or SerialGate()
        """Where look-ups wait that must open a large batch."""
        self.is_leader = True
        self.leader_id = NO_LEADER
        self.leader_epoch = leader_epoch
        self.partition_epoch = -1
        self.in_sync: InSyncReplicas | None = None
        """The leader's view of the other replicas; None if there are none, and of a follower."""
        self.in_sync_count = 1
        self.epoch_start_offset = log.log_end_offset
        """Where the log ended when this node became the leader of this epoch."""
        self.on_proposal: Callable[[Partition, Proposal], object] = _ignore
        """Called with the in-sync replicas that the leader proposes; the controller decides."""
        self.on_lag: Callable[[Partition], object] = _ignore
        """Called when replicas may be behind. While `is_watched`, `leading.look_after` is called from time to time."""
        self.on_failed: Callable[[Partition, StrandlineError], object] = _ignore
        """Called when the log has failed: the partition serves no requests any longer."""
        self.on_flushed: Callable[[Partition], object] = _ignore
        """Called after a flush while replicas out of sync may be elected: `leading` sets it."""
        self.verifies_transactions: Callable[[], bool] = lambda: True
        """Return whether a transaction begins here only if its coordinator knows of it: a dynamic setting."""
        self.validation: RecordValidation | None = None
        """What the topic asks of its records, where this broker leads it."""
        self.tier: Tier | None = None
        """What reads from the object store, if the topic is tiered."""
        self.is_watched = False
        self.delayed = DelayedOperations()
        self.advance_listeners: dict[AdvanceListener, None] = {}
        self.append_listeners: dict[AppendListener, None] = {}
        self.unseen_bytes = 0
        # Since this process opened the log. Records need no counter: offsets are one.
        self.opened_at_offset = log.log_end_offset
        self.batches_in = self.bytes_in = self.bytes_out = 0
        self.configure(config, is_only_copy=is_only_copy)
        if high_watermark is None:
            self.high_watermark = log.flushed_offset if self.flush_before_ack else log.log_end_offset
        else:
            self.high_watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        self.learn_undecided()
        log.on_flushed = self._on_flushed
        log.on_failed = self._on_failed
        log.on_flush_wanted = partial(flusher.flush_soon, log)

    def configure(self, config: TopicConfig, *, is_only_copy: bool) -> None:
        self.config = config
        self.log.config = config
        # `auto` flushes before the ack whenever no other replica holds the records. flush.messages=1 asks for the same.
        self.flush_before_ack = (
            config.flush_mode == "ack" or (config.flush_mode == "auto" and is_only_copy) or config.flush_messages == 1
        )

    def reconfigure(self, config: TopicConfig) -> None:
        """Apply changed settings, or changed in-sync replicas, to a partition in use."""
        is_only_copy = self.is_leader and (self.in_sync is None or self.in_sync.is_alone)
        self.configure(config, is_only_copy=is_only_copy)
        if self.flush_before_ack:
            if self.log.unflushed:
                # Readers have seen these records already; from here on only flushed ones count.
                self.flusher.flush_soon(self.log)
        else:
            # Acknowledgements no longer wait for the disk, and the next flush would not complete those that did.
            self.delayed.on_flushed(self.log.log_end_offset)
        if self.is_leader:
            self.recount()

    @property
    def records_in(self) -> int:
        """Return the number of records appended since this process opened the log."""
        return self.log.log_end_offset - self.opened_at_offset

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} epoch {self.leader_epoch} high watermark {self.high_watermark}>"

    # Reading

    @property
    def log_start_offset(self) -> int:
        """Return the first offset that may be read, here or in the object store."""
        log = self.log
        return log.log_start_offset if log.tier_start_offset < 0 else log.tier_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Return up to where a read_committed consumer may read: the high watermark, or the start of the first
        transaction that is open or whose marker is not committed yet."""
        unstable, high_watermark = self.producers.first_unstable_offset, self.high_watermark
        if unstable >= high_watermark:
            return high_watermark
        # The beginning of a transaction may have been deleted.
        return max(unstable, self.log_start_offset)

    def read(
        self, offset: int, *, size_bytes_max: int, committed_only: bool, at_least_one: bool, may_block: bool
    ) -> LogSlice | None:
        limit = self.last_stable_offset if committed_only else self.high_watermark
        return self.log.read(
            offset, size_bytes_max=size_bytes_max, limit_offset=limit, at_least_one=at_least_one, may_block=may_block
        )

    def check_leader_epoch(self, epoch: int) -> None:
        """Reject a client with an older leader epoch, or a newer one."""
        if epoch == ANY_EPOCH or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise RequestError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch}; {self.leader_epoch} is current")
        raise RequestError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {epoch} is not known here yet")

    def epoch_of(self, offset: int) -> int:
        """Return the epoch that wrote `offset`, or will if it is the log end; -1 if unknown."""
        return self.leader_epoch if offset >= self.log_end_offset else self.log.leader_epochs.epoch_of(offset)

    def read_all(self) -> Iterator[bytes]:
        """Yield every batch of the log, for a coordinator that loads its state."""
        return self.log.batches()

    def offset_for_timestamp(self, timestamp_ms: int, callback: FoundCallback, *, committed_only: bool = False) -> None:
        """Find the first visible record at or after a time. Calls `callback(found or None, error or None)` once."""
        limit = self.last_stable_offset if committed_only else self.high_watermark
        look_up_time(self.log, timestamp_ms, limit, self.runtime, self.serial_gate, callback)

    def max_timestamp_offset(self, callback: FoundCallback, *, committed_only: bool = False) -> None:
        """Find the first visible record with the largest timestamp."""
        limit = self.last_stable_offset if committed_only else self.high_watermark
        look_up_latest_time(self.log, limit, self.runtime, self.serial_gate, callback)

    # Writing

    def append(
        self,
        batch: memoryview | bytearray,
        now_ms: int,
        *,
        is_opened: bool = False,
        guard: VerificationGuard | None = None,
    ) -> tuple[int, int, int]:
        """Store a producer's batch. Return (base offset, the high watermark that commits it, append time or -1).

        A duplicate is not stored again; the offsets are those of the first. Raises StrandlineError with nothing
        changed, and OpensLater if the batch must go through a `Reencoder` first and come back with `is_opened`.
        `guard` is what `begin_verification` returned, if the request names a transaction.
        """
        if self.log.failure is not None:
            # First, because a duplicate would wait for a high watermark that no longer moves.
            raise self.log.refusal()
        if not self.is_leader:
            raise NotLeader(f"{self.topic}-{self.index} is led by node {self.leader_id}")
        config, producers = self.config, self.producers
        header = check_batch(batch)
        if len(batch) > config.max_message_bytes:
            raise too_large(self.topic, len(batch), config.max_message_bytes)
        _, _, _, _, _, attributes, last_offset_delta, _, _, producer_id, producer_epoch, base_sequence, _ = header
        is_transactional = attributes & _NOT_PLAIN
        if is_transactional and (guard is None or producer_id < 0 or attributes & CONTROL):
            refuse_kind(header, guard)
        if producer_id >= 0:
            if base_sequence < 0:
                raise InvalidBatch("a producer id without a sequence")
            try:
                if is_transactional and not producers.has_open_transaction(producer_id, producer_epoch):
                    known = check_beginning(producers, header, guard, verifies=self.verifies_transactions)
                elif producers.open_transactions and not is_transactional:
                    known = check_outside(producers, header)
                else:
                    last_sequence = (base_sequence + last_offset_delta) & 0x7FFFFFFF
                    known = producers.check(producer_id, producer_epoch, base_sequence, last_sequence)
            except OutOfOrderSequence as gap:
                if producers.is_behind_refused(producer_id, producer_epoch, base_sequence, now_ms):
                    raise BehindRefused(str(gap)) from None
                raise
            if known is not None:
                return known, known + last_offset_delta + 1, -1
            if producer_id not in producers.entries:
                producers.check_room(now_ms)
        if not is_opened:
            opened = opened_now(batch, header, config, self.validation)
            if opened is not batch:
                batch = opened
                header = HEADER.unpack_from(batch)
        append_time_ms = -1
        if config.log_append_time:
            header = stamp_append_time(batch, header, now_ms)
            append_time_ms = now_ms
        elif (
            header[MAX_TIMESTAMP] > now_ms + config.timestamp_after_max_ms
            or 0 <= header[BASE_TIMESTAMP] < now_ms - config.timestamp_before_max_ms
        ):
            raise out_of_time(self.topic, header, now_ms)
        base_offset = self.log.append(batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        last_offset, max_timestamp = base_offset + last_offset_delta, header[MAX_TIMESTAMP]
        if producer_id >= 0:
            producers.note(
                producer_id, producer_epoch, base_sequence, last_offset, last_offset_delta, max_timestamp, now_ms
            )
            if is_transactional and (guard is not ONGOING or producer_id not in producers.open_transactions):
                producers.note_transactional(producer_id, base_offset)
        self.on_appended(len(batch))
        return base_offset, last_offset + 1, append_time_ms

    def note_refused(self, batch: Buffer, now_ms: int, code: int, *, is_checked: bool = False) -> None:
        """Note a rejected batch that its producer will retry, because later batches must not be stored before it.

        `batch` may be the header alone if `is_checked` says that the checksum was right.
        """
        if code in COMES_AGAIN and len(batch) >= HEADER_SIZE:
            self.producers.note_refused_batch(batch, now_ms, is_checked=is_checked)

    def on_appended(self, size_bytes: int) -> None:
        self.unseen_bytes += size_bytes
        self.bytes_in += size_bytes
        self.batches_in += 1
        log, in_sync = self.log, self.in_sync
        if in_sync is not None:
            for listener in self.append_listeners:
                listener.on_append(size_bytes)
            if not self.is_watched:
                self.watch()
        if self.flush_before_ack:
            self.flusher.flush_soon(log)
            return
        if log.log_end_offset - log.flushed_offset >= self.config.flush_messages:
            self.flusher.flush_soon(log)
        if in_sync is None:
            self.advance(log.log_end_offset)
        elif in_sync.is_alone:
            self.recount()

    def append_internal(
        self, batch: bytes, on_committed: OnCommitted, *, guard: VerificationGuard | None = None
    ) -> None:
        """Store a batch of a coordinator on this node, and call back when it is committed.

        A transactional one (offsets of a transaction) has no sequence. It begins a transaction of its producer if none
        is open, with the guard that `begin_verification` returned before the coordinator was asked.
        """
        self.check_internal()
        owned = bytearray(batch)
        header: HeaderFields = HEADER.unpack_from(owned)
        _, _, _, _, _, attributes, last_offset_delta, _, _, producer_id, epoch, _, _ = header
        is_transactional = attributes & TRANSACTIONAL
        if is_transactional and not self.producers.has_open_transaction(producer_id, epoch):
            check_verified(self.producers, producer_id, epoch, guard, verifies=self.verifies_transactions)
        now_ms = self.runtime.now_ms()
        base_offset = self.log.append(owned, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if is_transactional:
            self.producers.note_header(HEADER.unpack_from(owned), now_ms)
        self.on_appended_internal(owned, base_offset + last_offset_delta + 1, on_committed)

    def check_internal(self) -> None:
        if not self.is_leader:
            raise NotLeader(f"{self.topic}-{self.index} is led by node {self.leader_id}")
        if self.is_under_min_in_sync:
            raise RequestError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.in_sync_count} replicas are in sync: {self!r}")

    def on_appended_internal(self, batch: bytearray, commits_at: int, on_committed: OnCommitted) -> None:
        self.on_appended(len(batch))
        if self.high_watermark >= commits_at:
            on_committed(None)
        else:
            self.when_committed(commits_at, InternalCommit(on_committed))

    # Committing

    def when_committed(self, high_watermark: int, listener: CommitListener) -> None:
        """Notify `listener` when the high watermark has reached `high_watermark`."""
        self.delayed.produces.append((high_watermark, listener))

    def when_flushed(self, offset: int, listener: CommitListener) -> None:
        """Notify `listener` when everything below `offset` is on this node's disk, as acks=1 with `flush.mode=ack`."""
        self.delayed.flushes.append((offset, listener))

    def _on_flushed(self) -> None:
        if self.delayed.flushes:
            self.delayed.on_flushed(self.log.flushed_offset)
        if self.flush_before_ack and self.is_leader:
            self.recount()
        if self.in_sync is not None and self.in_sync.eligible:
            self.on_flushed(self)

    @property
    def acknowledged_offset(self) -> int:
        """Return the offset below which this node holds everything, as `flush.mode` defines that."""
        return self.log.flushed_offset if self.flush_before_ack else self.log.log_end_offset

    def recount(self) -> None:
        """Move the high watermark to where it may be by now."""
        in_sync = self.in_sync
        if in_sync is None:
            self.advance(self.acknowledged_offset)
        elif not in_sync.eligible and not self.is_under_min_in_sync:
            # Not while the controller might elect a replica that it removed without us: see `leading.maybe_confirm`.
            self.advance(in_sync.high_watermark(self.acknowledged_offset))

    def advance(self, high_watermark: int) -> None:
        """Raise the high watermark, complete the produces that it commits, and notify fetches. It never goes back."""
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        completed = self.producers.completed
        if completed and completed[0][0] < high_watermark:
            self.producers.on_high_watermark(high_watermark)
            # A marker makes all records of its transaction visible, however few bytes came last.
            self.unseen_bytes = LOOK_BYTES
        waiting = self.delayed.produces
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1].on_commit(0)
        if self.advance_listeners:
            size_bytes = self.unseen_bytes
            self.unseen_bytes = 0
            for listener in list(self.advance_listeners):
                listener.on_advance(size_bytes)
        elif high_watermark == self.log.log_end_offset:
            self.unseen_bytes = 0

    def is_committed(self) -> bool:
        """Return whether everything in the log is below the high watermark."""
        return self.high_watermark >= self.log.log_end_offset

    # In-sync replicas; the rest is in `leading`

    @property
    def is_under_min_in_sync(self) -> bool:
        """Return whether too few replicas are in sync for anything to be committed (KIP-966)."""
        in_sync = self.in_sync
        return in_sync is not None and len(in_sync.isr) < min(self.config.min_insync_replicas, len(in_sync.replicas))

    def watch(self) -> None:
        self.is_watched = True
        self.on_lag(self)

    # Ending

    def _on_failed(self, error: StrandlineError) -> None:
        self.abandon(int(error.code))
        self.on_failed(self, error)

    def abandon(self, error_code: int) -> None:
        """Fail every request that waits: the partition was removed, another node leads it, or its log failed."""
        self.delayed.abandon(error_code)
        self.send_away(self.append_listeners)
        self.send_away(self.advance_listeners)

    def send_away(self, listeners: Iterable[AdvanceListener | AppendListener]) -> None:
        """Have fetches look again at leader, epoch and high watermark."""
        for listener in list(listeners):
            listener.on_gone()

    def learn_undecided(self) -> None:
        """After the log was opened or truncated, find the markers above the high watermark and what they end."""
        learn_markers(self.log, self.high_watermark)
        self.producers.on_high_watermark(self.high_watermark)
