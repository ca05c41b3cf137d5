"""Producer ids for idempotent producers, handed out from blocks that the controller gave to this broker.

An id that was given twice would let two producers' sequence numbers mix, and one would lose records as "duplicates".
So the controller commits a block before it tells of it (AllocateProducerIds), and a block is only ever taken from an
answer to the one request that is under way. Blocks come in rising order: one that begins below what was taken before
is a stale answer or a fault, and is not used. What is left of a block when a node dies is never used either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from strandline.errors import ErrorCode, RequestError

WAITING_MAX: Final = 10_000
"""Requests that may wait for a block; more are rejected and retried."""
ASK_AT_LEFT: Final = 10
"""Hundredths of the block that are left when the next one is requested, so that no producer waits for it."""

Callback = Callable[[int, BaseException | None], object]
OnBlock = Callable[[int, int, BaseException | None], object]
"""The first id, how many there are, or why there is none."""


class ProducerIds:
    """The ids of one broker. `allocate(on_block)` asks the controller for a block and calls back once."""

    def __init__(self, allocate: Callable[[OnBlock], object]) -> None:
        self._allocate = allocate
        self._next_id = 0
        self._end = 0
        self._size = 0
        self._spare: tuple[int, int] | None = None
        self._taken_until = 0
        self._asking = False
        self._waiting: deque[Callback] = deque()

    def next(self, callback: Callback) -> None:
        """Call `callback(producer_id, None)` with a new id, or `callback(-1, error)`; perhaps later."""
        if len(self._waiting) >= WAITING_MAX:
            callback(-1, _not_now("Too many requests wait for a producer id."))
            return
        self._waiting.append(callback)
        self._serve()
        if self._spare is None and (self._end - self._next_id) * 100 <= self._size * ASK_AT_LEFT:
            self._ask()

    def _serve(self) -> None:
        while self._waiting:
            if self._next_id == self._end:
                if self._spare is None:
                    return
                (self._next_id, self._end), self._spare = self._spare, None
                self._size = self._end - self._next_id
            producer_id = self._next_id
            self._next_id += 1
            self._waiting.popleft()(producer_id, None)

    def _ask(self) -> None:
        if not self._asking:
            self._asking = True
            self._allocate(self._on_block)

    def _on_block(self, first: int, size: int, error: BaseException | None) -> None:
        self._asking = False
        if error is None and (size <= 0 or first < self._taken_until):
            error = _not_now(f"The controller gave a block of {size} producer ids from {first} on.")
        if error is not None:
            # The block may have been given away or not: it is given up, never guessed at.
            self._refuse_all(error)
            return
        self._spare = first, first + size
        self._taken_until = first + size
        self._serve()
        if self._waiting:
            self._ask()

    def _refuse_all(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, deque()
        for callback in waiting:
            callback(-1, error)


def _not_now(words: str) -> RequestError:
    return RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, words)
