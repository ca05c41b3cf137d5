"""The few Kafka requests the harness writes by hand, where a client library would blur the figure.

Administrative requests go out in old versions of fixed layout, Produce and Metadata in those that librdkafka sends.

    frame    size int32 | api key int16 | version int16 | correlation id int32 | client id string | [tags] | body
    batch    base offset int64 | length int32 | leader epoch int32 | magic int8 | crc int32 | attributes int16 |
             last offset delta int32 | base and max timestamp int64 | producer id int64 | producer epoch int16 |
             base sequence int32 | count int32 | records
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from types import TracebackType

import crc32c

PRODUCE, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 2, 3, 18
CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID = 19, 20, 22
PRODUCE_VERSION, METADATA_VERSION = 10, 12
NO_PRODUCER = -1

_CLIENT_ID = b"bench"
_BATCH_HEAD = struct.Struct(">qiibI")
_BATCH_BODY = struct.Struct(">hiqqqhii")
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_BASE_SEQUENCE_AT = 53


class PeerClosed(Exception):
    """The server closed the connection in the middle of a conversation."""


class ServerRefused(Exception):
    """The server answered with an error code."""


def frame(api_key: int, version: int, body: bytes, *, flexible: bool = False, correlation_id: int = 1) -> bytes:
    head = struct.pack(">hhih", api_key, version, correlation_id, len(_CLIENT_ID)) + _CLIENT_ID
    if flexible:
        head += b"\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


def string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def uvarint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def varint(number: int) -> bytes:
    return uvarint(number << 1 if number >= 0 else (-number << 1) - 1)


def compact_string(text: str) -> bytes:
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


def one_record_batch(
    value: bytes, *, producer_id: int = NO_PRODUCER, producer_epoch: int = -1, base_sequence: int = -1
) -> bytearray:
    """A record batch of magic 2 with one record, no key, no headers, uncompressed."""
    fields = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    record = varint(len(fields)) + fields
    now_ms = time.time_ns() // 1_000_000
    body = _BATCH_BODY.pack(0, 0, now_ms, now_ms, producer_id, producer_epoch, base_sequence, 1) + record
    head = _BATCH_HEAD.pack(0, len(body) + 9, -1, 2, crc32c.crc32c(body))
    return bytearray(head + body)


class OneRecordProduce:
    """A Produce request with one record, built once; before each sending only the sequence and the CRC change."""

    def __init__(self, topic: str, partition: int, value: bytes, producer: tuple[int, int] | None = None) -> None:
        producer_id, producer_epoch = producer or (NO_PRODUCER, -1)
        self.sequence = 0 if producer else -1
        batch = one_record_batch(
            value, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=self.sequence
        )
        acks_all, timeout_ms = -1, 30_000
        body = b"\0" + struct.pack(">hi", acks_all, timeout_ms) + uvarint(2) + compact_string(topic) + uvarint(2)
        body += struct.pack(">i", partition) + uvarint(len(batch) + 1) + batch + b"\0\0\0"
        self.request = bytearray(frame(PRODUCE, PRODUCE_VERSION, body, flexible=True))
        self._batch_at = len(self.request) - len(batch) - 3
        self._batch_end = len(self.request) - 3
        # size, correlation id, header tags, topic array, name, partition array, partition index
        self._error_at = 4 + 4 + 1 + 1 + len(compact_string(topic)) + 1 + 4

    def advance(self) -> None:
        """Give the next request its sequence; without a producer id there is nothing to change."""
        if self.sequence < 0:
            return
        self.sequence += 1
        struct.pack_into(">i", self.request, self._batch_at + _BASE_SEQUENCE_AT, self.sequence)
        checked = memoryview(self.request)[self._batch_at + _ATTRIBUTES_AT : self._batch_end]
        struct.pack_into(">I", self.request, self._batch_at + _CRC_AT, crc32c.crc32c(checked))

    def error_of(self, answer: bytes | bytearray | memoryview) -> int:
        """The partition's error code in an answer that still has its size in front."""
        return int(struct.unpack_from(">h", answer, self._error_at)[0])


def metadata_request(topics: list[str] | None) -> bytes:
    """Metadata as librdkafka asks for it; None means every topic."""
    if topics is None:
        body = b"\0"
    else:
        body = uvarint(len(topics) + 1)
        body += b"".join(bytes(16) + compact_string(topic) + b"\0" for topic in topics)
    return frame(METADATA, METADATA_VERSION, body + b"\0\0\0", flexible=True)


class Connection:
    """A blocking connection for one request at a time."""

    def __init__(self, host: str, port: int, *, timeout_s: float = 30.0) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def exchange(self, request: bytes | bytearray) -> bytes:
        """Send one framed request and return its answer, size in front."""
        self.socket.sendall(request)
        size = self._receive(4)
        return size + self._receive(int(struct.unpack(">i", size)[0]))

    def _receive(self, size_bytes: int) -> bytes:
        parts = bytearray()
        while len(parts) < size_bytes:
            part = self.socket.recv(size_bytes - len(parts))
            if not part:
                raise PeerClosed(f"after {len(parts)} of {size_bytes} bytes")
            parts += part
        return bytes(parts)

    def api_versions(self) -> None:
        answer = self.exchange(frame(API_VERSIONS, 0, b""))
        _raise_for(struct.unpack_from(">h", answer, 8)[0], "ApiVersions")

    def broker_count(self) -> int:
        answer = self.exchange(frame(METADATA, 1, struct.pack(">i", 0)))
        return int(struct.unpack_from(">i", answer, 8)[0])

    def init_producer_id(self) -> tuple[int, int]:
        """A fresh producer id and epoch, for an idempotent producer without transactions."""
        deadline = time.perf_counter() + 30
        coordinator_errors = (14, 15, 16)
        while True:
            answer = self.exchange(frame(INIT_PRODUCER_ID, 0, string(None) + struct.pack(">i", 60_000)))
            error, producer_id, epoch = struct.unpack_from(">hqh", answer, 12)
            if error in coordinator_errors and time.perf_counter() < deadline:
                time.sleep(0.05)
                continue
            _raise_for(error, "InitProducerId")
            return producer_id, epoch

    def create_topic(
        self, topic: str, partitions: int, settings: Mapping[str, str], *, timeout_ms: int = 60_000
    ) -> None:
        body = struct.pack(">i", 1) + string(topic) + struct.pack(">ihi", partitions, 1, 0)
        body += struct.pack(">i", len(settings)) + b"".join(
            string(key) + string(text) for key, text in settings.items()
        )
        body += struct.pack(">ib", timeout_ms, 0)
        answer = self.exchange(frame(CREATE_TOPICS, 4, body))
        error_at = 16 + len(string(topic))
        _raise_for(struct.unpack_from(">h", answer, error_at)[0], f"CreateTopics {topic}")

    def delete_topic(self, topic: str) -> None:
        answer = self.exchange(
            frame(DELETE_TOPICS, 3, struct.pack(">i", 1) + string(topic) + struct.pack(">i", 60_000))
        )
        _raise_for(struct.unpack_from(">h", answer, 16 + len(string(topic)))[0], f"DeleteTopics {topic}")

    def ask_for_topic(self, topic: str) -> None:
        """Metadata for one topic with leave to create it, as a producer's first request does."""
        self.exchange(frame(METADATA, 4, struct.pack(">i", 1) + string(topic) + b"\1"))

    def serving_partitions(self, topic: str, partitions: int) -> int:
        """How many of the topic's partitions answer ListOffsets: Metadata names a leader before it serves."""
        body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">i", partitions)
        body += b"".join(struct.pack(">iq", partition, -1) for partition in range(partitions))
        answer = self.exchange(frame(LIST_OFFSETS, 1, body))
        first_at = 8 + 4 + len(string(topic)) + 4
        answers = struct.iter_unpack(">ihqq", answer[first_at : first_at + 22 * partitions])
        return sum(error == 0 for _, error, _, _ in answers)


def _raise_for(error: int, request: str) -> None:
    if error != 0:
        raise ServerRefused(f"{request}: error code {error}")
