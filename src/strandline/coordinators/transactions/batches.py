"""CommitBatch: the driver of a sink has the transactions of a batch committed, all of them or none, and once.

One record says what is decided (`BatchDecision`): it is the only way in which a transaction of a sink is committed, and
a sink has one for each batch at most. The state of each transactional id follows from it, here and in a coordinator
that loads the log (`apply`). Each id then gets its own Prepare record, some in each step (`roll`), and continues like
any other transaction. The next decision of the sink waits until all of these are appended, because compaction keeps
only the last decision.

A commit by decision raises no epoch, whichever version of transactions the producers speak: who tells them is their
own EndTxn, later. An abort fences the producer, as everywhere.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from strandline.codec.messages.commit_batch_request import CommitBatchRequest
from strandline.codec.messages.commit_batch_response import CommitBatchResponse
from strandline.codec.messages.delete_sink_response import DeleteSinkResponse
from strandline.coordinators.transactions.ending import VERSION_WITH_EPOCHS, must_rotate, spread
from strandline.coordinators.transactions.events import (
    CommitBatch,
    DeleteSink,
    TransactionTimer,
    TransactionTimerKind,
)
from strandline.coordinators.transactions.sink_records import decision_record, sink_tombstone
from strandline.coordinators.transactions.sinks import (
    ANY_BATCH,
    NEVER,
    NO_BATCH,
    NO_NOTE,
    BatchDecision,
    BatchedSink,
    TaskTransaction,
)
from strandline.coordinators.transactions.step_context import Transactions, TransactionStepContext
from strandline.coordinators.transactions.transaction import UNFINISHED, Transaction, TransactionStatus
from strandline.coordinators.transactions.transaction_records import tombstone
from strandline.errors import ErrorCode
from strandline.ids import SINK_END, sink_of

SINK_ID_CHARACTERS_MAX: Final = 200
"""Of a sink id: a transactional id begins with it."""
TRANSACTIONS_MAX: Final = 5_000
"""Of one batch. The record that names them is a quarter of what a record may be, then."""
NOTE_BYTES_MAX: Final = 524_288
"""Of what the driver has kept with a batch: as many transactions as there may be fit beside it."""
ROLLED_PER_STEP_MAX: Final = 200
"""Transactional ids that get their Prepare record in one step."""
ROLLED_PARTITIONS_PER_STEP_MAX: Final = 2_000
"""Partitions of these; one transaction may have more."""

ROLL_KEY: Final = TransactionTimer(TransactionTimerKind.ROLL, "")


# ---- the request


def commit_batch(event: CommitBatch, step: TransactionStepContext) -> None:
    request = event.request
    sink = step.known.sinks.get(request.sink_id)
    last_batch_id = NO_BATCH if sink is None else sink.last_batch_id
    if len(request.transactions) > TRANSACTIONS_MAX:
        sentence = f"{len(request.transactions)} transactions are too many, {TRANSACTIONS_MAX} can be decided at once"
        refuse(event, ErrorCode.MESSAGE_TOO_LARGE, sentence, step)
    elif len(request.note) > NOTE_BYTES_MAX:
        sentence = f"a note of {len(request.note)} bytes is too large, {NOTE_BYTES_MAX} are kept"
        refuse(event, ErrorCode.MESSAGE_TOO_LARGE, sentence, step)
    elif wrong := what_is_wrong(request):
        refuse(event, ErrorCode.INVALID_REQUEST, wrong, step)
    elif request.batch_id < last_batch_id:
        # Not `already_committed`: a driver that is behind by more than one batch works from an old state, and has not
        # written what was committed under this number.
        sentence = f"batch {request.batch_id} of sink {request.sink_id} is over: batch {last_batch_id} was committed"
        refuse(event, ErrorCode.PRODUCER_FENCED, sentence, step)
    elif sink is not None and request.batch_id == last_batch_id:
        abort_listed(request, sink, step)
        step.reply(event.token, CommitBatchResponse(already_committed=True, last_batch_id=last_batch_id))
    elif is_rolling(sink, step.known):
        refuse(event, ErrorCode.CONCURRENT_TRANSACTIONS, "the batch before is being committed", step)
    elif request.expected_last_batch_id not in (ANY_BATCH, last_batch_id):
        sentence = f"batch {last_batch_id} was the last of sink {request.sink_id}, not {request.expected_last_batch_id}"
        refuse(event, ErrorCode.PRODUCER_FENCED, sentence, step)
    elif not_open := what_is_not_open(request, step.known):
        refuse(event, ErrorCode.INVALID_TXN_STATE, not_open, step)
    else:
        decide(event, step)


def what_is_wrong(request: CommitBatchRequest) -> str:
    """Return what is wrong with the request, regardless of the state; empty if nothing is."""
    if not is_sink_id(request.sink_id):
        return f"a sink has 1 to {SINK_ID_CHARACTERS_MAX} characters, without {SINK_END}"
    if request.batch_id < 0:
        return f"{request.batch_id} is no number of a batch"
    listed: set[str] = set()
    for each in request.transactions:
        if sink_of(each.transactional_id) != request.sink_id:
            return f"{each.transactional_id} is no transactional id of sink {request.sink_id}"
        if each.transactional_id in listed:
            return f"{each.transactional_id} is listed twice"
        listed.add(each.transactional_id)
    return ""


def is_sink_id(sink_id: str) -> bool:
    return 0 < len(sink_id) <= SINK_ID_CHARACTERS_MAX and SINK_END not in sink_id


def is_rolling(sink: BatchedSink | None, known: Transactions) -> bool:
    """Return whether not all of the last decision is carried out."""
    if sink is None or not known.unrolled:
        return False
    return any(transactional_id in sink.transactional_ids for transactional_id in known.unrolled)


def what_is_not_open(request: CommitBatchRequest, known: Transactions) -> str:
    for each in request.transactions:
        transaction = known.by_id.get(each.transactional_id)
        if not is_open(transaction, each.producer_id, each.producer_epoch):
            found = "it is unknown" if transaction is None else f"it is {in_words(transaction)}"
            return (
                f"{each.transactional_id} has no open transaction of producer {each.producer_id}, "
                f"epoch {each.producer_epoch}: {found}"
            )
    return ""


def in_words(transaction: Transaction) -> str:
    return f"{transaction.status.title}, producer {transaction.producer_id}, epoch {transaction.producer_epoch}"


def is_open(transaction: Transaction | None, producer_id: int, producer_epoch: int) -> bool:
    return (
        transaction is not None
        and transaction.status is TransactionStatus.ONGOING
        and (transaction.producer_id, transaction.producer_epoch) == (producer_id, producer_epoch)
    )


def refuse(event: CommitBatch, code: ErrorCode, sentence: str, step: TransactionStepContext) -> None:
    sink = step.known.sinks.get(event.request.sink_id)
    last_batch_id = NO_BATCH if sink is None else sink.last_batch_id
    step.reply(event.token, CommitBatchResponse(error_code=code, error_message=sentence, last_batch_id=last_batch_id))


# ---- the decision


def decide(event: CommitBatch, step: TransactionStepContext) -> None:
    request = event.request
    members = tuple(
        TaskTransaction(each.transactional_id, each.producer_id, each.producer_epoch) for each in request.transactions
    )
    # Out of the frame, which is not kept.
    decision = BatchDecision(request.sink_id, request.batch_id, step.now_ms, members, bytes(request.note))
    record = decision_record(decision)
    if record.size_bytes > step.config.record_bytes_max:
        beside = f" with a note of {len(request.note)} bytes" if request.note else ""
        sentence = f"{len(members)} transactions{beside} are more than one record holds"
        refuse(event, ErrorCode.MESSAGE_TOO_LARGE, sentence, step)
        return
    step.append(record)
    aborted = apply(decision, step.known, transaction_version=step.config.transaction_version)
    # Before the records that follow from it, which may be many. Those of this turn go with it into one batch.
    step.reply(event.token, CommitBatchResponse(last_batch_id=decision.batch_id))
    if aborted:
        step.tell(
            f"sink {request.sink_id}: batch {request.batch_id} is committed without {aborted} open transactions",
            {"sink_id": request.sink_id, "batch_id": request.batch_id, "aborted": aborted, "committed": len(members)},
        )
    roll(step)


def apply(decision: BatchDecision, known: Transactions, *, transaction_version: int) -> int:
    """Apply a decision to each transactional id; return how many transactions it aborts.

    The log before it says what was open, or says nothing of an id any more: then a later record does, which comes later
    here, too, and takes the place of what this one says.
    """
    sink = known.sink(decision.sink_id)
    sink.last_batch_id, sink.decided_ms, sink.note = decision.batch_id, decision.decided_ms, decision.note
    sink.committed = {member.producer_id: member.producer_epoch for member in decision.members}
    members = {member.transactional_id: member for member in decision.members}
    aborted = 0
    for transactional_id in sink.transactional_ids:
        transaction = known.by_id[transactional_id]
        if transaction.status is not TransactionStatus.ONGOING:
            continue
        member = members.get(transactional_id)
        if member is None:
            aborted += 1
            prepare(known, aborted_by_sink(transaction, decision.decided_ms, transaction_version))
        elif is_open(transaction, member.producer_id, member.producer_epoch):
            prepare(known, transaction.prepared(is_commit=True, transaction_version=0, now_ms=decision.decided_ms))
    return aborted


def aborted_by_sink(transaction: Transaction, now_ms: int, transaction_version: int) -> Transaction:
    """Its producer is locked out by the next epoch, which is always there: no client gets the last one."""
    if transaction_version < VERSION_WITH_EPOCHS or must_rotate(transaction, transaction_version):
        return transaction.fenced().prepared(is_commit=False, transaction_version=0, now_ms=now_ms)
    return transaction.prepared(is_commit=False, transaction_version=transaction_version, now_ms=now_ms)


def prepare(known: Transactions, transaction: Transaction) -> None:
    """Set the state of the transaction; its record follows."""
    known.by_id[transaction.transactional_id] = transaction
    known.unrolled[transaction.transactional_id] = None


def roll(step: TransactionStepContext) -> None:
    """Write the next share of the records that follow from decisions, and have the markers written."""
    unrolled = step.known.unrolled
    partitions = 0
    for transactional_id in list(islice(unrolled, ROLLED_PER_STEP_MAX)):
        transaction = step.known.by_id[transactional_id]
        if partitions and partitions + len(transaction.partitions) > ROLLED_PARTITIONS_PER_STEP_MAX:
            break
        partitions += len(transaction.partitions)
        del unrolled[transactional_id]
        step.put(transaction)
        spread(transaction, step)
    if unrolled:
        step.start_timer(ROLL_KEY, 0)


def abort_listed(request: CommitBatchRequest, sink: BatchedSink, step: TransactionStepContext) -> None:
    """Abort what another attempt wrote for a batch that is committed: it counts for nothing, and holds back readers.

    A late copy of the request that was decided names transactions that are committed. If one is open with the same
    epoch, it is of a later batch: producers of version 1 keep their epoch, and each attempt has producers of its own.
    """
    known = step.known
    for each in request.transactions:
        if sink.committed.get(each.producer_id) == each.producer_epoch:
            continue
        transaction = known.by_id.get(each.transactional_id)
        if transaction is not None and is_open(transaction, each.producer_id, each.producer_epoch):
            prepare(known, aborted_by_sink(transaction, step.now_ms, step.config.transaction_version))
    roll(step)


# ---- the end of a sink


def delete_sink(event: DeleteSink, step: TransactionStepContext) -> None:
    """Its open transactions are aborted, its ids go as soon as nothing is under way, and what was decided goes."""
    known = step.known
    sink = known.sinks.get(event.sink_id)
    if sink is None:
        step.reply(event.token, DeleteSinkResponse(was_known=False))
        return
    if is_rolling(sink, known):
        sentence = "the last batch is being committed"
        code = ErrorCode.CONCURRENT_TRANSACTIONS
        step.reply(event.token, DeleteSinkResponse(error_code=code, error_message=sentence, was_known=True))
        return
    for transactional_id in list(sink.transactional_ids):
        transaction = known.by_id[transactional_id]
        if transaction.status not in UNFINISHED:
            step.append(tombstone(transactional_id))
            known.forget(transactional_id)
            continue
        known.leaving[transactional_id] = None
        if transaction.status is TransactionStatus.ONGOING:
            prepare(known, aborted_by_sink(transaction, step.now_ms, step.config.transaction_version))
    if sink.is_decided:
        step.append(sink_tombstone(event.sink_id))
        forget_decision(event.sink_id, known)
    step.reply(event.token, DeleteSinkResponse(was_known=True))
    roll(step)


def forget_decision(sink_id: str, known: Transactions) -> None:
    sink = known.sinks.get(sink_id)
    if sink is not None:
        sink.last_batch_id, sink.decided_ms, sink.note, sink.committed = NO_BATCH, NEVER, NO_NOTE, {}
        known.maybe_forget_sink(sink_id)


def on_completed(transactional_id: str, step: TransactionStepContext) -> None:
    """One of a sink that was deleted meanwhile is forgotten."""
    if transactional_id in step.known.leaving:
        step.append(tombstone(transactional_id))
        step.known.forget(transactional_id)
