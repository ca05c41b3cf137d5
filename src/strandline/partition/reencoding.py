"""Batches that must be opened before they are stored: another codec than the topic's, or a topic that wants keys.

    compression.type      a batch of another codec is inflated and deflated anew, as a block: records are not looked at,
                          the header keeps everything but the codec, the length and the CRC
    cleanup.policy        a compacted topic refuses records without a key

A small batch is opened at once, on the loop (`opened_now`). For a large one, or a small one that becomes large,
`opened_now` raises OpensLater, and a `Reencoder` does it: codecs run in a thread, because they let go of the GIL; the
walk over keys does not, so it is done on the loop, some records a turn. One batch at a time, in the order in which they
came, so that however many clients send what must be opened, memory holds one opened batch, and flushes find a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from crc32c import crc32c

from strandline.codec.columns.shares import RecordScan
from strandline.codec.compression import Compression, compress, decompress
from strandline.codec.record_batch import (
    COMPRESSION_MASK,
    CRC_POSITION,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_POSITION,
    PREFIX_SIZE,
    BatchHeader,
    Buffer,
    HeaderFields,
)
from strandline.errors import BatchTooLarge, CorruptBatch, ErrorCode, InvalidBatch, RequestError
from strandline.partition.turnstile import Turnstile
from strandline.runtime import Runtime
from strandline.topic_config import TopicConfig

ON_LOOP_BYTES_MAX: Final = 64 * 1024
"""A records section, compressed or not, that is opened on the loop: a few milliseconds at the worst."""
ZSTD_ON_LOOP_LEVEL_MAX: Final = 12
"""Above it zstd takes a tenth of a second for little."""
OPENED_BYTES_MAX: Final = 32 * 1024 * 1024
"""What a batch may become when it is opened. It is held twice for a moment, which makes 64 MiB."""
RECORDS_PER_TURN_MAX: Final = 1024
"""Records whose keys are looked at in one turn of the loop."""
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Batches that wait to be opened, of all partitions; beyond it producers are told to try again."""

_ATTRIBUTES_POSITION: Final = 21

Done = Callable[[bytearray | None, BaseException | None], object]


class OpensLater(Exception):
    """The batch must be opened, and that is too much for one turn of the loop: ask a `Reencoder`."""


def opened_now(batch: memoryview | bytearray, header: HeaderFields, config: TopicConfig) -> memoryview | bytearray:
    """`batch` as the topic wants it, itself where it is so already; OpensLater if that would stall the loop."""
    target = _target_codec(header, config)
    if target is None and not config.compact:
        return batch
    size = len(batch) - HEADER_SIZE
    if (
        size > ON_LOOP_BYTES_MAX
        or (config.compact and header[12] > RECORDS_PER_TURN_MAX)
        or (target == Compression.ZSTD and config.compression_zstd_level > ZSTD_ON_LOOP_LEVEL_MAX)
    ):
        raise OpensLater
    try:
        payload = _inflated(batch, header, size_bytes_max=ON_LOOP_BYTES_MAX)
    except BatchTooLarge:
        raise OpensLater from None
    if config.compact:
        _check_next_keys(_key_scan(header, payload))
    return batch if target is None else _deflated(batch, payload, target, config)


def _target_codec(header: HeaderFields, config: TopicConfig) -> int | None:
    """The codec that the batch must get, or none if it may keep its own."""
    target = config.compression_codec
    return None if target < 0 or target == header[5] & COMPRESSION_MASK else target


def _inflated(batch: Buffer, header: HeaderFields, *, size_bytes_max: int) -> Buffer:
    payload = memoryview(batch)[HEADER_SIZE:]
    codec = header[5] & COMPRESSION_MASK
    if not codec:
        return payload
    try:
        return decompress(codec, payload, size_bytes_max=size_bytes_max)
    except CorruptBatch as error:
        # The CRC is right, so the producer meant it: sending it again would not help.
        raise InvalidBatch(str(error)) from error


def _key_scan(header: HeaderFields, payload: Buffer) -> RecordScan:
    try:
        return RecordScan(BatchHeader._make(header), payload, records_max=RECORDS_PER_TURN_MAX)
    except CorruptBatch as error:
        raise InvalidBatch(str(error)) from error


def _check_next_keys(scan: RecordScan) -> None:
    """Look at the next records; InvalidBatch for one without a key, or what is none."""
    try:
        scan.step()
    except CorruptBatch as error:
        raise InvalidBatch(str(error)) from error
    if min(scan.key_lengths) < 0:
        raise InvalidBatch("a compacted topic takes no records without a key")


def _deflated(batch: Buffer, payload: Buffer, codec: int, config: TopicConfig) -> bytearray:
    """The batch with its records in another codec: header, then `payload` deflated, and a CRC over all of it."""
    records = payload if codec == Compression.NONE else compress(codec, payload, level=_level(codec, config))
    if HEADER_SIZE + len(records) > config.max_message_bytes:
        raise BatchTooLarge(
            f"a batch of {HEADER_SIZE + len(records)} bytes once it has the topic's compression.type "
            f"{config.compression_type}; max.message.bytes is {config.max_message_bytes}"
        )
    # Sized once and filled, so that the records are copied a single time.
    encoded = bytearray(HEADER_SIZE + len(records))
    encoded[:HEADER_SIZE] = batch[:HEADER_SIZE]
    encoded[HEADER_SIZE:] = records
    encoded[LENGTH_POSITION : LENGTH_POSITION + 4] = (len(encoded) - PREFIX_SIZE).to_bytes(4, "big")
    # The codec's bits are the lowest three of an int16.
    low = _ATTRIBUTES_POSITION + 1
    encoded[low] = encoded[low] & ~COMPRESSION_MASK & 0xFF | codec
    crc = crc32c(memoryview(encoded)[CRC_START:])
    encoded[CRC_POSITION : CRC_POSITION + 4] = crc.to_bytes(4, "big")
    return encoded


def _level(codec: int, config: TopicConfig) -> int | None:
    match codec:
        case Compression.GZIP:
            return config.compression_gzip_level
        case Compression.LZ4:
            return config.compression_lz4_level
        case Compression.ZSTD:
            return config.compression_zstd_level
    return None


class Reencoder:
    """Opens batches off the loop. Belongs to the node; every partition sends its batches here."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.turnstile = Turnstile()
        """Whoever opens a large batch passes here, look-ups by time as well."""
        self._under_way = 0
        self.held_bytes = 0

    @property
    def is_idle(self) -> bool:
        return not self._under_way

    def open(self, batch: bytearray, config: TopicConfig, done: Done) -> None:
        """Call `done(the batch as the topic wants it, or None, error or None)` on a later turn.

        The batch has passed `check_batch`. RequestError at once if too many wait already.
        """
        if self.held_bytes and self.held_bytes + len(batch) > HELD_BYTES_MAX:
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "too many batches wait for the topic's compression.type")
        self.held_bytes += len(batch)
        self._under_way += 1
        opening = _Opening(self._runtime, batch, config, partial(self._on_opened, done, len(batch)))
        self.turnstile.enter(opening.begin)

    def _on_opened(
        self, done: Done, held_bytes: int, batch: bytearray | None = None, error: BaseException | None = None
    ) -> None:
        self.held_bytes -= held_bytes
        self._under_way -= 1
        self.turnstile.leave()
        done(batch, error)


class _Opening:
    """One batch on its way: inflated in a thread, looked at on the loop, deflated in a thread, as far as is needed."""

    def __init__(self, runtime: Runtime, batch: bytearray, config: TopicConfig, done: Done) -> None:
        self._runtime = runtime
        self._batch = batch
        self._config = config
        self._done = done
        self._header: HeaderFields = HEADER.unpack_from(batch)
        self._target = _target_codec(self._header, config)

    def begin(self) -> None:
        size_bytes_max = OPENED_BYTES_MAX
        if self._target == Compression.NONE:
            # What does not fit into the topic need not be inflated to its end.
            size_bytes_max = min(size_bytes_max, max(0, self._config.max_message_bytes - HEADER_SIZE))
        inflate = partial(_inflated, self._batch, self._header, size_bytes_max=size_bytes_max)
        self._runtime.in_thread(inflate, self._on_inflated)

    def _on_inflated(self, payload: Buffer | None, error: BaseException | None) -> None:
        if payload is None:
            self._done(None, error)
        elif self._config.compact:
            self._look_at_keys(None, payload)
        else:
            self._deflate(payload)

    def _look_at_keys(self, scan: RecordScan | None, payload: Buffer) -> None:
        try:
            scan = scan or _key_scan(self._header, payload)
            _check_next_keys(scan)
        except InvalidBatch as refusal:
            self._done(None, refusal)
            return
        if scan.has_more:
            self._runtime.call_soon(self._look_at_keys, scan, payload)
        else:
            self._deflate(payload)

    def _deflate(self, payload: Buffer) -> None:
        if self._target is None:
            self._done(self._batch, None)
        else:
            deflate = partial(_deflated, self._batch, payload, self._target, self._config)
            self._runtime.in_thread(deflate, self._done)
