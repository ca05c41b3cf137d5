"""Writes OpenTelemetry's MetricsData by hand, for tests of what reads it."""

from __future__ import annotations

import struct
from typing import NamedTuple


def varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def part(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def text_value(value: str) -> bytes:
    return part(1, value.encode())


def key_value(key: str, value: bytes) -> bytes:
    return part(1, key.encode()) + part(2, value)


class Sum(NamedTuple):
    value: float
    is_delta: bool = True
    is_monotonic: bool = True


def point(value: float, attributes: dict[str, str] | None = None) -> bytes:
    written = b"".join(part(7, key_value(key, text_value(each))) for key, each in (attributes or {}).items())
    if isinstance(value, int):
        return written + varint(6 << 3 | 1) + struct.pack("<q", value)
    return written + varint(4 << 3 | 1) + struct.pack("<d", value)


def metric(name: str, value: float | Sum, attributes: dict[str, str] | None = None) -> bytes:
    if isinstance(value, Sum):
        points = part(1, point(value.value, attributes))
        data = points + number_field(2, 1 if value.is_delta else 2) + number_field(3, int(value.is_monotonic))
        return part(1, name.encode()) + part(7, data)
    return part(1, name.encode()) + part(5, part(1, point(value, attributes)))


def metrics_data(*metrics: bytes, resource: dict[str, str] | None = None) -> bytes:
    about = b"".join(part(1, key_value(key, text_value(each))) for key, each in (resource or {}).items())
    return part(1, part(1, about) + part(2, b"".join(part(2, each) for each in metrics)))
