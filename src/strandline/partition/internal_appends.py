"""What the node itself writes into a partition: its coordinators' records, and the markers that end transactions."""

from __future__ import annotations

from collections.abc import Callable

from strandline.codec.record_batch import (
    ATTRIBUTES,
    HEADER,
    LAST_OFFSET_DELTA,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
    HeaderFields,
    stamp_append_time,
)
from strandline.codec.transaction_marker import encode_marker
from strandline.config.topic_config import TopicConfig
from strandline.errors import ErrorCode, NotLeader, RequestError
from strandline.log.log_replay import learn_marker, learn_markers
from strandline.log.segment.segment_counts import count_marker
from strandline.partition.delayed_operations import CommitListener
from strandline.partition.reading import ReadablePartition
from strandline.partition.transactions import check_epoch, check_marker, check_verified
from strandline.partition.verification import ONGOING, VerificationGuard

OnCommitted = Callable[[Exception | None], None]


class InternalAppends(ReadablePartition):
    __slots__ = ("config", "in_sync_count", "is_leader", "leader_id", "verifies_transactions")

    config: TopicConfig
    is_leader: bool
    leader_id: int
    in_sync_count: int
    verifies_transactions: Callable[[], bool]
    """Whether a transaction begins here only if its coordinator knows of it: a setting, which may change."""

    @property
    def is_under_min_in_sync(self) -> bool:
        """Whether too few replicas are in sync for anything to be committed."""
        raise NotImplementedError

    def when_committed(self, high_watermark: int, listener: CommitListener) -> None:
        raise NotImplementedError

    def _appended(self, size_bytes: int) -> None:
        """The log has grown: have it flushed and replicated."""
        raise NotImplementedError

    def append_internal(
        self,
        batch: bytes,
        on_committed: OnCommitted,
        *,
        guard: VerificationGuard | None = None,
    ) -> None:
        """Store a batch of the node's own (a coordinator's records), and call back when it is committed.

        One that is transactional (offsets of a transaction) has no sequence. It begins a transaction of its producer
        here, if none is open: with the guard that `begin_verification` returned before the coordinator was asked.
        """
        self._check_internal()
        owned = bytearray(batch)
        header: HeaderFields = HEADER.unpack_from(owned)
        is_transactional = header[ATTRIBUTES] & TRANSACTIONAL
        producer_id, epoch = header[PRODUCER_ID], header[PRODUCER_EPOCH]
        if is_transactional and not self.producers.has_open_transaction(producer_id, epoch):
            check_verified(self.producers, producer_id, epoch, guard, verifies=self.verifies_transactions)
        now_ms = self.runtime.now_ms()
        base_offset = self.log.append(owned, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if is_transactional:
            self.producers.note_header(HEADER.unpack_from(owned), now_ms)
        self._appended_internal(owned, base_offset + header[LAST_OFFSET_DELTA] + 1, on_committed)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
        on_committed: OnCommitted,
    ) -> None:
        """End the producer's transaction here, as its coordinator decided, and call back when that is committed.

        Raises StrandlineError with nothing changed: InvalidProducerEpoch, or the code TRANSACTION_COORDINATOR_FENCED or
        NOT_ENOUGH_REPLICAS, among others.
        """
        self._check_internal()
        if self.log.failure is not None:
            raise self.log.refusal()
        check_marker(
            self.producers,
            producer_id,
            producer_epoch,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        batch = encode_marker(
            producer_id,
            producer_epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
        )
        header: HeaderFields = HEADER.unpack_from(batch)
        if self.config.log_append_time:
            header = stamp_append_time(batch, header, now_ms)
        base_offset = self.log.append(batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        learn_marker(self.log, HEADER.unpack_from(batch), batch, self.log.active)
        count_marker(self.log.active, base_offset, len(batch))
        self._appended_internal(batch, base_offset + 1, on_committed)

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, supports_epoch_bump: bool = False
    ) -> VerificationGuard:
        """What to append a transactional batch with: `ONGOING` if the transaction is open here, and nobody has to be
        asked; else a guard, to be used once the coordinator has said yes. It is void when a marker came in between.

        `supports_epoch_bump` says that the client has an epoch for each transaction (Produce 12+, TxnOffsetCommit 5+).
        """
        check_epoch(self.producers, producer_id, epoch)
        if self.producers.has_open_transaction(producer_id, epoch):
            return ONGOING
        return self.producers.verifications.begin(
            producer_id, epoch, sequence, supports_epoch_bump=supports_epoch_bump, now_ms=self.runtime.now_ms()
        )

    def _check_internal(self) -> None:
        if not self.is_leader:
            raise NotLeader(f"{self.topic}-{self.index} is led by node {self.leader_id}")
        if self.is_under_min_in_sync:
            raise RequestError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.in_sync_count} replicas are in sync: {self!r}")

    def _appended_internal(self, batch: bytearray, commits_at: int, on_committed: OnCommitted) -> None:
        self._appended(len(batch))
        if self.high_watermark >= commits_at:
            on_committed(None)
        else:
            self.when_committed(commits_at, InternalCommit(on_committed))

    def _learn_undecided(self) -> None:
        """A log was opened or cut: know again which markers above the high watermark end which transactions."""
        learn_markers(self.log, self.high_watermark)
        self.producers.on_high_watermark(self.high_watermark)


class InternalCommit:
    __slots__ = ("_on_committed",)

    def __init__(self, on_committed: OnCommitted) -> None:
        self._on_committed = on_committed

    def on_commit(self, error_code: int) -> None:
        self._on_committed(RequestError(ErrorCode(error_code), "the append was not committed") if error_code else None)
