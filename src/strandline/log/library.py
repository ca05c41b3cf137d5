"""`strandline.Log`: the storage engine as a library, on the caller's own asyncio loop, without a broker.

    async with strandline.Log("orders") as log:
        offset = await log.append(b"paid", key=b"order-17")
        record = await log.read(offset)
        async for record in log.scan(follow=True): ...

An append returns when the record is on disk (`flush.mode=ack`); appends that wait together share one fdatasync. The
directory is locked against a second process, and its files are those of a Kafka partition: `strandline log dump` and
Kafka's own tools read them. Settings are the topic's, by their Kafka names.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from strandline.codec.columns import Record, encode_batch, encode_record, records_of
from strandline.codec.columns._scan import read_record
from strandline.codec.columns.batch import Header
from strandline.codec.record_batch import HEADER
from strandline.config.topic_config import TopicConfig
from strandline.errors import Closed, OffsetOutOfRange, StrandlineError
from strandline.ids import TopicPartition
from strandline.log.disk import RealDisk
from strandline.log.flusher import Flusher
from strandline.log.log_directory import LogDirectory
from strandline.log.partition_log import PartitionLog
from strandline.log.run_appends import append_run
from strandline.log.segment.time_lookup import find_time
from strandline.log.trimming import trim_now
from strandline.runtime.runtime import LoopRuntime

READ_BYTES: Final = 1024 * 1024
"""What a scan reads at a time."""
LOOK_AHEAD_BYTES: Final = 4096
"""What a read of one record reads beyond the place that the index names."""
RUN_BYTES: Final = 256 * 1024
"""What is written with one call, about."""
LEADER_EPOCH: Final = 0
DEFAULTS: Final = {"flush.mode": "ack", "index.interval.bytes": "1024"}
"""A denser index than a topic's: single records are what a library reads."""


class Log:
    """An append-only log in a directory. One loop owns it; open it with `async with`."""

    def __init__(
        self, path: str | Path, *, settings: Mapping[str, str] | None = None, open_files_max: int = 256
    ) -> None:
        self.path = Path(path)
        self._config = TopicConfig().with_overrides({**DEFAULTS, **(settings or {})})
        self._read_bytes = self._config.index_interval_bytes + LOOK_AHEAD_BYTES
        self._name = TopicPartition(self.path.name, 0)
        self._open_files_max = open_files_max
        self._flush_before_ack = self._config.flush_mode != "async" or self._config.flush_messages == 1
        self._waiting: deque[tuple[int, int, Sequence[asyncio.Future[int]]]] = deque()
        """Batches that are written and not flushed: where each ends, where it begins, and who waits for it."""
        self._turn: list[tuple[bytes, int, asyncio.Future[int]]] = []
        """Batches that this turn of the loop brought, with their timestamps and who waits for them."""
        self._last_turn_count = 0
        self._followers: set[asyncio.Future[None]] = set()
        self._directory: LogDirectory | None = None
        self._runtime: LoopRuntime
        self._flusher: Flusher
        self._log: PartitionLog
        self._end = 0

    # Opening and closing

    async def open(self) -> None:
        """Lock the directory, and recover what a crash left."""
        self._runtime = LoopRuntime(asyncio.get_running_loop())
        self._flusher = Flusher(self._runtime)
        directory = LogDirectory(self.path, disk=RealDisk(), open_files_max=self._open_files_max)
        try:
            self._log = directory.open_log(self._name, self._config, now_ms=self._runtime.now_ms(), directory=self.path)
            self._log.flush_now()
        except BaseException:
            directory.close(clean=False)
            raise
        self._directory = directory
        self._end = self._log.log_end_offset
        self._log.on_flushed = self._on_flushed
        self._log.on_failed = self._on_failed
        self._log.on_flush_wanted = lambda: self._flusher.flush_soon(self._log)

    async def close(self) -> None:
        """Finish what was appended, and leave a directory that opens without recovery."""
        directory, self._directory = self._directory, None
        if directory is None:
            return
        self._write_turn()
        while not self._flusher.is_idle:  # noqa: ASYNC110  # one flush at the very end
            await asyncio.sleep(0.001)
        self._log.close()
        self._runtime.close()
        directory.write_checkpoints({self._name: (self._log, self._log.log_end_offset)})
        directory.close(clean=self._log.flushed_offset == self._log.log_end_offset)
        self._fail_all(Closed(f"{self.path} was closed"))

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Positions

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """Return the offset after the last record that may be read."""
        return self._end

    # Writing

    async def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[Header] = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Append one record; its offset, once it is as safe as `flush.mode` says.

        Records that are appended in the same turn of the loop share a write and a flush.
        """
        self._check_open()
        now_ms = self._runtime.now_ms()
        if timestamp_ms is None:
            timestamp_ms = now_ms
        if not self._flush_before_ack:
            return self._write_unflushed(encode_record(value, key, tuple(headers), timestamp_ms), now_ms)
        batch = encode_record(value, key, tuple(headers), timestamp_ms)
        written: asyncio.Future[int] = self._runtime.loop.create_future()
        if self._last_turn_count <= 1 and not self._turn and self._flusher.is_idle:
            # A lone writer is not kept waiting for company; where the last turn had several, this one will too.
            self._write(batch, [written], now_ms)
        else:
            if not self._turn:
                self._runtime.call_soon(self._write_turn)
            self._turn.append((batch, timestamp_ms, written))
        return await written

    async def append_many(self, records: Iterable[Record]) -> int:
        """Append records as one batch, all or none; the offset of the first."""
        self._check_open()
        given = list(records)
        if not given:
            raise ValueError("append_many needs at least one record")
        now_ms = self._runtime.now_ms()
        if not self._flush_before_ack:
            return self._write_unflushed(encode_batch(given), now_ms)
        self._write_turn()
        written: asyncio.Future[int] = self._runtime.loop.create_future()
        self._write(encode_batch(given), [written], now_ms)
        return await written

    def _write_unflushed(self, batch: bytes, now_ms: int) -> int:
        offset = self._append(batch, now_ms)
        if self._log.unflushed >= self._config.flush_messages:
            self._flusher.flush_soon(self._log)
        self._advance(self._log.log_end_offset)
        return offset

    def _write_turn(self) -> None:
        """Write what this turn of the loop brought, a moderate number of bytes at a time."""
        # A caller that was cancelled before anything was written is as if it had never asked.
        turn = [each for each in self._turn if not each[2].done()]
        self._turn = []
        self._last_turn_count = len(turn)
        now_ms = self._runtime.now_ms()
        while turn:
            size = count = 0
            while count < len(turn) and (count == 0 or size < RUN_BYTES):
                size += len(turn[count][0])
                count += 1
            batches, timestamps, waiting = zip(*turn[:count], strict=True)
            del turn[:count]
            try:
                base_offset = append_run(self._log, batches, timestamps, leader_epoch=LEADER_EPOCH, now_ms=now_ms)
            except StrandlineError as error:
                _fail(waiting, error)
            else:
                self._flush(base_offset, waiting)

    def _write(self, batch: bytes, waiting: Sequence[asyncio.Future[int]], now_ms: int) -> None:
        """Append one batch, and have it flushed; the callers learn their offsets then."""
        try:
            base_offset = self._append(batch, now_ms)
        except StrandlineError as error:
            _fail(waiting, error)
        else:
            self._flush(base_offset, waiting)

    def _flush(self, base_offset: int, waiting: Sequence[asyncio.Future[int]]) -> None:
        self._waiting.append((self._log.log_end_offset, base_offset, waiting))
        self._flusher.flush(self._log)

    def _append(self, batch: bytes, now_ms: int) -> int:
        owned = bytearray(batch)
        return self._log.append(owned, HEADER.unpack_from(owned), leader_epoch=LEADER_EPOCH, now_ms=now_ms)

    def _check_open(self) -> None:
        if self._directory is None:
            raise Closed(f"{self.path} is not open")

    def _on_flushed(self) -> None:
        if self._flush_before_ack:
            self._advance(self._log.flushed_offset)

    def _advance(self, end: int) -> None:
        if end <= self._end:
            return
        self._end = end
        waiting = self._waiting
        while waiting and waiting[0][0] <= end:
            _, base_offset, written = waiting.popleft()
            for offset, each in enumerate(written, base_offset):
                if not each.done():
                    each.set_result(offset)
        if self._followers:
            followers, self._followers = self._followers, set()
            for follower in followers:
                if not follower.done():
                    follower.set_result(None)

    def _on_failed(self, error: StrandlineError) -> None:
        self._fail_all(error)

    def _fail_all(self, error: StrandlineError) -> None:
        for _, _, written in self._waiting:
            _fail(written, error)
        _fail(self._followers, error)
        self._waiting.clear()
        self._followers.clear()

    # Reading

    async def read(self, offset: int) -> Record:
        """Return the record at `offset`."""
        return self.read_nowait(offset)

    def read_nowait(self, offset: int) -> Record:
        """Return the record at `offset`, for callers that have no await to spare; may wait for the disk."""
        if self._directory is None:
            self._check_open()
        log = self._log
        if not log.log_start_offset <= offset < self._end:
            raise OffsetOutOfRange(f"offset {offset} is outside {log.log_start_offset} to {self._end} of {self.path}")
        segment = log.segment_of(offset)
        assert segment is not None
        position, following = segment.index.span_of(offset - segment.base_offset)
        if position < segment.verified_from:
            return self._read_through(offset)
        file = segment.file()
        record = None
        if following > position:
            # No more than needed: of what a read costs, most is copying bytes that no cache of the processor holds.
            record = read_record(file.read_at(position, min(following - position, self._read_bytes)), offset)
            position = following
        if record is None:
            record = read_record(file.read_at(position, min(segment.size_bytes - position, self._read_bytes)), offset)
        return record or self._read_through(offset)

    def _read_through(self, offset: int) -> Record:
        """Any batch: compressed, of many records, or larger than what is read ahead."""
        piece = self._log.read(offset, size_bytes_max=1)
        if piece is None:
            raise OffsetOutOfRange(f"there is no record at offset {offset} of {self.path} any more")
        try:
            data = piece.read()
        finally:
            piece.release()
        for record in records_of(data):
            if record.offset == offset:
                return record
        raise OffsetOutOfRange(f"there is no record at offset {offset} of {self.path} any more")

    async def scan(self, start: int | None = None, *, follow: bool = False) -> AsyncIterator[Record]:
        """Yield records from `start` (default: the first) to the end; with `follow`, and on as they come."""
        offset = self._log.log_start_offset if start is None else start
        while True:
            self._check_open()
            piece = self._log.read(offset, size_bytes_max=READ_BYTES, limit_offset=self._end)
            if piece is None:
                if not follow:
                    return
                follower: asyncio.Future[None] = self._runtime.loop.create_future()
                self._followers.add(follower)
                await follower
                continue
            try:
                data = piece.read()
            finally:
                piece.release()
            for record in records_of(data):
                if record.offset >= offset:
                    yield record
                    offset = record.offset + 1
            await asyncio.sleep(0)

    def offset_at(self, timestamp_ms: int) -> int:
        """The offset of the first record at or after a time; the end if there is none."""
        self._check_open()
        found = find_time(
            self._log.segments,
            timestamp_ms,
            start_offset=self._log.log_start_offset,
            limit_offset=self._end,
        )
        return self._end if found is None else found.offset

    # Forgetting

    def trim(self, start_offset: int) -> None:
        """Forget everything below `start_offset`."""
        self._check_open()
        trim_now(self._log, start_offset)


def _fail(waiting: Iterable[asyncio.Future[Any]], error: StrandlineError) -> None:
    for each in waiting:
        if not each.done():
            each.set_exception(error)
