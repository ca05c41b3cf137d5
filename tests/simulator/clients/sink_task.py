"""The producers of a sink in the simulation: each writes for a task and leaves its transaction open.

Before it is used again it says EndTxn(commit), as a worker does. A yes means that its transaction was committed, by
any decision; with anything else it is thrown away, or another producer takes its id over.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulator.clients.sink_batch import SimBatch
from tests.simulator.clients.transaction import SimTransaction
from tests.simulator.clients.transactional import NEW, Script, SimTransactional

from strandline.codec.messages.commit_batch_request import CommitBatchRequest, SinkTransaction
from strandline.codec.messages.commit_batch_response import CommitBatchResponse
from strandline.codec.messages.end_txn_request import EndTxnRequest
from strandline.codec.messages.end_txn_response import EndTxnResponse
from strandline.errors import ErrorCode


class SinkProducer(SimTransactional):
    batch: SimBatch | None = None
    """For which it wrote last; it is undecided, as far as it knows."""
    is_listed = False
    has_written = False
    """Whether all of its last transaction is written."""

    def _transact(self, transaction: SimTransaction, then: Callable[[SimTransaction], object]) -> Script:
        self.has_written = False
        if self._must_begin_anew:
            yield from self._initialise()
        if not self.is_fenced:
            transaction.begun_ns = self.client.history.now_ns()
            is_written = yield from self._write(transaction)
            self.has_written = bool(is_written)
        self.is_busy = False
        then(transaction)

    def begin_anew(self) -> None:
        """Take the id over: its present owner is fenced, and its open transaction is aborted."""
        self.producer_id = self.epoch = -1
        self._must_begin_anew = True
        self.is_fenced = False

    @property
    def identity(self) -> SinkTransaction:
        return SinkTransaction(self.transactional_id, self.producer_id, self.epoch)

    def close(self, then: Callable[[bool], object]) -> None:
        """Find out whether it is free."""
        assert not self.is_busy
        self.is_busy = True
        self._go_on(self._close(then), None)

    def _close(self, then: Callable[[bool], object]) -> Script:
        producer_id, epoch = self.producer_id, self.epoch
        request = EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        answer = yield from self._ask_coordinator(request, 5 if self.speaks == NEW else 4, EndTxnResponse)
        self.is_busy = False
        is_committed = answer.error_code == ErrorCode.NONE
        if is_committed:
            self._learn_commit(producer_id, epoch)
            if self.speaks == NEW:
                self.truth.on_given(self.process, self.transactional_id, answer.producer_id, answer.producer_epoch)
                self._adopt(answer.producer_id, answer.producer_epoch)
        self._maybe_send_late()
        then(is_committed)

    def _learn_commit(self, producer_id: int, epoch: int) -> None:
        self.truth.on_ended(self.transactional_id, producer_id, epoch, is_commit=True)
        batch, history = self.batch, self.client.history
        assert batch is not None
        if not self.is_listed or not batch.may_count:
            history.surprises.append(f"{self.transactional_id} is committed, and batch {batch.batch_id} has it not")
        elif batch.outcome == "info" and batch.ended_ns is not None:
            batch.end("ok", batch.ended_ns)


class BatchCommitter(SimTransactional):
    """Sends CommitBatch, again and again until there is an answer that counts."""

    def commit(
        self, batch: SimBatch, request: CommitBatchRequest, then: Callable[[CommitBatchResponse], object]
    ) -> None:
        self._go_on(self._commit(batch, request, then), None)

    def _commit(
        self, batch: SimBatch, request: CommitBatchRequest, then: Callable[[CommitBatchResponse], object]
    ) -> Script:
        history = self.client.history
        batch.asked_ns = history.now_ns()
        self._is_unsure = False
        answer = yield from self._ask_coordinator(request, 0, CommitBatchResponse)
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE and not answer.already_committed:
            self.truth.on_batch_told(request.sink_id, request.batch_id)
            batch.end("ok", history.now_ns())
        else:
            # A request without an answer may have been carried out, and be the reason.
            batch.end("info" if self._is_unsure else "fail", history.now_ns(), code.name)
        self._maybe_send_late()
        then(answer)
