"""Long work, a share per turn of the loop, so that everybody else is served in between.

`gradually` runs any iterator to its end. `decide` does so for decisions of the controller: the records of one share are
written as one batch, and the answer waits until all of them are flushed and in effect. `joined` puts an answer together
from parts that were encoded on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, Generic, TypeVar

from strandline.codec.message import Message, encode
from strandline.codec.primitives import write_uvarint
from strandline.handlers.support.context import BrokerServices, EncodedResponse
from strandline.quorum.controller.prepared_records import PreparedRecords
from strandline.quorum.controller.state import Decisions
from strandline.runtime.runtime import Runtime

TURN_S_MAX: Final = 0.005
"""What one request may take of one turn of the loop."""

T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")
Outcomes = list[tuple[T, BaseException | None]]
"""What was decided, each with the error of its write or None."""


def gradually(runtime: Runtime, work: Iterator[T], then: Callable[[list[T]], object]) -> None:
    """Call `then` with all that `work` yields; at once if that is quick, else in a later turn."""
    found: list[T] = []

    def go_on() -> None:
        until = runtime.monotonic() + TURN_S_MAX
        for each in work:
            found.append(each)
            if runtime.monotonic() > until:
                runtime.call_soon(go_on)
                return
        then(found)

    go_on()


def decide(node: BrokerServices, decisions: Decisions[T], then: Callable[[Outcomes[T]], object]) -> None:
    """Have the controller decide, write what it decided, and call `then` once all of it has taken effect.

    Decisions of one share stand or fall together; a write that fails takes back its own share and no other. A decision
    whose records are prepared is a batch of its own.
    """
    _Deciding(node, decisions, then).go_on()


class _Deciding(Generic[T]):
    def __init__(self, node: BrokerServices, decisions: Decisions[T], then: Callable[[Outcomes[T]], object]) -> None:
        self._node = node
        self._decisions = decisions
        self._then = then
        self._outcomes: Outcomes[T] = []
        self._records: list[Any] = []
        """What was decided and is not handed to the log yet, for the outcomes from `_first` on."""
        self._first = 0
        self._is_decided = False
        self._writes = 0

    def go_on(self) -> None:
        monotonic = self._node.runtime.monotonic
        until = monotonic() + TURN_S_MAX
        try:
            for decision in self._decisions:
                if decision is None:
                    self._maybe_write()
                else:
                    self._take(*decision)
                if monotonic() > until:
                    self._node.runtime.call_soon(self.go_on)
                    break
            else:
                self._is_decided = True
        finally:
            # In the same turn and whatever happens: who is decided about next must find the log behind what was
            # decided here.
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
        self._node.controller_write(records, partial(self._on_written, first, end))

    def _on_written(self, first: int, end: int, error: BaseException | None) -> None:
        if error is not None:
            self._outcomes[first:end] = [(outcome, error) for outcome, _ in self._outcomes[first:end]]
        self._writes -= 1
        if self._is_decided and self._writes == 0:
            self._then(self._outcomes)


def answered(
    asked: Iterable[Q], decisions: Decisions[T], answer: Callable[[Q, T], A]
) -> Iterator[tuple[list[Any], A] | None]:
    """Yield the decisions about all that was `asked`, each outcome as its part of the answer; pauses as they are."""
    left = iter(asked)
    for decision in decisions:
        if decision is None:
            yield None
        else:
            records, outcome = decision
            yield records, answer(next(left), outcome)


def joined(around: Message, version: int, parts: Iterable[bytes], *, tail_size: int = 0) -> bytes:
    """`around`, whose last array is empty, with `parts` as the elements of that array.

    `tail_size` are the bytes of what stands behind the array, without the end of the tagged fields.
    """
    encoded = encode(around, version)
    flexible = version >= around.FLEXIBLE_FROM
    tail_at = len(encoded) - tail_size - flexible
    count_at = tail_at - (1 if flexible else 4)
    elements = list(parts)
    count = bytearray()
    if flexible:
        write_uvarint(count, len(elements) + 1)
    else:
        count += len(elements).to_bytes(4, "big")
    return b"".join((encoded[:count_at], count, *elements, encoded[tail_at:]))


def joined_response(around: Message, version: int, parts: Iterable[bytes]) -> EncodedResponse:
    return EncodedResponse(joined(around, version, parts))
