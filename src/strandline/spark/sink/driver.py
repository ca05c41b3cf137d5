"""The driver's end of a batch: one request that decides everything that its tasks wrote.

The coordinator of the sink commits the listed transactions and aborts every other open one of the sink by one record,
and does so once for each batch. So a driver that got no answer asks again. One that was started again
writes the batch again and is told that it was committed before.

Spark has a process for it that begins with nothing loaded, so nothing of Arrow is imported here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from strandline.client.coordinators import ask_coordinator
from strandline.client.failures import ClientFailed
from strandline.codec.messages.commit_batch_request import CommitBatchRequest, SinkTransaction
from strandline.codec.messages.commit_batch_response import CommitBatchResponse
from strandline.codec.messages.delete_sink_request import DeleteSinkRequest
from strandline.codec.messages.delete_sink_response import DeleteSinkResponse
from strandline.codec.messages.end_txn_request import EndTxnRequest
from strandline.codec.messages.end_txn_response import EndTxnResponse
from strandline.codec.messages.list_sinks_request import ListSinksRequest
from strandline.codec.messages.list_sinks_response import ListSinksResponse
from strandline.errors import ErrorCode, named
from strandline.ids import sink_key
from strandline.runtime.fault_points import fault_point
from strandline.spark.error_translation import SparkFailed
from strandline.spark.sink.checkpoint import is_noted_plan, note_of, planned_at_ms
from strandline.spark.sink.cluster import SinkCluster
from strandline.spark.sink.commit_message import TaskWritten
from strandline.spark.sink.failures import SinkFailed, SinkRefused
from strandline.spark.sink.options import SinkOptions
from strandline.spark.sink.visibility import READABLE_S_MAX, await_readable

LIMITS: Final = (
    "so each task commits for itself: exactly once as long as a batch that is run again has the same number of tasks, "
    "and readers see a batch task by task"
)
"""Of what can be promised where a batch is not decided by one request."""
WEAKER: Final = (
    f"strandline: this broker cannot commit a whole batch by one request, {LIMITS}. A Strandline broker has no such "
    "limits."
)

NOTE_BYTES_MAX: Final = 524_288
"""What a broker keeps with a batch."""

CLOCK_MS_MAX: Final = 1000
"""How far the clock of a driver that planned a batch may have been ahead of the one that asks now."""

ABORT_TIMEOUT_MS: Final = 10_000

_ABORT_VERSION_MAX: Final = 5
_clusters: dict[SinkOptions, SinkCluster] = {}
_told_of_large_notes: set[str | None] = set()


def cluster_of(options: SinkOptions) -> SinkCluster:
    """Kept for the next batch: Spark comes back to the same process as long as that is not idle for a minute."""
    if options not in _clusters:
        while _clusters:
            _clusters.popitem()[1].close()
        _clusters[options] = SinkCluster(options)
    return _clusters[options]


def cluster_for_abort(options: SinkOptions) -> SinkCluster:
    """For what may as well be left undone: the user waits for the failure that led here."""
    return cluster_of(replace(options, delivery_timeout_ms=ABORT_TIMEOUT_MS))


def commit(cluster: SinkCluster, messages: Sequence[TaskWritten], batch_id: int) -> None:
    """Return when the batch is committed, now or before, and can be read; SinkFailed says why it is not."""
    if any(message.is_decided and message.is_first for message in messages):
        print(WEAKER, file=sys.stderr, flush=True)
    transactions = [message.transaction for message in messages if message.transaction is not None]
    if not messages or not (transactions or cluster.commits_batches):
        return
    sink_id = messages[0].sink_id
    request = CommitBatchRequest(
        sink_id=sink_id,
        batch_id=batch_id,
        transactions=[
            SinkTransaction(each.transactional_id, each.producer_id, each.producer_epoch) for each in transactions
        ],
        timeout_ms=cluster.options.request_timeout_ms // 2,
        note=_note(cluster.options.checkpoint, batch_id),
    )
    fault_point("before-commit")
    answer = ask_coordinator(
        cluster.client,
        f"commit batch {batch_id}",
        sink_key(sink_id),
        request,
        CommitBatchResponse,
        lambda told: told.error_code,
        on_sent=lambda: fault_point("commit-sent"),
    )
    fault_point("after-commit")
    code = named(answer.error_code)
    if code != ErrorCode.NONE:
        raise _refusal(cluster, batch_id, code, answer)
    if answer.already_committed:
        _check_plan(cluster, sink_id, batch_id)
    # Spark reads it at once. What a partition without a leader has is read when there is one again.
    await_readable(cluster, sink_key(sink_id), patience_s=READABLE_S_MAX)


def _note(checkpoint: str | None, batch_id: int) -> bytes:
    """What the batch read, if that is known and not too much: no batch fails for the sake of its own recovery."""
    note = note_of(checkpoint, batch_id) or b""
    if len(note) <= NOTE_BYTES_MAX:
        return note
    if checkpoint not in _told_of_large_notes:
        _told_of_large_notes.add(checkpoint)
        print(
            f"strandline: the offsets of a batch take {len(note):,} bytes, more than the broker keeps with it: should "
            f"the checkpoint {checkpoint} be lost, up to one batch may be written twice.",
            file=sys.stderr,
            flush=True,
        )
    return b""


def abort(cluster: SinkCluster, messages: Sequence[TaskWritten]) -> None:
    """Abort what these tasks wrote, so that no reader waits for it. The broker refuses to abort what is committed."""
    fault_point("before-abort")
    for message in messages:
        transaction = message.transaction
        if transaction is None:
            continue
        ask_coordinator(
            cluster.client,
            "abort a transaction",
            sink_key(message.sink_id),
            EndTxnRequest(transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, False),
            EndTxnResponse,
            lambda told: told.error_code,
            version_max=_ABORT_VERSION_MAX if cluster.raises_epochs else _ABORT_VERSION_MAX - 1,
        )
    fault_point("after-abort")


def delete(cluster: SinkCluster, sink_id: str) -> None:
    """A sink that wrote its only batch is not remembered. What became of its rows stays so, whatever comes of this."""
    if not cluster.commits_batches:
        return
    try:
        answer = ask_coordinator(
            cluster.client,
            "remove the sink",
            sink_key(sink_id),
            DeleteSinkRequest(sink_id=sink_id),
            DeleteSinkResponse,
            lambda told: told.error_code,
        )
        heard = None if answer.error_code == ErrorCode.NONE else named(answer.error_code).name
    except ClientFailed as error:
        heard = str(error)
    if heard is not None:
        print(
            f"strandline: sink {sink_id} is done, but its state is still there ({heard}): "
            f"remove it with `strandline txn sink delete {sink_id}`.",
            file=sys.stderr,
            flush=True,
        )


def ask_about(cluster: SinkCluster, sink_id: str, *, include_notes: bool = False) -> ListSinksResponse:
    """What the coordinator knows of a sink: none in the answer if nothing was ever decided for it."""
    return ask_coordinator(
        cluster.client,
        "read what was committed",
        sink_key(sink_id),
        ListSinksRequest(sink_ids=[sink_id], include_notes=include_notes),
        ListSinksResponse,
        lambda told: told.error_code,
    )


def _check_plan(cluster: SinkCluster, sink_id: str, batch_id: int) -> None:
    """Refuse a batch that has another plan than the batch of that number that was committed.

    One that is run again has the plan that it had. Another plan is another range of rows, as when a checkpoint was put
    back that is one batch older than the log: to take it for committed would lose what only the new plan has. What was
    noted with the commit tells it; without a note only a plan that was made after the commit is known to be another.
    """
    planned_ms = planned_at_ms(cluster.options.checkpoint, batch_id)
    if planned_ms is None:
        return
    answer = ask_about(cluster, sink_id, include_notes=True)
    # The plan has the driver's time, the decision the broker's.
    ahead_ms = time.time_ns() // 1_000_000 - answer.now_ms
    for sink in answer.sinks:
        if sink.last_batch_id != batch_id:
            continue
        is_same = is_noted_plan(bytes(sink.note), cluster.options.checkpoint, batch_id)
        if is_same is None:
            is_same = planned_ms - ahead_ms <= sink.decided_ms + CLOCK_MS_MAX
        if not is_same:
            raise _older_checkpoint(batch_id, sink.last_batch_id)


def _older_checkpoint(batch_id: int, last_batch_id: int) -> SinkRefused:
    return SinkRefused(
        f"Batch {batch_id} was written before, and the log has the batches of this query up to {last_batch_id}: the "
        "checkpoint is older than the log. Nothing was written now. Put back the newer checkpoint, or begin with a new "
        "checkpoint directory and say with startingOffsets where to go on."
    )


def _refusal(cluster: SinkCluster, batch_id: int, code: ErrorCode, answer: CommitBatchResponse) -> SparkFailed:
    if code == ErrorCode.PRODUCER_FENCED:
        return _older_checkpoint(batch_id, answer.last_batch_id)
    if code == ErrorCode.INVALID_TXN_STATE:
        return SinkFailed(
            f"Batch {batch_id} was not written: a transaction of it had ended before the batch did. Either it took "
            f"longer than transactionTimeoutMs ({cluster.options.transaction_timeout_ms}), then raise that or make "
            "batches smaller, or the query runs twice, then stop the other; start it again, nothing is lost."
        )
    if code == ErrorCode.MESSAGE_TOO_LARGE:
        return SinkRefused(
            f"Batch {batch_id} was not written: it has more tasks than one decision can name; "
            "use fewer partitions, for instance with coalesce()."
        )
    words = f": {answer.error_message}" if answer.error_message else ""
    return SinkFailed(
        f"Batch {batch_id} was not committed ({code.name}{words}); start the query again, nothing is lost."
    )
