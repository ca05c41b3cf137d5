"""Verification of a segment's file before it is read: readers get only what was verified since it was opened.

What this process wrote it need not read again. What it found on disk is verified piece by piece, each when it is first
read, by the thread that reads it from the disk anyway. Everything from `Segment.verified_from` on is verified; below it
the `stretches` are. A reader of recent records makes one comparison.

A stretch begins where the index names a batch, or at the beginning, so that offsets can be compared with the index. A
read in a damaged stretch raises `DamagedRecords`; what lies before and behind is served.

Stretches are replaced as a whole, in one assignment: a thread may add one while the loop adds another, and the worst
that comes of it is that one of them is checked again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from strandline.errors import DamagedRecords
from strandline.log.segment.batch_validation import ANY_OFFSET, LOOSE, OFFSET_LIMIT, Checked, check_batches
from strandline.log.segment.digest import Digest, checksum_of
from strandline.log.segment.segment import ColdRead, Segment
from strandline.log.segment.unverified import SegmentOwner, Stretch, Unverified

PIECE_BYTES: Final = 128 * 1024
PIECE_BATCHES_MAX: Final = 1000
"""Batches that are checked in one go: a thread that looks at headers keeps the loop from running meanwhile."""
LOOSE_STEPS_MAX: Final = 16
"""Entries of an index that are tried, from the last one back, for one that names its batch exactly."""
STRETCHES_MAX: Final = 64
"""Sound stretches that a segment remembers; what is forgotten is checked again."""


def distrust(segment: Segment, owner: SegmentOwner) -> None:
    """Have everything in the file verified before a reader gets it."""
    segment.unverified = Unverified(owner)
    segment.verified_from = segment.size_bytes
    # The tail positions in memory would lead readers past the verification.
    segment.tail_offsets = []
    segment.tail_positions = []


def trust(segment: Segment) -> None:
    """Count the whole file as verified: recovery has read it, and rebuilt its index."""
    segment.verified_from = 0
    segment.unverified = None


def damage_of(segment: Segment) -> tuple[Stretch, ...]:
    unverified = segment.unverified
    return () if unverified is None else tuple(each for each in unverified.stretches if each.fault is not None)


def damaged(segment: Segment, stretch: Stretch) -> DamagedRecords:
    return DamagedRecords(
        f"{segment.path}: at position {stretch.start}, offset {stretch.next_offset}: {stretch.fault}",
        base_offset=segment.base_offset,
        position=stretch.start,
    )


def sound_end(segment: Segment, position: int) -> Stretch:
    """Return the stretch up to whose end a reader at `position`, which `locate` has found, may be served."""
    stretch = None if segment.unverified is None else segment.unverified.at(position)
    return stretch or Stretch(segment.verified_from, segment.size_bytes, OFFSET_LIMIT)


def locate(segment: Segment, offset: int, *, may_block: bool) -> int | None:
    """Return the position of the first batch that reaches `offset`; None if the segment ends before it.

    Raises ColdRead if the disk must be read and the caller may not block.
    """
    tail = segment.tail_offsets
    if tail and offset >= segment.tail_start:
        # By last offsets: where compaction left a hole, what is wanted lies behind it.
        at = bisect_left(tail, offset)
        return segment.tail_positions[at] if at < len(tail) else None
    segment.load_indexes(may_block=may_block)
    if segment.unverified is not None:
        return _locate_checked(segment, offset, may_block=may_block)
    position = segment.index.position_before(offset - segment.base_offset)
    for header, at in segment.headers(position, may_block=may_block):
        if header.last_offset >= offset:
            return at
    return None


def _locate_checked(segment: Segment, offset: int, *, may_block: bool) -> int | None:
    """Return the same in a segment of which not all is checked.

    No header is believed that was not checked: a wrong one would lead to another batch.
    """
    position = _place_before(segment, offset - segment.base_offset)
    while True:
        end = segment.size_bytes
        if position < segment.verified_from:
            unverified = segment.unverified
            stretch = None if unverified is None else unverified.at(position)
            if stretch is None:
                if not may_block or unverified is None:
                    raise ColdRead
                check_at(segment, position)
                continue
            if stretch.fault is not None:
                raise damaged(segment, stretch)
            end = min(stretch.end, end)
        for header, at in segment.headers(position, end=end, may_block=may_block):
            if header.last_offset >= offset:
                return at
        if end >= segment.size_bytes:
            return None
        position = end


def check_at(segment: Segment, position: int) -> None:
    """Read and check a piece from `position` on: the beginning, the end of a stretch, or a place the index names."""
    unverified, end = segment.unverified, segment.verified_from
    if unverified is None or position >= end:
        return
    digest = unverified.digest(segment.disk, segment.path, segment.size_bytes)
    if digest is not None:
        _check_block(segment, digest, position, unverified.owner)
        return
    owner = unverified.owner
    before = unverified.sound_before(position)
    if before is not None:
        next_offset = before.next_offset
    else:
        next_offset = ANY_OFFSET if position else segment.base_offset
    checked = _check_piece(segment, position, end, next_offset, owner)
    if checked.fault == LOOSE and not checked.size_bytes:
        start = _start_before(segment, unverified, position)
        if start is not None:
            # A piece at a time; the caller repeats the call until this position is reached.
            check_at(segment, start)
            return
    if checked.size_bytes:
        stop = position + checked.size_bytes
        _add(segment, Stretch(position if before is None else before.start, stop, checked.next_offset))
    if checked.fault is not None:
        bad = position + checked.size_bytes
        begins_at = max(checked.next_offset, segment.base_offset)
        _add(segment, Stretch(bad, _damage_end(segment, bad), begins_at, checked.fault))


def _place_before(segment: Segment, relative_offset: int) -> int:
    """Return where the index has a batch at or before the one with this offset.

    An entry that does not lie between its neighbours is none. One that does, and names no batch, is found out when that
    place is checked.
    """
    index = segment.index
    positions = index.positions
    at = bisect_right(index.relative_offsets, relative_offset) - 1
    while at >= 0:
        before = positions[at - 1] if at else -1
        behind = positions[at + 1] if at + 1 < len(positions) else segment.size_bytes
        if before < positions[at] < behind:
            return positions[at]
        at -= 1
    return 0


def _start_before(segment: Segment, unverified: Unverified, position: int) -> int | None:
    """Where to go on checking, so as to come to `position` with the offset known; None if damage lies between."""
    positions = segment.index.positions
    last = bisect_left(positions, position) - 1
    for at in [*positions[max(-1, last - LOOSE_STEPS_MAX) + 1 : last + 1][::-1], 0]:
        stretch = unverified.at(at)
        if stretch is not None:
            is_passable = stretch.fault is None and unverified.at(stretch.end) is None
            return stretch.end if is_passable and stretch.end < position else None
        if at == 0 or _check_piece(segment, at, segment.verified_from, ANY_OFFSET, unverified.owner).fault != LOOSE:
            return at
    return None


def _check_block(segment: Segment, digest: Digest, position: int, owner: SegmentOwner) -> None:
    """The same where a digest knows the bytes that no CRC covers: a block of it is good as a whole, or not at all."""
    start, end, checksum = digest.block_at(position)
    block = segment.file().read_at(start, end - start)
    checked = check_batches(
        block,
        next_offset=int.from_bytes(block[:8], "big"),
        epochs=owner.leader_epochs,
        limit_offset=owner.end_of(segment.base_offset),
        entries=_entries(segment, start, end),
        is_end=True,
        batches_max=OFFSET_LIMIT,
    )
    fault = checked.fault
    if fault is None and checksum_of(block) != checksum:
        fault = "what no CRC covers is not what it was"
    next_offset = checked.next_offset if fault is None else segment.base_offset
    _add(segment, Stretch(start, end, next_offset, fault))


def check_ahead(segment: Segment, offset: int, size_bytes: int) -> None:
    """Verify about so many bytes from `offset` on, for a reader. Blocks on the disk."""
    position = locate(segment, offset, may_block=True)
    unverified = segment.unverified
    while position is not None and position < segment.verified_from and unverified is not None:
        stretch = unverified.at(position)
        if stretch is None or stretch.fault is not None or stretch.end - position >= size_bytes:
            return
        behind = unverified.at(stretch.end)
        if behind is not None and behind.fault is not None:
            return
        check_at(segment, stretch.end)


def check_tail(segment: Segment) -> DamagedRecords | None:
    """Check what comes behind the last entry of the index. Return what is wrong with it.

    An index in which the last entries are loose, as Kafka's may be, says nothing of the end: it is checked when it is
    read.
    """
    position = segment.index.boundary_before(segment.size_bytes)
    if position and segment.unverified is not None:
        checked = _check_piece(segment, position, segment.verified_from, ANY_OFFSET, segment.unverified.owner)
        if checked.fault == LOOSE:
            return None
    while position < segment.verified_from:
        stretch = None if segment.unverified is None else segment.unverified.at(position)
        if stretch is None:
            check_at(segment, position)
        elif stretch.fault is not None:
            return damaged(segment, stretch)
        else:
            position = stretch.end
    return None


def ends_with_gap(segment: Segment) -> bool:
    """Whether offsets are missing before the last batch: then nothing but its own base offset says where it ends."""
    position = segment.index.boundary_before(segment.size_bytes)
    next_offset = ANY_OFFSET if position else segment.base_offset
    has_gap = False
    for header, _ in segment.headers(position, may_block=True):
        has_gap = next_offset not in (ANY_OFFSET, header.base_offset)
        next_offset = header.last_offset + 1
    return has_gap


def _check_piece(segment: Segment, position: int, end: int, next_offset: int, owner: SegmentOwner) -> Checked:
    file = segment.file()
    wanted = PIECE_BYTES
    while True:
        size = min(wanted, end - position)
        piece = file.read_at(position, size)
        checked = check_batches(
            piece,
            next_offset=next_offset,
            epochs=owner.leader_epochs,
            limit_offset=owner.end_of(segment.base_offset),
            entries=_entries(segment, position, position + size),
            is_end=size == end - position or len(piece) < size,
            batches_max=PIECE_BATCHES_MAX,
        )
        if checked.size_bytes or checked.fault is not None:
            return checked
        wanted = checked.wanted_bytes


def _entries(segment: Segment, start: int, end: int) -> list[tuple[int, int]]:
    """Of the index, within a piece: (place in it, last offset of the batch there). The entry behind it is among them,
    because no batch reaches beyond that."""
    index = segment.index
    first, last = bisect_left(index.positions, start), bisect_right(index.positions, end) + 1
    found = zip(index.positions[first:last], index.relative_offsets[first:last], strict=True)
    return [(at - start, segment.base_offset + relative) for at, relative in found]


def _damage_end(segment: Segment, position: int) -> int:
    """Return where the next batch begins that can be found without the damaged one."""
    positions = segment.index.positions
    at = bisect_right(positions, position)
    return min(positions[at], segment.verified_from) if at < len(positions) else segment.verified_from


def _add(segment: Segment, stretch: Stretch) -> None:
    unverified = segment.unverified
    if unverified is None:
        return
    merged = stretch
    kept: list[Stretch] = []
    sound = 0
    for each in reversed(unverified.stretches):
        if each.fault is None and merged.fault is None and each.start <= merged.end and merged.start <= each.end:
            further = each if each.end > merged.end else merged
            merged = Stretch(min(each.start, merged.start), further.end, further.next_offset)
        elif each.fault is not None or sound < STRETCHES_MAX:
            sound += each.fault is None
            if each.start != merged.start or each.fault is None:
                kept.append(each)
    kept.reverse()
    if merged.fault is None and merged.end >= segment.verified_from:
        unverified.stretches = tuple(kept)
        segment.verified_from = merged.start
        if merged.start == 0 and segment.index.is_ordered(segment.size_bytes):
            # Each entry was met on the way, unless they are not in order: then each is looked at when it is used.
            segment.unverified = None
    else:
        unverified.stretches = (*kept, merged)
