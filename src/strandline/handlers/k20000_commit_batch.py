"""CommitBatch (20000), version 0: the driver of a sink has all that a batch wrote committed by one decision.

It is Strandline's own; no other broker knows it. Asked of the coordinator of the sink, which FindCoordinator finds (key
type 1) by `__strandline.sink.<sink>#`, what the transactional ids of the sink begin with.

- The listed transactions are all open, with these producer ids and epochs: they are committed, every other open one of
  the sink is aborted, and the answer leaves when that is decided for good. Markers follow it.
- The batch is the sink's last one: `already_committed`; of the listed ones those that are open are aborted, unless the
  decision committed that producer in that epoch: then this is a late copy, and what is open is of a later batch.
- It is below the last one: PRODUCER_FENCED. One of the list is not open so: INVALID_TXN_STATE. It is of another sink,
  or listed twice: INVALID_REQUEST. They are more than 5,000, or their names do not fit a record: MESSAGE_TOO_LARGE.
  In all of these nothing is changed.
- `note` is the driver's own, up to 512 KiB, and kept with the batch until the next one; ListSinks tells it.
- With `expected_last_batch_id` the batch is decided only if that is the last one; else PRODUCER_FENCED. So a driver
  that continues a sink knows that no other driver did meanwhile.
- After CONCURRENT_TRANSACTIONS, REQUEST_TIMED_OUT, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE and
  COORDINATOR_LOAD_IN_PROGRESS the driver asks again with the same batch and list, and the answer to that counts.
"""

from __future__ import annotations

from typing import Final

from strandline.codec.messages.commit_batch_request import CommitBatchRequest
from strandline.codec.messages.commit_batch_response import CommitBatchResponse
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.coordinators.transactions.events import CommitBatch
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.ids import sink_key
from strandline.runtime.runtime import TimerHandle

API_KEY = 20_000
VERSIONS = (0, 0)

WAIT_MS_MAX: Final = 60_000
"""The longest that an answer is waited for, whatever the request says."""
WAIT_MS_LEAST: Final = 1_000


def handle(context: RequestContext, request: CommitBatchRequest) -> CommitBatchResponse | None:
    wait = _Wait(context)
    context.node.transactions.submit(sink_key(request.sink_id), CommitBatch(wait, request))
    return wait.collect(min(max(request.timeout_ms, WAIT_MS_LEAST), WAIT_MS_MAX) / 1000)


class _Wait:
    """Wait up to the timeout for the decision; a retry returns a later decision."""

    def __init__(self, context: RequestContext) -> None:
        self._runtime = context.node.runtime
        self._call = PendingRequest(context.reply, refusal=_refusal)
        self._is_over = False
        self._timer: TimerHandle | None = None

    def answer(self, response: CommitBatchResponse) -> None:
        if not self._is_over:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()
            self._call.answer(response)

    def refuse(self, code: ErrorCode) -> None:
        self.answer(_refusal(code))

    def collect(self, wait_s: float) -> CommitBatchResponse | None:
        if not self._is_over:
            self._timer = self._runtime.call_later(wait_s, self.refuse, ErrorCode.REQUEST_TIMED_OUT)
        response: CommitBatchResponse | None = self._call.collect()
        return response


def _refusal(code: ErrorCode) -> CommitBatchResponse:
    return CommitBatchResponse(error_code=code)
