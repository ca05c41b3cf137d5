"""Validation of records beyond their form, for topics that ask for it: what `reencoding` needs of it.

A broker gives a partition its `RecordValidation`. It is asked where the records of a batch are walked anyway, and a
partition without one is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn, Protocol

from strandline.codec.record_batch import Buffer
from strandline.errors import InvalidRecords, ValidationBehind


class RecordFault(NamedTuple):
    """A record that a topic does not take."""

    row: int
    reason: str
    may_pass_later: bool
    """Whether what was registered in the meantime may change the verdict."""


class RecordValidation(Protocol):
    """What a topic asks of its records."""

    def check(
        self,
        payload: Buffer,
        position: int,
        end: int,
        row: int,
        row_end: int,
        base_timestamp: int,
        faults: list[RecordFault],
    ) -> tuple[int, int]:
        """Check records from `row` on, as `check_records` does and by their schemas; return position and row behind.

        The call may end before `row_end`: after as much as one turn of the loop allows, or with `FAULTS_MAX` faults.
        Raises InvalidRecords for a record that no reader could read.
        """

    def catch_up(self, on_caught_up: Callable[[bool], object]) -> None:
        """Learn what was registered until now, then call back in a later turn, with False if that took too long."""


def reject(faults: Sequence[RecordFault], *, is_current: bool) -> NoReturn:
    """Raise the error for a batch with faults. `is_current` says whether all that is registered is known."""
    if not is_current and any(each.may_pass_later for each in faults):
        raise ValidationBehind(f"the schemas of this cluster are not known yet, and record {faults[0].row} needs them")
    first = faults[0]
    others = "" if len(faults) == 1 else f" ({len(faults)} keys and values are rejected)"
    raise InvalidRecords(f"record {first.row} of the batch: {first.reason}{others}", _by_row(faults))


def _by_row(faults: Sequence[RecordFault]) -> tuple[tuple[int, str], ...]:
    """Return one reason for each record: its key and its value may both be wrong."""
    reasons: dict[int, str] = {}
    for row, reason, _ in faults:
        reasons[row] = f"{reasons[row]}; {reason}" if row in reasons else reason
    return tuple(reasons.items())
