"""Record batches, and the ways to spoil them."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c

from strandline.codec.columns import Record, encode_batch
from strandline.codec.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.ids import ZERO_UUID

# Where the fields of a batch header stand, and how they are packed.
FIELDS = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}
CRC_AT, CRC_START, RECORDS_AT = 17, 21, 61


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def batch(values: Sequence[bytes] = (b"value",), **options: Any) -> bytes:
    at_ms = options.pop("timestamp_ms", None)
    at_ms = now_ms() if at_ms is None else at_ms
    return encode_batch([Record(timestamp_ms=at_ms, key=b"k", value=value) for value in values], **options)


def with_fields(good: bytes, **fields: int) -> bytes:
    """The batch with header fields changed; the CRC is made right again unless it is one of them."""
    changed = bytearray(good)
    for name, value in fields.items():
        at, layout = FIELDS[name]
        struct.pack_into(layout, changed, at, value)
    return bytes(changed) if "crc" in fields else with_crc(bytes(changed))


def with_crc(spoilt: bytes) -> bytes:
    return spoilt[:CRC_AT] + struct.pack(">I", crc32c(spoilt[CRC_START:])) + spoilt[CRC_START:]


def with_records(good: bytes, records: bytes) -> bytes:
    """The header of `good` before another records section, length and CRC fitting."""
    return with_fields(good[:RECORDS_AT] + records, length=RECORDS_AT - 12 + len(records))


def produce(topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, **options: Any) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=options.get("transactional_id"),
        acks=acks,
        timeout_ms=options.get("timeout_ms", 10_000),
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=options.get("topic_id", ZERO_UUID),
                partition_data=[PartitionProduceData(index=partition, records=records)],
            )
        ],
    )
