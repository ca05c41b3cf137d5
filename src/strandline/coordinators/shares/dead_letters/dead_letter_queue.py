"""The dead letters of one share partition: which wait, which are being copied, which copies exist.

    open: fence, read the note --> store 3 --> copy: one transaction, with a note of what it covers --> store 4

1. Opening a transaction fences every leader before, and ends what it left open. From then on the note of the last
   committed transaction is the truth: of what was doubtful, that has a copy which the note covers.
2. Archiving (3) is stored with the leader epoch. That succeeds only if no later leader has loaded the share partition,
   so none has written anything between the note and this.
3. The copies and the note of the offsets that they cover are committed by one record.
4. Archived (4) is stored before the next transaction begins, so the last note is enough.

The machine is told what happened (`step`) and says what to do. It may be thrown away at any moment; the next leader's
begins with what is stored as Archiving, all of which is doubtful.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from strandline.coordinators.shares.dead_letters.covered_offsets import CoveredOffsets, joined
from strandline.coordinators.shares.delivery.dead_ranges import DeadRange
from strandline.coordinators.shares.share_state import StateBatch

LETTERS_MAX: Final = 500
"""Dead letters of one transaction."""
RETRY_S: Final = 0.1
RETRY_S_MAX: Final = 10.0
PATIENCE: Final = 7
"""Attempts in a row that fail before dead letters are given up, where nothing else can be delivered: 12 seconds."""


class QueueState(StrEnum):
    """What the queue waits for."""

    IDLE = "idle"
    OPENING = "opening"
    MARKING = "marking"
    """The share coordinator is to store Archiving."""
    COPYING = "copying"
    ARCHIVING = "archiving"
    """The share coordinator is to store Archived."""
    PAUSED = "paused"
    """An attempt failed, and the next one is later."""


# ---- events


@dataclass(frozen=True, slots=True)
class Buried:
    """Records became dead letters."""

    ranges: tuple[DeadRange, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """The answer to `Open`: no leader before can commit any more."""

    last_batch_id: int | None = None
    """The last batch that was committed; None if it was not asked for."""
    covered: CoveredOffsets | None = None
    """The note of that batch."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The answer to `Mark` or `Archive`: whether the share coordinator has stored it."""

    is_stored: bool


@dataclass(frozen=True, slots=True)
class Copied:
    """The answer to `Copy`: these are committed. They may be fewer than asked for."""

    letters: tuple[DeadRange, ...]


@dataclass(frozen=True, slots=True)
class Skipped:
    """The answer to `Copy`: these are no records, but markers of transactions, and need no copy."""

    letters: tuple[DeadRange, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer to `Open` or `Copy`: nothing was committed, and nothing will be."""

    reason: str
    is_too_large: bool = False
    is_blocked: bool = False
    """Whether members get nothing new until a dead letter ends."""


@dataclass(frozen=True, slots=True)
class Uncertain:
    """The answer to `Copy`: these may have been committed, or may be yet."""

    letters: tuple[DeadRange, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RetryDue:
    """The time of `RetryLater` is over."""


@dataclass(frozen=True, slots=True)
class SwitchedOff:
    """The answer to `Open`: the group has no dead-letter topic any more."""


QueueEvent = Buried | Opened | Stored | Copied | Skipped | Failed | Uncertain | RetryDue | SwitchedOff


# ---- effects


@dataclass(frozen=True, slots=True)
class Open:
    """Fence the leaders before, end their transaction, and say `Opened`, with the note if it is asked for."""

    needs_note: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """Store these as Archiving, and say `Stored`."""

    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy these in one transaction that commits which offsets it covers, if `after` is the last batch."""

    letters: tuple[DeadRange, ...]
    after: int


@dataclass(frozen=True, slots=True)
class Archive:
    """End these, store them as Archived, and say `Stored`."""

    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Report that these have no copy, and will have none."""

    letters: tuple[DeadRange, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Say `RetryDue` after this time."""

    delay_s: float
    reason: str


QueueEffect = Open | Mark | Copy | Archive | GiveUp | RetryLater


class DeadLetterQueue:
    """The state machine."""

    def __init__(self, state_epoch: int, *, letters_max: int = LETTERS_MAX) -> None:
        self._state_epoch = state_epoch
        self._letters_max = self._room = letters_max
        self.state = QueueState.IDLE
        self.waiting: list[DeadRange] = []
        """Dead letters without a copy, as far as is known, in the order in which they came."""
        self._letters: tuple[DeadRange, ...] = ()
        """Those of the transaction that is under way."""
        self._ended: list[StateBatch] = []
        """Dead letters whose end is not stored yet."""
        self._last_batch_id: int | None = None
        """The last batch that was committed; None if it must be read."""
        self._failures = 0
        """Attempts to copy that failed in a row."""
        self._refusals = 0
        """Attempts to store that failed in a row."""
        self._effects: list[QueueEffect] = []

    @property
    def is_working(self) -> bool:
        """Whether something is under way; a pause is not."""
        return self.state not in (QueueState.IDLE, QueueState.PAUSED)

    def step(self, event: QueueEvent) -> list[QueueEffect]:
        effects = self._effects = []
        match event:
            case Buried(ranges=ranges):
                self.waiting.extend(ranges)
                if self.state is QueueState.IDLE:
                    self._go_on()
            case Opened():
                self._on_opened(event)
            case Stored(is_stored=is_stored):
                self._on_stored(is_stored)
            case Copied(letters=letters):
                assert self._last_batch_id is not None
                self._last_batch_id += 1
                self._failures, self._room = 0, self._letters_max
                self._end(letters)
                self._go_on()
            case Skipped(letters=letters):
                self._end(letters)
                self._go_on()
            case Failed():
                self._on_failed(event)
            case Uncertain(letters=letters, reason=reason):
                self._replace(letters, [each._replace(is_doubtful=True) for each in letters])
                self._last_batch_id = None
                self._pause(reason)
            case RetryDue():
                self._go_on()
            case SwitchedOff():
                self._give_up(self.waiting, "the group has no dead-letter topic any more")
                self._go_on()
            case _:
                assert_never(event)
        return effects

    def _go_on(self) -> None:
        """Begin the next transaction, as soon as everything is stored that the last one covers."""
        if self._ended:
            self.state = QueueState.ARCHIVING
            self._effects.append(Archive(tuple(self._ended)))
        elif self.waiting:
            self.state = QueueState.OPENING
            is_doubtful = any(each.is_doubtful for each in self.waiting)
            self._effects.append(Open(needs_note=self._last_batch_id is None or is_doubtful))
        else:
            self.state = QueueState.IDLE

    def _on_opened(self, event: Opened) -> None:
        if event.last_batch_id is not None:
            self._last_batch_id = event.last_batch_id
            self._settle(event.covered)
        if self._ended:
            self._go_on()
            return
        self._letters = self._first(self._room)
        self.state = QueueState.MARKING
        self._effects.append(Mark(tuple(each.archiving() for each in self._letters)))

    def _settle(self, covered: CoveredOffsets | None) -> None:
        """Decide what was doubtful: what the note covers has a copy, and all else has none."""
        if covered is None or covered.state_epoch != self._state_epoch:
            covered = CoveredOffsets(self._state_epoch, ())
        left: list[DeadRange] = []
        for each in self.waiting:
            if not each.is_doubtful:
                left.append(each)
                continue
            copied, others = covered.split(each.first, each.last)
            self._ended += [each.part(*span).archived() for span in copied]
            left += [each.part(*span)._replace(is_doubtful=False) for span in others]
        self.waiting = left

    def _on_stored(self, is_stored: bool) -> None:
        if not is_stored:
            self.state = QueueState.PAUSED
            self._effects.append(RetryLater(_delay_s(self._refusals), "the share coordinator did not store it"))
            self._refusals += 1
            return
        self._refusals = 0
        if self.state is QueueState.MARKING:
            assert self._last_batch_id is not None
            self.state = QueueState.COPYING
            self._effects.append(Copy(self._letters, self._last_batch_id))
        else:
            self._ended.clear()
            self._go_on()

    def _on_failed(self, event: Failed) -> None:
        letters = self._letters if self.state is QueueState.COPYING else ()
        count = sum(each.size for each in letters)
        if event.is_too_large and count > 1:
            self._room = count // 2
            self._go_on()
        elif event.is_too_large and letters and not letters[0].is_bare:
            self._replace(letters, [letters[0]._replace(is_bare=True)])
            self._go_on()
        elif event.is_blocked and self._failures >= PATIENCE:
            # Half of them: the topic may be back soon.
            half = max(1, sum(each.size for each in self.waiting) // 2)
            self._give_up(self._first(half), event.reason)
            self._go_on()
        else:
            self._pause(event.reason)

    def _first(self, room: int) -> tuple[DeadRange, ...]:
        """Return the first dead letters that wait, `room` at most."""
        letters: list[DeadRange] = []
        for each in self.waiting:
            if room <= 0:
                break
            letters.append(each.part(each.first, min(each.last, each.first + room - 1)))
            room -= letters[-1].size
        return tuple(letters)

    def _give_up(self, letters: Sequence[DeadRange], reason: str) -> None:
        if letters:
            self._effects.append(GiveUp(tuple(letters), reason))
            self._end(letters)

    def _end(self, letters: Sequence[DeadRange]) -> None:
        self._ended += [each.archived() for each in letters]
        self._replace(letters, ())

    def _replace(self, old: Iterable[DeadRange], new: Iterable[DeadRange]) -> None:
        """Put other ranges in the place of some that wait."""
        gone = CoveredOffsets(self._state_epoch, joined((each.first, each.last) for each in old))
        left: list[DeadRange] = [*new]
        for each in self.waiting:
            left += [each.part(*span) for span in gone.split(each.first, each.last)[1]]
        self.waiting = left

    def _pause(self, reason: str) -> None:
        self.state = QueueState.PAUSED
        self._effects.append(RetryLater(_delay_s(self._failures), reason))
        self._failures += 1


def _delay_s(failures: int) -> float:
    return min(RETRY_S * (1 << min(failures, 10)), RETRY_S_MAX)
