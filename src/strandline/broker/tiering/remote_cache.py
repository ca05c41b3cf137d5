"""Blocks and indexes of segments in the store, read once for all readers and kept within a limit.

A block is 4 MiB of a segment, checked as a whole. Several readers of one block wait for one request. A request goes on
when its reader has left, because the next reader will want the same.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Final

from strandline.codec.checksum import crc32c
from strandline.errors import CorruptLog
from strandline.log.segment.index import OffsetIndex, TimeIndex
from strandline.log.segment.transaction_index import TransactionIndex
from strandline.runtime.runtime import Runtime
from strandline.tiers.objects import BLOCK_BYTES, ObjectPart, checksums_of, unpack_parts
from strandline.tiers.records import RemoteSegment
from strandline.tiers.store.byte_rate import ByteRate
from strandline.tiers.store.object_store import ObjectDamaged, ObjectMissing, ObjectStore, StoreUnavailable
from strandline.tiers.store.waiting import Signal, in_thread, start

READ_S_MAX: Final = 30.0
"""Seconds for one read of the store, with its retries."""
DAMAGES_MAX: Final = 10


class SegmentIndexes:
    """The parts of an index object, ready for look-ups."""

    __slots__ = ("checksums", "offsets", "parts", "size_bytes", "times", "transactions")

    def __init__(self, data: bytes, segment: RemoteSegment) -> None:
        self.parts = parts = unpack_parts(data)
        self.size_bytes = len(data)
        self.offsets = OffsetIndex.parse(parts.get(ObjectPart.OFFSET_INDEX, b""))
        self.times = TimeIndex.parse(parts.get(ObjectPart.TIME_INDEX, b""))
        self.transactions = TransactionIndex.parse(
            parts.get(ObjectPart.TRANSACTION_INDEX, b""), base_offset=segment.start_offset
        )
        self.checksums = checksums_of(parts.get(ObjectPart.BLOCK_CHECKSUMS, b""))
        if len(self.checksums) != -(-segment.size_bytes // BLOCK_BYTES):
            raise CorruptLog(f"{len(self.checksums)} checksums for a segment of {segment.size_bytes} bytes")


Block = bytes | memoryview
Content = Block | SegmentIndexes
Place = tuple[Hashable, int]
"""Segment, or object of several partitions, and number of the block; `INDEXES` for the indexes."""
INDEXES: Final = -1


class RemoteCache:
    """What was read of the store lately, and what is being read."""

    def __init__(
        self, runtime: Runtime, *, size_bytes_max: int, reads_max: Callable[[], int], rate: ByteRate | None = None
    ) -> None:
        self._runtime = runtime
        self.size_bytes_max = size_bytes_max
        self._reads_max = reads_max
        self._rate = rate
        self._kept: OrderedDict[Place, Content] = OrderedDict()
        self._coming: dict[Place, Signal[Content]] = {}
        self._turns: deque[Signal[None]] = deque()
        self._reading = 0
        self.store: ObjectStore | None = None
        self.size_bytes = self.hits = self.misses = self.failures = 0
        self.read_bytes = 0
        self.damages: dict[Place, str] = {}
        """What could not be read of objects that should be there, in sentences; the last ones."""

    async def block(self, key: str, segment: RemoteSegment, number: int, indexes: SegmentIndexes) -> Block:
        """Return a block. Raises StoreFailed."""
        place = segment.id, number
        found = self._kept.get(place)
        if found is None:
            found = await self._come(place, lambda: self._read_block(key, segment, number, indexes))
        else:
            self._hit(place)
        assert not isinstance(found, SegmentIndexes)
        return found

    async def piece(self, place: Place, key: str, start: int, length: int) -> Block:
        """Return bytes of an object, which the caller checks. Raises StoreFailed."""
        found = self._kept.get(place)
        if found is None:
            found = await self._come(place, lambda: self._read_piece(key, start, length))
        else:
            self._hit(place)
        assert not isinstance(found, SegmentIndexes)
        return found

    async def indexes(self, key: str, segment: RemoteSegment) -> SegmentIndexes:
        """Return the indexes of a segment. Raises StoreFailed."""
        place = segment.id, INDEXES
        found = self._kept.get(place)
        if found is None:
            found = await self._come(place, lambda: self._read_indexes(key, segment))
        else:
            self._hit(place)
        assert isinstance(found, SegmentIndexes)
        return found

    def read_ahead(self, key: str, segment: RemoteSegment, number: int, indexes: SegmentIndexes) -> None:
        """Begin to read a block that a reader will want next, unless readers that wait would be held up."""
        place = segment.id, number
        is_there = number >= len(indexes.checksums) or place in self._kept or place in self._coming
        if not is_there and not self._turns and self._reading < self._reads_max():
            self._begin(place, lambda: self._read_block(key, segment, number, indexes))

    def _hit(self, place: Place) -> None:
        self.hits += 1
        self._kept.move_to_end(place)

    async def _come(self, place: Place, read: Callable[[], Awaitable[Content]]) -> Content:
        self.misses += 1
        return await (self._coming.get(place) or self._begin(place, read))

    def _begin(self, place: Place, read: Callable[[], Awaitable[Content]]) -> Signal[Content]:
        signal: Signal[Content] = Signal(self._runtime)
        self._coming[place] = signal
        start(self._runtime, self._read(place, read, signal))
        return signal

    async def _read(self, place: Place, read: Callable[[], Awaitable[Content]], signal: Signal[Content]) -> None:
        while self._reading >= self._reads_max():
            turn: Signal[None] = Signal(self._runtime)
            self._turns.append(turn)
            await turn
        self._reading += 1
        try:
            if self._rate is not None:
                await self._rate.wait()
            content = await read()
        except Exception as error:
            self.failures += 1
            self._coming.pop(place, None)
            if isinstance(error, (ObjectDamaged, ObjectMissing)):
                self.damages[place] = str(error)
                if len(self.damages) > DAMAGES_MAX:
                    del self.damages[next(iter(self.damages))]
            signal.fail(error)
        else:
            self._coming.pop(place, None)
            self.damages.pop(place, None)
            self._keep(place, content)
            signal.set(content)
        finally:
            self._reading -= 1
            if self._turns:
                self._turns.popleft().set(None)

    def _keep(self, place: Place, content: Content) -> None:
        size = _size_of(content)
        self._kept[place] = content
        self.size_bytes += size
        while self.size_bytes > self.size_bytes_max and len(self._kept) > 1:
            _, gone = self._kept.popitem(last=False)
            self.size_bytes -= _size_of(gone)

    async def _read_block(self, key: str, segment: RemoteSegment, number: int, indexes: SegmentIndexes) -> Block:
        begin = number * BLOCK_BYTES
        length = min(BLOCK_BYTES, segment.size_bytes - begin)
        store = self._opened()
        data = await store.read(f"{key}.log", begin, length, deadline_s=READ_S_MAX)
        self._count(len(data))
        # In a thread, because it takes half a millisecond in which the loop serves others.
        if len(data) != length or await in_thread(self._runtime, partial(crc32c, data)) != indexes.checksums[number]:
            raise ObjectDamaged(
                f"{store.name}: {key}.log is not what was written, in the {length} bytes from {begin} on; restore the "
                "object from a copy, or move the log start behind it with DeleteRecords"
            )
        return data

    async def _read_piece(self, key: str, start: int, length: int) -> Block:
        data = await self._opened().read(key, start, length, deadline_s=READ_S_MAX)
        self.read_bytes += len(data)
        return data

    async def _read_indexes(self, key: str, segment: RemoteSegment) -> SegmentIndexes:
        store = self._opened()
        data = await store.read_whole(f"{key}.idx", deadline_s=READ_S_MAX)
        self._count(len(data))
        try:
            return SegmentIndexes(data, segment)
        except CorruptLog as error:
            raise ObjectDamaged(f"{store.name}: {key}.idx is not what was written: {error}") from error

    def _count(self, size_bytes: int) -> None:
        self.read_bytes += size_bytes
        if self._rate is not None:
            self._rate.count(size_bytes)

    def _opened(self) -> ObjectStore:
        if self.store is None:
            raise StoreUnavailable("the object store is not open yet; the log of the node says why")
        return self.store

    def forget(self, owner: Hashable) -> None:
        """Drop what is kept of a segment that was deleted, or of an object."""
        self.damages = {place: text for place, text in self.damages.items() if place[0] != owner}
        for place in [each for each in self._kept if each[0] == owner]:
            gone = self._kept.pop(place)
            self.size_bytes -= _size_of(gone)


def _size_of(content: Content) -> int:
    return content.size_bytes if isinstance(content, SegmentIndexes) else len(content)
