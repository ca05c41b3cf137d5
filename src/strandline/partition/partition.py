"""One partition on this node: as its leader, or as a follower of another's.

`append` checks a batch, stores it and says up to where the high watermark must move for it to count as committed;
`advance` moves the high watermark and wakes whoever waited for it. What counts is decided by `flush.mode`: with `ack`
only flushed records do, so neither a reader nor a producer is ever told of one that a power cut could take back.

`make_leader` and `make_follower` are called when the metadata log says so. A leader whose partition has other replicas
has `in_sync`, its view of them: `on_follower_fetch` counts what they acknowledge. What a follower does to its log is in
`following`. A leader epoch never goes back, and what is of an older one changes nothing.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from strandline.codec.record_batch import (
    BASE_TIMESTAMP,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    MAX_TIMESTAMP,
    TRANSACTIONAL,
    Buffer,
    check_batch,
    stamp_append_time,
)
from strandline.config.topic_config import TopicConfig
from strandline.errors import (
    COMES_AGAIN,
    BatchTooLarge,
    BehindRefused,
    ErrorCode,
    InvalidBatch,
    InvalidTimestamp,
    NotLeader,
    OutOfOrderSequence,
    StrandlineError,
)
from strandline.log.flusher import Flusher
from strandline.log.partition_log import PartitionLog
from strandline.partition.delayed_operations import AdvanceListener, AppendListener, CommitListener
from strandline.partition.internal_appends import InternalAppends, InternalCommit
from strandline.partition.producers import Producers
from strandline.partition.reencoding import opened_now
from strandline.partition.serial_gate import Turnstile
from strandline.partition.transactions import check_beginning, check_outside, refuse_kind
from strandline.partition.verification import ONGOING, VerificationGuard
from strandline.replication.in_sync import UNKNOWN_OFFSET, InSyncReplicas, IsEligible, Proposal

_NOT_PLAIN: Final = CONTROL | TRANSACTIONAL
NO_LEADER: Final = -1
LOOK_BYTES: Final = 1 << 40
"""What readers are told who are to look, whatever number of bytes they wait for."""


def _nobody(*_: object) -> None:
    """Where a partition stands alone, nobody is to be told."""


def _always() -> bool:
    return True


class Partition(InternalAppends):
    __slots__ = (
        "_unseen_bytes",
        "advance_listeners",
        "append_listeners",
        "batches_in",
        "bytes_in",
        "bytes_out",
        "epoch_start_offset",
        "flush_before_ack",
        "flusher",
        "in_sync",
        "is_internal",
        "is_watched",
        "on_failed",
        "on_lag",
        "on_proposal",
        "opened_at_offset",
        "partition_epoch",
        "waiting_flushes",
        "waiting_produces",
        "waiting_trims",
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
        high_watermark: int | None = None,
    ) -> None:
        """Leads, alone, until it is told otherwise. `high_watermark` is what was known of it, if others have a say."""
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
        self.is_leader = True
        self.leader_id = NO_LEADER
        self.leader_epoch = leader_epoch
        self.partition_epoch = -1
        self.in_sync: InSyncReplicas | None = None
        """The leader's view of the other replicas; None if there are none, and of a follower."""
        self.in_sync_count = 1
        self.epoch_start_offset = log.log_end_offset
        """Where the log ended when this node became the leader of this epoch."""
        self.on_proposal: Callable[[Partition, Proposal], object] = _nobody
        """Told which replicas the leader would have in sync; the controller decides."""
        self.on_lag: Callable[[Partition], object] = _nobody
        """Told that replicas may be behind: `look_after` is to be called from time to time while `is_watched`."""
        self.on_failed: Callable[[Partition, StrandlineError], object] = _nobody
        """Told that the log failed, and that nobody is served here any longer."""
        self.verifies_transactions = _always
        self.is_watched = False
        self.waiting_produces: deque[tuple[int, CommitListener]] = deque()
        self.waiting_flushes: deque[tuple[int, CommitListener]] = deque()
        self.waiting_trims: list[tuple[int, CommitListener]] = []
        self.advance_listeners: dict[AdvanceListener, None] = {}
        self.append_listeners: dict[AppendListener, None] = {}
        self._unseen_bytes = 0
        # Since this process opened the log. Records need no counter: offsets are one.
        self.opened_at_offset = log.log_end_offset
        self.batches_in = self.bytes_in = self.bytes_out = 0
        self.configure(config, is_only_copy=is_only_copy)
        if high_watermark is None:
            self.high_watermark = log.flushed_offset if self.flush_before_ack else log.log_end_offset
        else:
            self.high_watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        self._learn_undecided()
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

    @property
    def is_only_copy(self) -> bool:
        """Whether no other replica is in sync with this one."""
        return self.is_leader and (self.in_sync is None or self.in_sync.is_alone)

    def reconfigure(self, config: TopicConfig) -> None:
        """Settings, or the replicas in sync, changed under a partition that is in use."""
        self.configure(config, is_only_copy=self.is_only_copy)
        if self.flush_before_ack:
            if self.log.unflushed:
                # What readers have seen already is brought to the disk, so that from here on the promise holds for all.
                self.flusher.flush_soon(self.log)
        elif self.waiting_flushes:
            # Nobody waits for the disk any longer, nor may anybody be left waiting: the next flush moves nothing.
            _serve(self.waiting_flushes, self.log.log_end_offset)
        if self.is_leader:
            self.recount()

    @property
    def records_in(self) -> int:
        """Records that were appended since this process opened the log."""
        return self.log.log_end_offset - self.opened_at_offset

    # Roles

    def make_leader(
        self,
        node_id: int,
        *,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Iterable[int],
        isr: Iterable[int],
        lag_max_s: float,
        is_eligible: IsEligible,
        eligible: Iterable[int] = (),
    ) -> bool:
        """The metadata log says that this node leads; whether that is the beginning of an epoch."""
        if partition_epoch < self.partition_epoch or leader_epoch < self.leader_epoch:
            return False
        replicas, isr, eligible, now = tuple(replicas), tuple(isr), tuple(eligible), self.runtime.monotonic()
        begins = leader_epoch > self.leader_epoch or not self.is_leader or self.leader_id == NO_LEADER
        in_sync = None if begins else self.in_sync
        self.leader_id, self.leader_epoch, self.partition_epoch = node_id, leader_epoch, partition_epoch
        self.is_leader = True
        if begins:
            # What is there now was written by others, and counts when everybody who might lead has it.
            self.epoch_start_offset = self.log.log_end_offset
            # Followers ask again in the new epoch; what they said in the old one is not known of this log.
            self._send_away(self.append_listeners)
            self._send_away(self.advance_listeners)
        if len(replicas) <= 1:
            in_sync = None
        elif in_sync is None:
            in_sync = InSyncReplicas(
                node_id,
                replicas=replicas,
                isr=isr,
                leader_epoch=leader_epoch,
                partition_epoch=partition_epoch,
                epoch_start_offset=self.epoch_start_offset,
                lag_max_s=lag_max_s,
                is_eligible=is_eligible,
                now=now,
                eligible=eligible,
            )
        else:
            in_sync.on_metadata(replicas=replicas, isr=isr, partition_epoch=partition_epoch, now=now, eligible=eligible)
        self.in_sync = in_sync
        self._on_in_sync_changed()
        self._maybe_confirm()
        return begins

    def make_follower(self, leader_id: int, *, leader_epoch: int, partition_epoch: int) -> bool:
        """The metadata log says that another node leads, or none; whether the leader's epoch, or our role, is new."""
        if partition_epoch < self.partition_epoch or leader_epoch < self.leader_epoch:
            return False
        changes = leader_epoch > self.leader_epoch or self.is_leader or leader_id != self.leader_id
        self.leader_id, self.leader_epoch, self.partition_epoch = leader_id, leader_epoch, partition_epoch
        if changes:
            self.is_leader = False
            self.in_sync = None
            self.in_sync_count = 0
            self.is_watched = False
            self.configure(self.config, is_only_copy=False)
            self.abandon(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return changes

    def _on_in_sync_changed(self) -> None:
        """The replicas in sync, or those that may be, have changed: that decides what counts."""
        in_sync = self.in_sync
        self.in_sync_count = 1 if in_sync is None else len(in_sync.isr)
        self.reconfigure(self.config)
        if in_sync is not None:
            if self.is_under_min_in_sync:
                self._refuse_uncommitted()
            if not self.is_watched and (in_sync.is_short or in_sync.is_behind(self.log.log_end_offset)):
                self._watch()

    def _refuse_uncommitted(self) -> None:
        """Nothing is committed until others are back, and nobody knows when: producers are told to try again.

        Coordinators are not: they answer for what is in the log, and go on waiting for it.
        """
        waiting = list(self.waiting_produces)
        self.waiting_produces.clear()
        for commits_at, listener in waiting:
            if isinstance(listener, InternalCommit):
                self.waiting_produces.append((commits_at, listener))
            else:
                listener.on_commit(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def _watch(self) -> None:
        self.is_watched = True
        self.on_lag(self)

    @property
    def is_under_min_in_sync(self) -> bool:
        """Whether too few replicas are in sync for anything to be committed (KIP-966)."""
        in_sync = self.in_sync
        return in_sync is not None and len(in_sync.isr) < min(self.config.min_insync_replicas, len(in_sync.replicas))

    def recount(self) -> None:
        """Move the high watermark to where it may be by now."""
        in_sync = self.in_sync
        if in_sync is None:
            self.advance(self.acknowledged_offset)
        elif not in_sync.eligible and not self.is_under_min_in_sync:
            # Not while somebody out of sync might be elected, who was put out behind our back: see `_maybe_confirm`.
            self.advance(in_sync.high_watermark(self.acknowledged_offset))

    def on_follower_fetch(self, follower_id: int, offset: int, *, log_start_offset: int, broker_epoch: int) -> None:
        """A follower holds everything below `offset`: its log was compared with ours, by epochs, up to there."""
        in_sync = self.in_sync
        assert in_sync is not None
        in_sync.now = self.runtime.monotonic()
        in_sync.on_fetch(
            in_sync.followers[follower_id],
            offset,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            end_offset=self.log.log_end_offset,
        )
        if offset > self.high_watermark:
            self.recount()
        if self.waiting_trims:
            self.serve_trims()
        if in_sync.is_short and in_sync.proposed is None:
            self._maybe_propose(in_sync.maybe_expand(self.high_watermark))

    def on_follower_lost(self, follower_id: int) -> None:
        """Stop counting on a follower that has lost records; it is out of sync when it has lagged for long enough."""
        in_sync = self.in_sync
        assert in_sync is not None
        in_sync.followers[follower_id].end_offset = UNKNOWN_OFFSET
        if not self.is_watched:
            self._watch()

    @property
    def low_watermark(self) -> int:
        """Below it no replica that is there has records."""
        return self.log_start_offset if self.in_sync is None else self.in_sync.low_watermark(self.log_start_offset)

    def when_trimmed(self, offset: int, listener: CommitListener) -> None:
        """Tell `listener` when no replica that is there holds records below `offset`."""
        self.waiting_trims.append((offset, listener))
        self.serve_trims()

    def serve_trims(self) -> None:
        low_watermark = self.low_watermark
        waiting, self.waiting_trims = self.waiting_trims, []
        for offset, listener in waiting:
            if offset <= low_watermark:
                listener.on_commit(0)
            else:
                self.waiting_trims.append((offset, listener))

    def look_after(self, now: float) -> bool:
        """See whether a replica has fallen behind, or may come in; whether to look again later."""
        in_sync = self.in_sync
        if in_sync is None or self.log.failure is not None:
            self.is_watched = False
            return False
        end_offset = self.log.log_end_offset
        self._maybe_propose(in_sync.maybe_shrink(end_offset, now, may_be_alone=self._may_be_alone))
        self._maybe_propose(in_sync.maybe_expand(self.high_watermark))
        self._maybe_confirm()
        # Time alone may move it: a follower that was waited for came no longer.
        self.recount()
        if self.waiting_trims:
            self.serve_trims()
        self.is_watched = in_sync.is_short or in_sync.proposed is not None or in_sync.is_behind(end_offset)
        return self.is_watched

    def _maybe_confirm(self) -> None:
        """Have the controller know that we know who is in sync, where it waits for that; then we count alone."""
        in_sync = self.in_sync
        if in_sync is not None and in_sync.eligible and not self.is_under_min_in_sync and self._may_be_alone():
            self._maybe_propose(in_sync.maybe_confirm())

    def _may_be_alone(self) -> bool:
        """Whether nobody else need hold what is committed. `flush.mode=auto` left it to others while there were any: it
        is brought to the disk first, or a power cut right then would take it from the only copy that counts."""
        if self.config.flush_mode != "auto" or self.log.flushed_offset >= self.high_watermark:
            return True
        self.flusher.flush_soon(self.log)
        return False

    def _maybe_propose(self, proposal: Proposal | None) -> None:
        if proposal is not None:
            self._on_in_sync_changed()
            self.on_proposal(self, proposal)

    def on_proposal_answered(
        self,
        proposal: Proposal,
        error_code: int,
        *,
        leader_epoch: int = -1,
        partition_epoch: int = -1,
        isr: Iterable[int] = (),
    ) -> bool:
        """What the controller made of a proposal; whether to make it again."""
        in_sync = self.in_sync
        if in_sync is None or proposal is not in_sync.proposed:
            return False
        again = in_sync.on_proposal_answered(
            proposal, error_code, leader_epoch=leader_epoch, partition_epoch=partition_epoch, isr=isr
        )
        self.partition_epoch = max(self.partition_epoch, in_sync.partition_epoch)
        self._on_in_sync_changed()
        return again

    # Writing

    def append(
        self,
        batch: memoryview | bytearray,
        now_ms: int,
        *,
        is_opened: bool = False,
        guard: VerificationGuard | None = None,
    ) -> tuple[int, int, int]:
        """Store a producer's batch: (base offset, the high watermark that commits it, append time or -1).

        A batch that is here already is not stored again; the producer is told where it is. Raises StrandlineError with
        nothing changed; OpensLater if the batch must go through a `Reencoder` first and come back with `is_opened`.
        `guard` is what `begin_verification` returned, if the request names a transaction, and the coordinator, if it
        was to be asked, has said yes.
        """
        if self.log.failure is not None:
            # Before anything else: a retry of a batch that is here would wait for a high watermark that moves no more.
            raise self.log.refusal()
        if not self.is_leader:
            raise NotLeader(f"{self.topic}-{self.index} is led by node {self.leader_id}")
        config = self.config
        header = check_batch(batch)
        if len(batch) > config.max_message_bytes:
            raise BatchTooLarge(
                f"a batch of {len(batch)} bytes; max.message.bytes of {self.topic} is {config.max_message_bytes}"
            )
        producers = self.producers
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
                    known = producers.check(
                        producer_id, producer_epoch, base_sequence, (base_sequence + last_offset_delta) & 0x7FFFFFFF
                    )
            except OutOfOrderSequence as gap:
                if producers.is_behind_refused(producer_id, producer_epoch, base_sequence, now_ms):
                    raise BehindRefused(str(gap)) from None
                raise
            if known is not None:
                return known, known + last_offset_delta + 1, -1
            if producer_id not in producers.entries:
                producers.check_room(now_ms)
        if not is_opened:
            opened = opened_now(batch, header, config)
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
            raise InvalidTimestamp(
                f"timestamps {header[BASE_TIMESTAMP]} to {header[MAX_TIMESTAMP]} are outside what {self.topic} accepts"
                f" at {now_ms}"
            )
        base_offset = self.log.append(batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        last_offset = base_offset + last_offset_delta
        if producer_id >= 0:
            max_timestamp = header[MAX_TIMESTAMP]
            producers.note(
                producer_id, producer_epoch, base_sequence, last_offset, last_offset_delta, max_timestamp, now_ms
            )
            if is_transactional and (guard is not ONGOING or producer_id not in producers.open_transactions):
                producers.note_transactional(producer_id, base_offset)
        self._appended(len(batch))
        return base_offset, last_offset + 1, append_time_ms

    def note_refused(self, batch: Buffer, now_ms: int, code: int, *, is_checked: bool = False) -> None:
        """Note that a batch was refused. If it may come again, what its producer sent behind it must not be stored
        before it.

        `batch` may be the header alone if `is_checked` says that the checksum was right.
        """
        if code in COMES_AGAIN and len(batch) >= HEADER_SIZE:
            self.producers.note_refused_batch(batch, now_ms, is_checked=is_checked)

    def read_all(self) -> Iterator[bytes]:
        """Every batch of the log, for a coordinator that loads its state."""
        return self.log.batches()

    def is_committed(self) -> bool:
        """Whether everything in the log is below the high watermark."""
        return self.high_watermark >= self.log.log_end_offset

    def _appended(self, size_bytes: int) -> None:
        self._unseen_bytes += size_bytes
        self.bytes_in += size_bytes
        self.batches_in += 1
        log, in_sync = self.log, self.in_sync
        if in_sync is not None:
            for listener in self.append_listeners:
                listener.on_append(size_bytes)
            if not self.is_watched:
                self._watch()
        if self.flush_before_ack:
            self.flusher.flush_soon(log)
            return
        if log.log_end_offset - log.flushed_offset >= self.config.flush_messages:
            self.flusher.flush_soon(log)
        if in_sync is None:
            self.advance(log.log_end_offset)
        elif in_sync.is_alone:
            self.recount()

    def when_committed(self, high_watermark: int, listener: CommitListener) -> None:
        """Tell `listener` when the high watermark has reached `high_watermark`."""
        self.waiting_produces.append((high_watermark, listener))

    def when_flushed(self, offset: int, listener: CommitListener) -> None:
        """Tell `listener` when everything below `offset` is on this node's disk: what acks=1 asks of `flush.mode`."""
        self.waiting_flushes.append((offset, listener))

    def _on_flush_wanted(self) -> None:
        self.flusher.flush_soon(self.log)

    def _on_flushed(self) -> None:
        if self.waiting_flushes:
            _serve(self.waiting_flushes, self.log.flushed_offset)
        if self.flush_before_ack and self.is_leader:
            self.recount()
        if self.in_sync is not None and self.in_sync.eligible:
            self._maybe_confirm()

    def advance(self, high_watermark: int) -> None:
        """Readers may see up to `high_watermark` from now on; it never goes back."""
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        completed = self.producers.completed
        if completed and completed[0][0] < high_watermark:
            self.producers.on_high_watermark(high_watermark)
            # With a marker all that its transaction held back may be seen, however few bytes came last.
            self._unseen_bytes = LOOK_BYTES
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

    @property
    def acknowledged_offset(self) -> int:
        """Below it this node holds everything, as `flush.mode` understands that."""
        return self.log.flushed_offset if self.flush_before_ack else self.log.log_end_offset

    # Ending

    def _on_failed(self, error: StrandlineError) -> None:
        self.abandon(int(error.code))
        self.on_failed(self, error)

    def abandon(self, error_code: int) -> None:
        """The partition is gone from this node, or led by another, or its log failed: nobody waits here any longer."""
        trims, self.waiting_trims = self.waiting_trims, []
        for _, listener in trims:
            listener.on_commit(error_code)
        for waiting in (self.waiting_produces, self.waiting_flushes):
            while waiting:
                waiting.popleft()[1].on_commit(error_code)
        self._send_away(self.append_listeners)
        self._send_away(self.advance_listeners)

    def on_cut(self, old_end_offset: int) -> None:
        """The log ends, or begins, elsewhere: a follower was cut."""
        log = self.log
        self.opened_at_offset += log.log_end_offset - old_end_offset
        while self.waiting_flushes:
            # What was waited for is gone.
            self.waiting_flushes.popleft()[1].on_commit(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not log.log_start_offset <= self.high_watermark <= log.log_end_offset:
            # Only after an unclean election, or where the leader's log begins later: readers are told by the epoch.
            self.high_watermark = max(log.log_start_offset, min(self.high_watermark, log.log_end_offset))
            self._send_away(self.advance_listeners)
        self._learn_undecided()

    def on_fetched(self, size_bytes: int, record_count: int) -> None:
        """A follower's log has grown. What was fetched came in at the leader, and is counted there."""
        self.opened_at_offset += record_count
        self._unseen_bytes += size_bytes
        log = self.log
        if self.flush_before_ack or log.log_end_offset - log.flushed_offset >= self.config.flush_messages:
            self.flusher.flush_soon(log)

    def _send_away(self, listeners: Iterable[AdvanceListener | AppendListener]) -> None:
        """Readers look again: for who leads, in which epoch, and how much may be seen."""
        for listener in list(listeners):
            listener.on_gone()


def _serve(waiting: deque[tuple[int, CommitListener]], offset: int) -> None:
    while waiting and waiting[0][0] <= offset:
        waiting.popleft()[1].on_commit(0)
