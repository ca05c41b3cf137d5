"""What a member says of records that it holds, and whether it may."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from strandline.coordinators.shares.delivery.offset_ranges import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    GAP,
    OffsetRanges,
)
from strandline.errors import ErrorCode, RequestError

if TYPE_CHECKING:
    from strandline.coordinators.shares.delivery.share_settings import ShareSettings

GAP_TYPE: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
TARGETS: Final = (ARCHIVED, ACKNOWLEDGED, AVAILABLE, ARCHIVED, ACQUIRED)
"""The state that each type of acknowledgement leads to."""


class AcknowledgedBatch(NamedTuple):
    """Offsets that a member acknowledges, both ends included."""

    first: int
    last: int
    types: bytes
    """One type for all offsets, or one for each."""


def check(
    ranges: OffsetRanges,
    in_flight: range,
    unsaid: range,
    member_id: str,
    batch: AcknowledgedBatch,
    settings: ShareSettings,
) -> None:
    """Raise RequestError if a member may not say this now.

    `in_flight` are the offsets that were delivered. What is below never comes again, so that words about it do no harm,
    except that of the offsets in `unsaid` some were given up, and that is not stored yet.
    """
    first, last, types = batch
    if max(first, unsaid.start) < min(last + 1, unsaid.stop):
        raise RequestError(ErrorCode.INVALID_RECORD_STATE, f"offset {max(first, unsaid.start)} is not acquired")
    if last < in_flight.start:
        return
    if not in_flight:
        raise RequestError(ErrorCode.INVALID_RECORD_STATE, "nothing is acquired")
    if last >= in_flight.stop:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"offsets up to {last}: the last acquired is below")
    if not settings.renews_locks and RENEW in types:
        raise RequestError(ErrorCode.INVALID_RECORD_STATE, "the group does not allow locks to be renewed")
    first = max(first, in_flight.start)
    at = ranges.index(first)
    while at < len(ranges) and (found := ranges.ranges[at]).first <= last:
        if found.state != GAP:
            if found.state != ACQUIRED or found.change is not None or found.lock is None:
                raise RequestError(ErrorCode.INVALID_RECORD_STATE, f"offset {found.first} is not acquired")
            if found.lock.member_id != member_id:
                raise RequestError(ErrorCode.INVALID_RECORD_STATE, f"another member holds offset {found.first}")
        at += 1


def runs(first: int, last: int, types: bytes) -> Iterable[tuple[int, int, int]]:
    """Yield first and last offset and type of neighbours that are acknowledged alike."""
    if len(types) == 1:
        yield first, last, types[0]
        return
    begin = 0
    for at in range(1, len(types) + 1):
        if at == len(types) or types[at] != types[begin]:
            yield first + begin, first + at - 1, types[begin]
            begin = at
