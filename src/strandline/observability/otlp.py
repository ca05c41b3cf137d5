"""Decodes the metrics that a client pushes: OpenTelemetry's MetricsData, in protobuf, with a limit on everything.

    MetricsData   { 1: ResourceMetrics* }
    ResourceMetrics { 1: Resource { 1: KeyValue* }, 2: ScopeMetrics* }
    ScopeMetrics  { 2: Metric* }
    Metric        { 1: name, 5: Gauge { 1: Point* }, 7: Sum { 1: Point*, 2: temporality, 3: is monotonic } }
    Point         { 7: KeyValue*, 4: double | 6: sfixed64 }
    KeyValue      { 1: key, 2: AnyValue { 1: string, 2: bool, 3: int64, 4: double } }

Kafka's clients send gauges and sums; histograms and all else are skipped. A reader is an iterator that yields a
`Point`, or None after it has read for a while without finding one, so that its caller can yield the loop. Bytes that
are no MetricsData raise MalformedMessage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from strandline.errors import MalformedMessage

POINTS_MAX: Final = 4_000
"""Data points of one push; a Java client has some two hundred."""
POINT_BYTES_MAX: Final = 8_192
ATTRIBUTES_MAX: Final = 12
"""Attributes of one point. More are dropped."""
TEXT_BYTES_MAX: Final = 200
"""Length of a name, a key or a value. The rest is truncated."""
FIELDS_MAX: Final = 200_000
"""Fields of any kind in one push. A field can be two bytes, and each costs the loop half a microsecond."""
FIELDS_PER_BREATH: Final = 256

DELTA: Final = 1
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE: Final = struct.Struct("<d")
_INT64: Final = struct.Struct("<q")

Field = tuple[int, int, int, int]
"""Number, wire type, the value (varint) or its start, and its end."""


class Point(NamedTuple):
    """One value of one metric."""

    name: str
    value: float
    attributes: tuple[tuple[str, str], ...]
    resource: tuple[tuple[str, str], ...]
    is_monotonic: bool
    is_delta: bool


class OtlpReader:
    """A decoder of one push."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._fields = 0
        self._points = 0

    def points(self) -> Iterator[Point | None]:
        for number, wire, start, end in self._fields_of(0, len(self._payload)):
            if number == 1 and wire == _BYTES:
                yield from self._resource_metrics(start, end)
            elif self._is_out_of_breath():
                yield None

    def _resource_metrics(self, start: int, end: int) -> Iterator[Point | None]:
        resource: tuple[tuple[str, str], ...] = ()
        for number, wire, inner, inner_end in self._fields_of(start, end):
            if number == 1 and wire == _BYTES:
                if inner_end - inner > POINT_BYTES_MAX:
                    raise MalformedMessage(f"a resource of {inner_end - inner} bytes; {POINT_BYTES_MAX} are allowed")
                resource = self._attributes(inner, inner_end, field=1)
            elif number == 2 and wire == _BYTES:
                for scoped, scoped_wire, metric, metric_end in self._fields_of(inner, inner_end):
                    if scoped == 2 and scoped_wire == _BYTES:
                        yield from self._metric(metric, metric_end, resource)
                    elif self._is_out_of_breath():
                        yield None
            elif self._is_out_of_breath():
                yield None

    def _metric(self, start: int, end: int, resource: tuple[tuple[str, str], ...]) -> Iterator[Point | None]:
        name = ""
        data: list[tuple[int, int, int]] = []
        for number, wire, inner, inner_end in self._fields_of(start, end):
            if wire == _BYTES and number == 1:
                name = self._text(inner, inner_end)
            elif wire == _BYTES and number in (5, 7):
                data.append((number, inner, inner_end))
            if self._is_out_of_breath():
                yield None
        for number, inner, inner_end in data:
            yield from self._number_points(name, inner, inner_end, resource, is_sum=number == 7)

    def _number_points(
        self, name: str, start: int, end: int, resource: tuple[tuple[str, str], ...], *, is_sum: bool
    ) -> Iterator[Point | None]:
        is_delta = is_monotonic = False
        found: list[tuple[int, int]] = []
        for number, wire, inner, inner_end in self._fields_of(start, end):
            if number == 1 and wire == _BYTES:
                self._points += 1
                if self._points > POINTS_MAX or inner_end - inner > POINT_BYTES_MAX:
                    raise MalformedMessage(
                        f"more than {POINTS_MAX} points, or one of more than {POINT_BYTES_MAX} bytes"
                    )
                found.append((inner, inner_end))
            elif is_sum and number == 2 and wire == _VARINT:
                is_delta = inner == DELTA
            elif is_sum and number == 3 and wire == _VARINT:
                is_monotonic = bool(inner)
            if self._is_out_of_breath():
                yield None
        for inner, inner_end in found:
            value = self._value(inner, inner_end)
            if value is not None and name:
                attributes = self._attributes(inner, inner_end, field=7)
                yield Point(name, value, attributes, resource, is_monotonic, is_delta)
            else:
                yield None

    def _value(self, start: int, end: int) -> float | None:
        value: float | None = None
        for number, wire, inner, _ in self._fields_of(start, end):
            if wire == _FIXED64 and number == 4:
                (value,) = _DOUBLE.unpack_from(self._payload, inner)
            elif wire == _FIXED64 and number == 6:
                (value,) = _INT64.unpack_from(self._payload, inner)
        return value

    def _attributes(self, start: int, end: int, *, field: int) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        for number, wire, inner, inner_end in self._fields_of(start, end):
            if number == field and wire == _BYTES and len(found) < ATTRIBUTES_MAX:
                key = value = ""
                for part, part_wire, at, at_end in self._fields_of(inner, inner_end):
                    if part_wire == _BYTES and part == 1:
                        key = self._text(at, at_end)
                    elif part_wire == _BYTES and part == 2:
                        value = self._any_value(at, at_end)
                if key:
                    found.append((key, value))
        return tuple(found)

    def _any_value(self, start: int, end: int) -> str:
        for number, wire, inner, inner_end in self._fields_of(start, end):
            if number == 1 and wire == _BYTES:
                return self._text(inner, inner_end)
            if number == 2 and wire == _VARINT:
                return "true" if inner else "false"
            if number == 3 and wire == _VARINT:
                return str(inner - (1 << 64) if inner >= 1 << 63 else inner)
            if number == 4 and wire == _FIXED64:
                return repr(_DOUBLE.unpack_from(self._payload, inner)[0])
        return ""

    def _text(self, start: int, end: int) -> str:
        return self._payload[start : min(end, start + TEXT_BYTES_MAX)].decode("utf-8", "replace")

    # The wire

    def _is_out_of_breath(self) -> bool:
        return self._fields % FIELDS_PER_BREATH == 0

    def _fields_of(self, start: int, end: int) -> Iterator[Field]:
        at = start
        while at < end:
            self._fields += 1
            if self._fields > FIELDS_MAX:
                raise MalformedMessage(f"more than {FIELDS_MAX} fields")
            tag, at = self._varint(at, end)
            wire = tag & 7
            if not tag >> 3:
                raise MalformedMessage("a protobuf field without a number")
            if wire == _VARINT:
                value, at = self._varint(at, end)
                yield tag >> 3, wire, value, at
                continue
            if wire == _BYTES:
                size, at = self._varint(at, end)
            elif wire == _FIXED64:
                size = 8
            elif wire == _FIXED32:
                size = 4
            else:
                raise MalformedMessage(f"protobuf wire type {wire}")
            if size > end - at:
                raise MalformedMessage(f"a field of {size} bytes with {end - at} left")
            yield tag >> 3, wire, at, at + size
            at += size

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            if at >= end:
                raise MalformedMessage("a varint goes beyond its message")
            byte = self._payload[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, at
        raise MalformedMessage("a varint of more than ten bytes")
