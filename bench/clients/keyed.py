"""Fills a topic of one partition with records that have keys: from a seed, so the same batches for every broker.

A batch is made once for its layout; then only keys, numbers and times change in it, and the CRC. At the end come some
tombstones and some records with headers, which a comparison of what the cleaners leave should see, too.
"""

from __future__ import annotations

import random
import struct
from typing import Final

from crc32c import crc32c

from bench.clients.turn import finish, task, wait_for_sign
from bench.wire import PRODUCE, PRODUCE_VERSION, Connection, ServerRefused, compact_string, frame, uvarint
from strandline.codec.columns import Record, decode_batch, encode_batch
from strandline.codec.compression import compress
from strandline.codec.record_batch import CRC_POSITION, CRC_START, HEADER_SIZE, LENGTH_POSITION, PREFIX_SIZE

BATCH_BYTES: Final = 64 * 1024
FIRST_MS: Final = 1_750_000_000_000
TOMBSTONES: Final = 1_000
_BASE_TIMESTAMP_AT: Final = 27


class KeyedBatches:
    """Batches of one layout: fixed lengths of keys and values, so that they can be changed in place."""

    def __init__(self, *, keys: int, value_bytes: int, codec: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.keys = keys
        self.codec = codec
        self.rows = max(1, BATCH_BYTES // (value_bytes + 30))
        # Half of a value says nothing new, as in most people's records: a codec finds something to do.
        rest = (b" state: paid" * value_bytes)[: value_bytes - value_bytes // 2]
        values = [self.random.randbytes(value_bytes // 2) + rest for _ in range(self.rows)]
        records = [Record(timestamp_ms=FIRST_MS, key=key_of(0), value=value) for value in values]
        self.batch = bytearray(encode_batch(records))
        columns = decode_batch(self.batch)
        self.key_starts = [HEADER_SIZE + start for start in columns.key_start]
        self.value_starts = [HEADER_SIZE + start for start in columns.value_start]

    def make(self, number: int) -> bytes:
        """The batch of this number. Its times grow with it."""
        batch, keys = self.batch, self.keys
        for row, (key_start, value_start) in enumerate(zip(self.key_starts, self.value_starts, strict=True)):
            key = key_of(self.random.randrange(keys))
            batch[key_start : key_start + len(key)] = key
            batch[value_start : value_start + 8] = b"%08d" % ((number * self.rows + row) % 100_000_000)
        made = batch
        if self.codec:
            made = batch[:HEADER_SIZE] + compress(self.codec, memoryview(batch)[HEADER_SIZE:])
            struct.pack_into(">i", made, LENGTH_POSITION, len(made) - PREFIX_SIZE)
            made[CRC_START + 1] |= self.codec
        struct.pack_into(">qq", made, _BASE_TIMESTAMP_AT, FIRST_MS + number, FIRST_MS + number)
        struct.pack_into(">I", made, CRC_POSITION, crc32c(memoryview(made)[CRC_START:]))
        return bytes(made)


def key_of(number: int) -> bytes:
    return b"key-%010d" % number


def last_batches(codec: int) -> list[bytes]:
    later = FIRST_MS + 1_000_000
    tombstones = [Record(timestamp_ms=later + number, key=key_of(number)) for number in range(TOMBSTONES)]
    with_headers = [
        Record(
            timestamp_ms=later,
            key=key_of(number),
            value=b"%d" % number,
            headers=(("at", b"%d" % number), ("none", None)),
        )
        for number in range(TOMBSTONES // 2, 2 * TOMBSTONES)
    ]
    return [encode_batch(tombstones, compression=codec), encode_batch(with_headers, compression=codec)]


def produce(connection: Connection, topic: str, batch: bytes) -> None:
    acks_leader, timeout_ms = 1, 30_000
    body = b"\0" + struct.pack(">hi", acks_leader, timeout_ms) + uvarint(2) + compact_string(topic) + uvarint(2)
    body += struct.pack(">i", 0) + uvarint(len(batch) + 1) + batch + b"\0\0\0"
    answer = connection.exchange(frame(PRODUCE, PRODUCE_VERSION, body, flexible=True))
    error = struct.unpack_from(">h", answer, 4 + 4 + 1 + 1 + len(compact_string(topic)) + 1 + 4)[0]
    if error:
        raise ServerRefused(f"Produce: error code {error}")


def main() -> None:
    options = task()
    host, _, port = options["bootstrap"].partition(":")
    topic, codec = options["topic"], options["codec"]
    batches = KeyedBatches(keys=options["keys"], value_bytes=options["value_bytes"], codec=codec, seed=options["seed"])
    with Connection(host, int(port)) as connection:
        wait_for_sign()
        sent = sent_bytes = 0
        while sent < options["records"]:
            batch = batches.make(sent // batches.rows)
            produce(connection, topic, batch)
            sent += batches.rows
            sent_bytes += len(batch)
        for batch in last_batches(codec):
            produce(connection, topic, batch)
        sent += TOMBSTONES + TOMBSTONES * 3 // 2
        finish(records=sent, bytes=sent_bytes)


if __name__ == "__main__":
    main()
