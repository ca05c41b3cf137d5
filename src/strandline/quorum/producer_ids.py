"""Producer ids for idempotent producers, handed out from blocks that the metadata log already holds.

An id that was given twice would let two producers' sequence numbers mix, and one would lose records as "duplicates".
So a block is recorded and flushed before its first id leaves; what is left of a block when a node dies is never used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller import PRODUCER_ID_BLOCK_SIZE, Controller, ProducerIdBlock

WAITING_MAX: Final = 10_000
"""Requests that may wait for a block; one more is told to come back."""

Callback = Callable[[int, BaseException | None], object]
Write = Callable[[list[Any], Callable[[BaseException | None], object]], object]


class ProducerIds:
    """The ids of one broker. `write(records, on_done)` appends to the metadata log and calls back once flushed."""

    def __init__(
        self,
        controller: Controller,
        write: Write,
        *,
        broker_id: int,
        broker_epoch: int,
        block_size: int = PRODUCER_ID_BLOCK_SIZE,
    ) -> None:
        self._controller = controller
        self._write = write
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._block_size = block_size
        self._next_id = 0
        self._end = 0
        self._spare: ProducerIdBlock | None = None
        self._asking = False
        self._waiting: deque[Callback] = deque()

    def next(self, callback: Callback) -> None:
        """Call `callback(producer_id, None)` with an id nobody else has, or `callback(-1, error)`; perhaps later."""
        self._waiting.append(callback)
        self._serve()
        # The next block is asked for while ids are left, so that nobody waits for a flush.
        if self._spare is None and self._end - self._next_id <= self._block_size // 10:
            self._ask()
        if len(self._waiting) > WAITING_MAX:
            refusal = RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Too many requests wait for a producer id.")
            self._waiting.pop()(-1, refusal)

    def _serve(self) -> None:
        while self._waiting:
            if self._next_id == self._end:
                if self._spare is None:
                    return
                self._next_id, self._end, self._spare = self._spare.first, self._spare.end, None
            producer_id = self._next_id
            self._next_id += 1
            self._waiting.popleft()(producer_id, None)

    def _ask(self) -> None:
        if self._asking:
            return
        try:
            records, block = self._controller.allocate_producer_ids(
                self._broker_id, self._broker_epoch, self._block_size
            )
        except RequestError as error:
            self._refuse_all(error)
            return
        self._asking = True

        def on_done(error: BaseException | None) -> None:
            self._asking = False
            if error is not None:
                # The record may or may not be on disk: the block is given up, never guessed at.
                self._refuse_all(error)
                return
            self._spare = block
            self._serve()
            if self._waiting:
                self._ask()

        self._write(records, on_done)

    def _refuse_all(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, deque()
        for callback in waiting:
            callback(-1, error)
