"""Requests that are small for what they ask: arrays of the shortest elements that a format allows."""

from __future__ import annotations

import struct
from collections.abc import Callable


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def name(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def array(element: bytes, count: int) -> bytes:
    return struct.pack(">i", count) + element * count


def compact_array(element: bytes, count: int) -> bytes:
    return uvarint(count + 1) + element * count


def tags(count: int) -> bytes:
    return uvarint(count) + b"\x05\x00" * count


NO_TRANSACTION, ACKS_TIMEOUT = b"\xff\xff", struct.pack(">hi", 1, 100)
FETCH_4 = struct.pack(">iiiib", -1, 0, 0, 1000, 0)
FETCH_7 = struct.pack(">iiiibii", -1, 0, 0, 1000, 0, 0, -1)
ONE_TOPIC = struct.pack(">i", 1) + name(b"target")
MEMBERLESS_COMMIT = name(b"g") + struct.pack(">i", -1) + name(b"") + struct.pack(">q", -1)

FLOODS: dict[str, tuple[int, int, Callable[[int], bytes]]] = {
    "Produce 3 partitions": (
        0, 3, lambda n: NO_TRANSACTION + ACKS_TIMEOUT + ONE_TOPIC + array(struct.pack(">ii", 0, -1), n),
    ),
    "Produce 9 partitions": (
        0, 9, lambda n: b"\x00" + ACKS_TIMEOUT + b"\x02\x07target" + compact_array(bytes(6), n) + b"\x00\x00",
    ),
    "Produce 3 topics": (0, 3, lambda n: NO_TRANSACTION + ACKS_TIMEOUT + array(bytes(6), n)),
    "Fetch 4 partitions": (1, 4, lambda n: FETCH_4 + ONE_TOPIC + array(struct.pack(">iqi", 0, 0, 0), n)),
    "Fetch 7 forgotten": (1, 7, lambda n: FETCH_7 + bytes(4) + ONE_TOPIC + array(bytes(4), n)),
    "ListOffsets 1 partitions": (
        2, 1, lambda n: struct.pack(">i", -1) + ONE_TOPIC + array(struct.pack(">iq", 0, -1), n),
    ),
    "Metadata 1 names": (3, 1, lambda n: array(name(b""), n)),
    "Metadata 12 names": (3, 12, lambda n: compact_array(bytes(16) + b"\x02a\x00", n) + bytes(3)),
    "Metadata 12 ids": (3, 12, lambda n: compact_array(b"\x01" * 16 + b"\x00\x00", n) + bytes(3)),
    "OffsetCommit 2 partitions": (
        8, 2, lambda n: MEMBERLESS_COMMIT + ONE_TOPIC + array(struct.pack(">iq", 0, 1) + name(b""), n),
    ),
    "OffsetFetch 8 groups": (9, 8, lambda n: compact_array(b"\x02g\x00\x00", n) + b"\x00\x00"),
    "FindCoordinator 4 keys": (10, 4, lambda n: b"\x00" + compact_array(b"\x02g", n) + b"\x00"),
    "JoinGroup 0 protocols": (
        11, 0,
        lambda n: name(b"g") + struct.pack(">i", 6000) + name(b"") + name(b"c") + array(name(b"p") + bytes(4), n),
    ),
    "LeaveGroup 3 members": (13, 3, lambda n: name(b"g") + array(name(b"m") + b"\xff\xff", n)),
    "SyncGroup 0 assignments": (
        14, 0, lambda n: name(b"g") + bytes(4) + name(b"m") + array(name(b"m") + bytes(4), n),
    ),
    "DescribeGroups 0 names": (15, 0, lambda n: array(name(b"g"), n)),
    "DescribeGroups 5 empty names": (15, 5, lambda n: compact_array(b"\x01", n) + b"\x00\x00"),
    "ListGroups 4 states": (16, 4, lambda n: compact_array(b"\x02s", n) + b"\x00"),
    "ListGroups 5 types": (16, 5, lambda n: b"\x01" + compact_array(b"\x02t", n) + b"\x00"),
    "CreateTopics 2 topics": (
        19, 2, lambda n: array(name(b"a/b") + struct.pack(">ih", 1, 1) + bytes(8), n) + struct.pack(">ib", 100, 0),
    ),
    "DeleteGroups 0 names": (42, 0, lambda n: array(name(b"x"), n)),
    "OffsetDelete 0 partitions": (47, 0, lambda n: name(b"g") + ONE_TOPIC + array(bytes(4), n)),
    "OffsetDelete 0 topics": (47, 0, lambda n: name(b"g") + array(name(b"x") + bytes(4), n)),
    "DeleteTopics 1 names": (20, 1, lambda n: array(name(b"x"), n) + struct.pack(">i", 100)),
}  # fmt: skip

TAG_FLOODS: dict[str, tuple[int, int, Callable[[int], bytes]]] = {
    "Produce 9": (0, 9, lambda n: b"\x00" + ACKS_TIMEOUT + b"\x01" + tags(n)),
    "Fetch 12": (1, 12, lambda n: FETCH_7 + b"\x01\x01\x01" + tags(n)),
    "Fetch 15": (1, 15, lambda n: FETCH_7[4:] + b"\x01\x01\x01" + tags(n)),
    "Metadata 12": (3, 12, lambda n: b"\x01\x00\x00" + tags(n)),
    "ApiVersions 3": (18, 3, lambda n: b"\x02a\x02a" + tags(n)),
}
