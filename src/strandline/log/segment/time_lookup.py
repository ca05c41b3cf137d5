"""From a time to an offset: the first record at or after it, exact inside a batch.

A search is a generator, so that its driver decides where its parts run. It yields

    None            it has worked for a while: others may have their turn
    OPENS           from here to its end it holds an opened batch: let only one search do so at a time
    a function      a read that may wait for the disk, or a large batch to inflate: run it off the loop and send back
                    what it returned, or throw in what it raised

A search over small batches in the page cache yields nothing. It works on a list of segments and holds the one that it
looks at, so the log may roll and be trimmed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from strandline.codec.columns.decode import payload_of
from strandline.codec.columns.shares import RecordScan
from strandline.codec.compression import Buffer
from strandline.codec.record_batch import COMPRESSION_MASK, BatchHeader
from strandline.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression
from strandline.log.segment.header_walk import headers_in
from strandline.log.segment.segment import WALK_CHUNK_BYTES, ColdRead, Segment

ON_LOOP_BYTES_MAX: Final = 64 * 1024
"""A compressed batch, before and after, that is opened where the search runs."""
OPENED_BYTES_MAX: Final = 16 * 1024 * 1024
OPENED_RECORDS_MAX: Final = 500_000
"""What a batch may become when a look-up opens it; more would take memory and time for one answer."""
RECORDS_PER_TURN_MAX: Final = 1024
CHUNKS_PER_TURN_MAX: Final = 16
"""Records of a batch, and pieces of a segment with batch headers in them, that are looked at in one turn."""


class FoundTime(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class Opens(Enum):
    OPENS = 0


OPENS: Final = Opens.OPENS
Step: TypeAlias = Callable[[], Any] | Literal[Opens.OPENS] | None
T = TypeVar("T")
Part: TypeAlias = Generator[Step, Any, T]
Search: TypeAlias = Part[FoundTime | None]


def search_time(segments: Sequence[Segment], timestamp_ms: int, *, start_offset: int, limit_offset: int) -> Search:
    """Return the first record from `start_offset` on, below `limit_offset`, that is not older than `timestamp_ms`."""
    for segment in segments:
        if segment.base_offset >= limit_offset:
            return None
        segment = _current(segment)
        if segment.deleted:
            continue
        segment.retain()
        try:
            found = yield from _search_segment(segment, timestamp_ms, start_offset)
        finally:
            segment.release()
        if found is not None:
            return found if found.offset < limit_offset else None
    return None


def search_latest_time(
    segments: Sequence[Segment], *, start_offset: int, limit_offset: int, end_offset: int | None = None
) -> Search:
    """The first record that carries the largest timestamp below `limit_offset`; `end_offset` is where the log ends."""
    largest = -1
    for at, segment in enumerate(segments):
        if segment.base_offset >= limit_offset:
            break
        segment = _current(segment)
        if segment.deleted:
            continue
        segment.retain()
        try:
            yield from _load_indexes(segment)
            known = _largest_timestamp_ms(segment)
            if 0 <= known <= largest:
                continue
            ends_at = segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
            if known >= 0 and segment.base_offset >= start_offset and ends_at is not None and ends_at <= limit_offset:
                # All of it counts, and it knows its largest time: nothing has to be read.
                largest = known
            else:
                largest = max(largest, (yield from _largest_in(segment, start_offset, limit_offset)))
        finally:
            segment.release()
    if largest < 0:
        return None
    return (yield from search_time(segments, largest, start_offset=start_offset, limit_offset=limit_offset))


def _current(segment: Segment) -> Segment:
    """Return what stands in its place by now: the log may be cleaned while it is searched."""
    while segment.deleted and segment.replacement is not None:
        segment = segment.replacement
    return segment


def run_to_end(search: Part[T]) -> T:
    """Drive a search where it may wait: in a tool, a test, a program that uses the log as a library."""
    try:
        step = next(search)
        while True:
            result: Any = None
            if callable(step):
                try:
                    result = step()
                except Exception as error:
                    step = search.throw(error)
                    continue
            step = search.send(result)
    except StopIteration as end:
        found: T = end.value
        return found


def find_time(
    segments: Sequence[Segment], timestamp_ms: int, *, start_offset: int, limit_offset: int
) -> FoundTime | None:
    """`search_time`, to its end."""
    return run_to_end(search_time(segments, timestamp_ms, start_offset=start_offset, limit_offset=limit_offset))


def _search_segment(segment: Segment, timestamp_ms: int, start_offset: int) -> Search:
    yield from _load_indexes(segment)
    if 0 <= _largest_timestamp_ms(segment) < timestamp_ms:
        return None
    position = segment.index.position_before(segment.time_index.relative_offset_before(timestamp_ms))
    end = segment.size_bytes
    chunks = 0
    while position < end:
        chunk = yield from read_part(segment, position, min(WALK_CHUNK_BYTES, end - position))
        for header, at in headers_in(segment.path, chunk, position):
            position = at + header.size_bytes
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            found = yield from _first_in_batch(segment, header, at, timestamp_ms, start_offset)
            if found is not None:
                return found
        chunks += 1
        if chunks % CHUNKS_PER_TURN_MAX == 0:
            yield None
    return None


def _largest_in(segment: Segment, start_offset: int, limit_offset: int) -> Part[int]:
    """The largest timestamp between two offsets, by the batches' headers."""
    largest = -1
    position, end = 0, segment.size_bytes
    chunks = 0
    while position < end:
        chunk = yield from read_part(segment, position, min(WALK_CHUNK_BYTES, end - position))
        for header, at in headers_in(segment.path, chunk, position):
            position = at + header.size_bytes
            if header.last_offset >= limit_offset:
                return largest
            if header.last_offset >= start_offset:
                largest = max(largest, header.max_timestamp)
        chunks += 1
        if chunks % CHUNKS_PER_TURN_MAX == 0:
            yield None
    return largest


def _load_indexes(segment: Segment) -> Part[None]:
    try:
        segment.load_indexes(may_block=False)
    except ColdRead:
        yield partial(segment.load_indexes, may_block=True)


def read_part(segment: Segment, position: int, size_bytes: int) -> Part[bytes]:
    """Bytes of a segment: from the page cache, else by a thread."""
    file = segment.file()
    data = file.read_at_nowait(position, size_bytes)
    if data is None:
        data = yield partial(file.read_at, position, size_bytes)
    return data


def _first_in_batch(
    segment: Segment, header: BatchHeader, position: int, timestamp_ms: int, start_offset: int
) -> Search:
    batch = yield from read_part(segment, position, header.size_bytes)
    # A batch that cannot be opened, or is a bomb, is answered with its beginning: the reader who starts there misses
    # nothing, and one producer's broken batch does not disable the look-up for others.
    beginning = FoundTime(max(header.base_offset, start_offset), header.max_timestamp, header.leader_epoch)
    if header.record_count > OPENED_RECORDS_MAX:
        return beginning
    try:
        payload = yield from opened(batch, header)
        if not header.record_count:
            return None
        scan = RecordScan(header, payload, records_max=RECORDS_PER_TURN_MAX)
        while True:
            scan.step()
            for offset, timestamp in zip(scan.offsets, scan.timestamps, strict=True):
                if timestamp >= timestamp_ms and offset >= start_offset:
                    return FoundTime(offset, timestamp, header.leader_epoch)
            if not scan.has_more:
                return None
            yield None
    except (CorruptBatch, BatchTooLarge, UnsupportedCompression):
        return beginning


def opened(batch: bytes, header: BatchHeader) -> Part[Buffer]:
    """The records section, inflated: a large one off the loop."""
    if not header.attributes & COMPRESSION_MASK:
        return payload_of(batch)[1]
    if len(batch) <= ON_LOOP_BYTES_MAX:
        try:
            return payload_of(batch, size_bytes_max=ON_LOOP_BYTES_MAX)[1]
        except BatchTooLarge:
            # Small compressed, too large decompressed.
            pass
    yield OPENS
    _, payload = yield partial(payload_of, batch, size_bytes_max=OPENED_BYTES_MAX)
    inflated: Buffer = payload
    return inflated


def _largest_timestamp_ms(segment: Segment) -> int:
    """Return the largest timestamp in the segment; -1 if that is not known."""
    return segment.max_timestamp_ms if segment.is_active else segment.time_index.last()[0]
