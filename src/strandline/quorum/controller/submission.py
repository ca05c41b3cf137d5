"""Commands of the controller, carried out: decided in slices of a turn of the loop, and their records written.

The records of one slice are one batch. They are handed to the log in the turn that decided them, because the next
decision builds on them. A command is done when all of its records are committed and in effect.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from strandline.errors import RequestError
from strandline.quorum.controller.prepared_records import PreparedRecords
from strandline.quorum.controller.state import Decisions, Steps
from strandline.runtime.time_slicing import TURN_S_MAX

if TYPE_CHECKING:
    from strandline.runtime.runtime import Runtime

T = TypeVar("T")
Outcomes = list[tuple[T, BaseException | None]]
"""What was decided, each with the error of its write or None."""
Write = Callable[[list[Any], Callable[[BaseException | None], object]], object]
"""Appends to the metadata log, flushes, applies to the image, then calls back with the error or None."""


class DecisionsSubmission(Generic[T]):
    """Independent decisions. A write that fails takes back its own slice and no other."""

    def __init__(
        self, runtime: Runtime, write: Write, decisions: Decisions[T], on_done: Callable[[Outcomes[T]], object]
    ) -> None:
        self._runtime = runtime
        self._write = write
        self._decisions = decisions
        self._on_done = on_done
        self._outcomes: Outcomes[T] = []
        self._records: list[Any] = []
        """Decided and not handed to the log yet, for the outcomes from `_first` on."""
        self._first = 0
        self._is_decided = False
        self._writes = 0

    def run_slice(self) -> None:
        monotonic = self._runtime.monotonic
        until = monotonic() + TURN_S_MAX
        try:
            for decision in self._decisions:
                if decision is None:
                    self._maybe_write()
                else:
                    self._take(*decision)
                if monotonic() > until:
                    self._runtime.call_soon(self.run_slice)
                    break
            else:
                self._is_decided = True
        finally:
            # In the same turn, even after an exception: the next decision must find these records in the log.
            self._maybe_write()

    def _take(self, records: list[Any], outcome: T) -> None:
        self._outcomes.append((outcome, None))
        if isinstance(records, PreparedRecords):
            # A pause came before it. So a write that fails, and takes back what was decided after it, cannot be
            # followed by this one in the same turn.
            assert not self._records
            self._records = records
            self._maybe_write()
        else:
            self._records += records

    def _maybe_write(self) -> None:
        end = len(self._outcomes)
        if self._first == end and not self._is_decided:
            return
        records, self._records = self._records, []
        first, self._first = self._first, end
        self._writes += 1
        self._write(records, partial(self._on_written, first, end))

    def _on_written(self, first: int, end: int, error: BaseException | None) -> None:
        if error is not None:
            self._outcomes[first:end] = [(outcome, error) for outcome, _ in self._outcomes[first:end]]
        self._writes -= 1
        if self._is_decided and self._writes == 0:
            self._on_done(self._outcomes)


def submit_steps(
    runtime: Runtime, write: Write, steps: Steps[T], on_done: Callable[[T | None, BaseException | None], object]
) -> None:
    """Take steps that build on each other: the records of each are in the log before the next is decided."""
    failures: list[BaseException] = []

    def on_written(error: BaseException | None) -> None:
        if error is not None:
            failures.append(error)

    def run_slice() -> None:
        until = runtime.monotonic() + TURN_S_MAX
        try:
            while not failures:
                write(next(steps), on_written)
                if runtime.monotonic() > until:
                    runtime.call_soon(run_slice)
                    return
        except StopIteration as end:
            outcome: T = end.value
            # An empty write waits for all earlier ones.
            write([], lambda error: finish(outcome, error))
        except RequestError as refusal:
            on_done(None, refusal)
        else:
            steps.close()
            on_done(None, failures[0])

    def finish(outcome: T, error: BaseException | None) -> None:
        if error is None and failures:
            error = failures[0]
        on_done(outcome if error is None else None, error)

    run_slice()
