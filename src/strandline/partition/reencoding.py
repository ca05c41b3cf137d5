"""What a leader does to a producer's batch before it stores it: check its records, and open it where that is needed.

    records               readers must be able to read every one: an uncompressed batch is always checked, a
                          compressed one as `strandline.validate.records` says
    compression.type      a batch of another codec is inflated and deflated again, as a block: the header keeps
                          everything but the codec, the length and the CRC
    cleanup.policy        a compacted topic refuses records without a key
    schema validation     keys and values must have ids of registered schemas: `record_validation`

A small batch is done at once, on the loop (`opened_now`). For a large one, or a small one that becomes large,
`opened_now` raises OpensLater, and a `Reencoder` does it: codecs run in a thread, because they release the GIL; the
walk over records does not, so it is done on the loop, some records a turn. One batch at a time, in the order in which
they came. So memory holds one opened batch, however many clients send such batches, and flushes find a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NoReturn

from strandline.codec.checksum import crc32c
from strandline.codec.columns._check import check_records, is_compiled
from strandline.codec.columns.schema_codes import FAULTS_MAX
from strandline.codec.compression import Compression, compress, decompress
from strandline.codec.record_batch import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    COMPRESSION_MASK,
    CRC_POSITION,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_APPEND_TIME,
    PREFIX_SIZE,
    RECORD_COUNT,
    Buffer,
    HeaderFields,
)
from strandline.config.topic_config import TopicConfig
from strandline.errors import (
    BatchTooLarge,
    CorruptBatch,
    ErrorCode,
    InvalidBatch,
    InvalidRecords,
    RequestError,
    ValidationBehind,
)
from strandline.partition.record_validation import RecordFault, RecordValidation, reject
from strandline.partition.serial_gate import SerialGate
from strandline.runtime.runtime import Runtime

ON_LOOP_BYTES_MAX: Final = 64 * 1024
"""A records section, compressed or not, that is opened on the loop: a few milliseconds at the worst. A compressed one
that is larger is only opened to be checked if `strandline.validate.records` is `all`."""
INFLATED_ON_LOOP_BYTES_MAX: Final = 256 * 1024
"""What a small section may become on the loop where it is only checked: no codec needs more than a millisecond."""
ZSTD_ON_LOOP_LEVEL_MAX: Final = 12
"""Above it zstd takes a tenth of a second for little."""
OPENED_BYTES_MAX: Final = 32 * 1024 * 1024
"""What a batch may become when it is opened. It is held twice for a moment, which makes 64 MiB."""
RECORDS_PER_TURN_MAX: Final = 65_536 if is_compiled() else 1_024
"""Records that are checked in one turn of the loop: a millisecond or two, compiled or not."""
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Batches of all partitions that wait to be opened; beyond it producers get a retriable error."""

_ATTRIBUTES_POSITION: Final = 21
_COMPILED: Final = is_compiled()
_NOT_PLAIN: Final = COMPRESSION_MASK | LOG_APPEND_TIME

Done = Callable[[bytearray | None, BaseException | None], object]


class OpensLater(Exception):
    """The batch must be opened, and that is too much for one turn of the loop: ask a `Reencoder`."""


def opened_now(
    batch: memoryview | bytearray,
    header: HeaderFields,
    config: TopicConfig,
    validation: RecordValidation | None = None,
) -> memoryview | bytearray:
    """Return `batch` as the topic wants it, itself where it is so already; OpensLater if that would stall the loop.

    Raises InvalidBatch for records that no reader could read.
    """
    count = header[RECORD_COUNT]
    if _COMPILED and config.keeps_plain and not header[ATTRIBUTES] & _NOT_PLAIN and count <= RECORDS_PER_TURN_MAX:
        # The path of most requests: one call, nothing copied.
        size = len(batch)
        end = check_records(batch, HEADER_SIZE, size, 0, count, header[BASE_TIMESTAMP], None)
        if end != size:
            _refuse(count, size - end, None)
        return batch
    target = _target_codec(header, config)
    if target is None:
        if not header[ATTRIBUTES] & COMPRESSION_MASK:
            if count > RECORDS_PER_TURN_MAX:
                raise OpensLater
            _check_at_once(header, batch, HEADER_SIZE, config, validation)
            return batch
        if not _is_checked(len(batch), config):
            return batch
        size_bytes_max = INFLATED_ON_LOOP_BYTES_MAX
    else:
        size_bytes_max = ON_LOOP_BYTES_MAX
    if (
        len(batch) - HEADER_SIZE > ON_LOOP_BYTES_MAX
        or count > RECORDS_PER_TURN_MAX
        or (target == Compression.ZSTD and config.compression_zstd_level > ZSTD_ON_LOOP_LEVEL_MAX)
    ):
        raise OpensLater
    try:
        payload = _inflated(batch, header, size_bytes_max=size_bytes_max)
    except BatchTooLarge:
        raise OpensLater from None
    _check_at_once(header, payload, 0, config, validation)
    return batch if target is None else _deflated(batch, payload, target, config)


def _target_codec(header: HeaderFields, config: TopicConfig) -> int | None:
    """Return the codec that the batch must get, or None if it may keep its own."""
    target = config.compression_codec
    return None if target < 0 or target == header[ATTRIBUTES] & COMPRESSION_MASK else target


def _is_checked(size_bytes: int, config: TopicConfig) -> bool:
    """Return whether a compressed batch that keeps its codec is opened."""
    if config.compact or config.validates_schemas:
        return True
    mode = config.validate_records
    return mode == "all" or (mode == "auto" and size_bytes - HEADER_SIZE <= ON_LOOP_BYTES_MAX)


def _inflated(batch: Buffer, header: HeaderFields, *, size_bytes_max: int) -> Buffer:
    payload = memoryview(batch)[HEADER_SIZE:]
    codec = header[ATTRIBUTES] & COMPRESSION_MASK
    if not codec:
        return payload
    try:
        return decompress(codec, payload, size_bytes_max=size_bytes_max)
    except CorruptBatch as error:
        # The CRC is right, so the producer meant it: sending it again would not help.
        raise InvalidBatch(str(error)) from error


def _check_at_once(
    header: HeaderFields, payload: Buffer, position: int, config: TopicConfig, validation: RecordValidation | None
) -> None:
    """Check all records of a batch; they begin at `position`. InvalidBatch if no reader could read them."""
    if validation is not None:
        _validate_at_once(header, payload, position, config, validation)
        return
    keyless: list[int] | None = [] if config.compact else None
    size, count = len(payload), header[RECORD_COUNT]
    # Plain Python indexes bytes faster than a view.
    records = payload if _COMPILED else bytes(payload)
    end = check_records(records, position, size, 0, count, _base_timestamp(header, config), keyless)
    if end != size or keyless:
        _refuse(count, size - end, keyless)


def _validate_at_once(
    header: HeaderFields, payload: Buffer, position: int, config: TopicConfig, validation: RecordValidation
) -> None:
    """Check all records and their schemas. OpensLater if that takes too long, or depends on what is registered now."""
    faults: list[RecordFault] = []
    size, count = len(payload), header[RECORD_COUNT]
    records = payload if _COMPILED else bytes(payload)
    base_timestamp = _base_timestamp(header, config)
    end, row = validation.check(records, position, size, 0, count, base_timestamp, faults)
    if faults or row < count:
        if len(faults) < FAULTS_MAX and row < count:
            raise OpensLater
        if any(each.may_pass_later for each in faults):
            raise OpensLater
        reject(faults, is_current=True)
    if end != size:
        _refuse(count, size - end, None)


def _base_timestamp(header: HeaderFields, config: TopicConfig) -> int:
    """Return what the decoder adds to each timestamp delta: nothing with LogAppendTime, where deltas do not count."""
    return 0 if config.log_append_time or header[ATTRIBUTES] & LOG_APPEND_TIME else header[BASE_TIMESTAMP]


def _refuse(count: int, bytes_left: int, keyless: list[int] | None) -> NoReturn:
    if bytes_left:
        raise InvalidBatch(f"{bytes_left} bytes follow the {count} records that the header counts")
    fault = "a compacted topic takes no records without a key"
    raise InvalidRecords(fault, tuple((row, fault) for row in keyless or ()))


class RecordCheck:
    """The records of one large batch, `RECORDS_PER_TURN_MAX` of them checked a step."""

    __slots__ = (
        "_base_timestamp",
        "_count",
        "_faults",
        "_is_current",
        "_keyless",
        "_payload",
        "_position",
        "_row",
        "_validation",
    )

    def __init__(
        self,
        header: HeaderFields,
        payload: Buffer,
        config: TopicConfig,
        validation: RecordValidation | None = None,
        *,
        is_current: bool = False,
    ) -> None:
        """`is_current` says whether the validation knows all that is registered."""
        # A validation copies what is no bytes, and would do so in each step.
        self._payload = payload if _COMPILED and validation is None else bytes(payload)
        self._position = self._row = 0
        self._count = header[RECORD_COUNT]
        self._base_timestamp = _base_timestamp(header, config)
        self._keyless: list[int] | None = [] if config.compact else None
        self._validation = validation
        self._is_current = is_current
        self._faults: list[RecordFault] = []

    @property
    def has_more(self) -> bool:
        return self._row < self._count

    def step(self) -> None:
        """Check the next records; InvalidBatch if no reader could read them, or the topic does not take them."""
        size = len(self._payload)
        row_end = min(self._count, self._row + RECORDS_PER_TURN_MAX)
        if self._validation is not None:
            self._position, self._row = self._validation.check(
                self._payload, self._position, size, self._row, row_end, self._base_timestamp, self._faults
            )
            is_done = self._row == self._count or len(self._faults) >= FAULTS_MAX
            if is_done and self._faults:
                reject(self._faults, is_current=self._is_current)
        else:
            self._position = check_records(
                self._payload, self._position, size, self._row, row_end, self._base_timestamp, self._keyless
            )
            self._row = row_end
        if self._row == self._count and (self._position != size or self._keyless):
            _refuse(self._count, size - self._position, self._keyless)


def _deflated(batch: Buffer, payload: Buffer, codec: int, config: TopicConfig) -> bytearray:
    """Return the batch with its records in another codec: header, then `payload` deflated, and a CRC over all of it."""
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
    """The node's opener of large batches, off the loop, for all partitions."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.serial_gate = SerialGate()
        """Everything that opens a large batch waits here, look-ups by time as well."""
        self._under_way = 0
        self.held_bytes = 0

    @property
    def is_idle(self) -> bool:
        return not self._under_way

    def open(
        self, batch: bytearray, config: TopicConfig, done: Done, validation: RecordValidation | None = None
    ) -> None:
        """Call `done(the batch as the topic wants it, or None, error or None)` on a later turn.

        The batch has passed `check_batch`. RequestError at once if too many wait already.
        """
        if self.held_bytes and self.held_bytes + len(batch) > HELD_BYTES_MAX:
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "too many batches wait for the topic's compression.type")
        self.held_bytes += len(batch)
        self._under_way += 1
        opening = _Opening(self._runtime, batch, config, validation, partial(self._on_opened, done, len(batch)))
        if validation is None:
            self.serial_gate.enter(opening.begin)
        else:
            # Before it enters, because other batches must not wait for the topic of schemas.
            validation.catch_up(partial(self._enter, opening))

    def _enter(self, opening: _Opening, is_current: bool) -> None:
        opening.is_current = is_current
        self.serial_gate.enter(opening.begin)

    def _on_opened(
        self, done: Done, held_bytes: int, batch: bytearray | None = None, error: BaseException | None = None
    ) -> None:
        self.held_bytes -= held_bytes
        self._under_way -= 1
        self.serial_gate.leave()
        done(batch, error)


class _Opening:
    """One batch on its way: inflated in a thread, checked on the loop, deflated in a thread, as far as is needed."""

    def __init__(
        self,
        runtime: Runtime,
        batch: bytearray,
        config: TopicConfig,
        validation: RecordValidation | None,
        done: Done,
    ) -> None:
        self._runtime = runtime
        self._batch = batch
        self._config = config
        self._validation = validation
        self.is_current = False
        """Whether the validation learned all that was registered when the batch came."""
        self._done = done
        self._header: HeaderFields = HEADER.unpack_from(batch)
        self._target = _target_codec(self._header, config)

    def begin(self) -> None:
        if not self._header[ATTRIBUTES] & COMPRESSION_MASK:
            self._runtime.call_soon(self._on_inflated, memoryview(self._batch)[HEADER_SIZE:], None)
        elif self._target is None and not _is_checked(len(self._batch), self._config):
            # Nothing to do but to keep its place behind a batch of the same request.
            self._runtime.call_soon(self._done, self._batch, None)
        else:
            size_bytes_max = OPENED_BYTES_MAX
            if self._target == Compression.NONE:
                # What does not fit into the topic need not be inflated to its end.
                size_bytes_max = min(size_bytes_max, max(0, self._config.max_message_bytes - HEADER_SIZE))
            inflate = partial(_inflated, self._batch, self._header, size_bytes_max=size_bytes_max)
            self._runtime.in_thread(inflate, self._on_inflated)

    def _on_inflated(self, payload: Buffer | None, error: BaseException | None) -> None:
        if payload is None:
            self._done(None, error)
        else:
            check = RecordCheck(self._header, payload, self._config, self._validation, is_current=self.is_current)
            self._check(check, payload)

    def _check(self, check: RecordCheck, payload: Buffer) -> None:
        try:
            check.step()
        except (InvalidBatch, ValidationBehind) as refusal:
            self._done(None, refusal)
            return
        if check.has_more:
            self._runtime.call_soon(self._check, check, payload)
        elif self._target is None:
            self._done(self._batch, None)
        else:
            deflate = partial(_deflated, self._batch, payload, self._target, self._config)
            self._runtime.in_thread(deflate, self._done)
