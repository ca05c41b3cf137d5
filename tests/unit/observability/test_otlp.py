"""The reader of OpenTelemetry's messages: what clients send comes out, and nothing else gets through."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.observability.otlp_messages import (
    Sum,
    key_value,
    metric,
    metrics_data,
    number_field,
    part,
    point,
    varint,
)

from strandline.errors import MalformedMessage
from strandline.observability.otlp import (
    ATTRIBUTES_MAX,
    FIELDS_MAX,
    POINT_BYTES_MAX,
    POINTS_MAX,
    TEXT_BYTES_MAX,
    OtlpReader,
    Point,
)

EXAMPLES = 300
EXAMPLES_ALL = 20_000


def read(payload: bytes) -> list[Point]:
    return [each for each in OtlpReader(payload).points() if each is not None]


def test_gauges_and_sums_come_out() -> None:
    payload = metrics_data(
        metric("org.apache.kafka.producer.connection.count", 3),
        metric("a.rate", 0.5, {"node_id": "1"}),
        metric("a.total", Sum(7.0)),
        metric("b.total", Sum(8, is_delta=False, is_monotonic=False)),
        resource={"client_rack": "r1"},
    )
    rack = (("client_rack", "r1"),)
    assert read(payload) == [
        Point("org.apache.kafka.producer.connection.count", 3, (), rack, is_monotonic=False, is_delta=False),
        Point("a.rate", 0.5, (("node_id", "1"),), rack, is_monotonic=False, is_delta=False),
        Point("a.total", 7.0, (), rack, is_monotonic=True, is_delta=True),
        Point("b.total", 8, (), rack, is_monotonic=False, is_delta=False),
    ]


def test_every_kind_of_attribute_is_text() -> None:
    kinds = {
        "yes": number_field(2, 1),
        "minus": number_field(3, -5),
        "half": varint(4 << 3 | 1) + b"\0" * 6 + b"\xe0\x3f",
    }
    attributes = b"".join(part(7, key_value(key, value)) for key, value in kinds.items())
    payload = metrics_data(part(1, b"m") + part(5, part(1, attributes + point(1))))
    assert read(payload)[0].attributes == (("yes", "true"), ("minus", "-5"), ("half", "0.5"))


def test_what_is_not_known_is_passed_over() -> None:
    odd = number_field(77, 5) + part(78, b"xx") + varint(79 << 3 | 1) + b"\0" * 8 + varint(80 << 3 | 5) + b"\0" * 4
    histogram = part(1, b"h") + part(9, part(1, b""))
    payload = odd + metrics_data(odd + metric("m", 1) + odd, histogram) + odd
    assert [each.name for each in read(payload)] == ["m"]


@pytest.mark.parametrize("cut", range(1, 60))
def test_what_ends_early_is_refused_or_less(cut: int) -> None:
    payload = metrics_data(metric("a.metric.with.a.name", 1.5, {"key": "value"}), metric("b", Sum(1)))
    assert len(payload) > 60
    with contextlib.suppress(MalformedMessage):
        assert len(read(payload[:-cut])) <= 2


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0b",  # a group begins
        b"\x0c",
        b"\x0e",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a\x05abc",
        b"\x09\x00",
        b"\x80",
        b"\x00\x00",
        metrics_data(*(metric("m", 1) for _ in range(POINTS_MAX + 1))),
        metrics_data(part(1, b"m") + part(5, part(1, point(1) + part(9, b"x" * POINT_BYTES_MAX)))),
        metrics_data(resource={str(number): "x" * 100 for number in range(POINT_BYTES_MAX // 100)}),
        b"\x10\x00" * (FIELDS_MAX + 1),
    ],
    ids=lambda payload: payload[:4].hex(),
)
def test_faults_are_told(payload: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read(payload)


def test_names_and_attributes_are_cut() -> None:
    payload = metrics_data(metric("n" * 5000, 1, {f"k{number}": "v" * 300 for number in range(ATTRIBUTES_MAX + 3)}))
    (found,) = read(payload)
    assert len(found.name) == TEXT_BYTES_MAX
    assert len(found.attributes) == ATTRIBUTES_MAX
    assert all(len(value) == TEXT_BYTES_MAX for _, value in found.attributes)


def steps_of(reader: Iterator[object]) -> tuple[int, float, float]:
    """Return how many steps a reader took, and the processor time of the longest and of all of them."""
    took_s: list[float] = []
    while True:
        began = time.thread_time()
        if next(reader, 0) == 0:
            return len(took_s), max(took_s), sum(took_s)
        took_s.append(time.thread_time() - began)


def test_a_reader_comes_up_for_air_however_little_it_finds() -> None:
    # Empty fields at every depth, none of which is a point.
    empty = part(3, b"")
    inner = part(
        1, part(2, part(2, part(1, b"m") + part(5, number_field(4, 1) * 5_000)) + empty * 5_000) + empty * 5_000
    )
    reader = OtlpReader(inner + empty * 5_000).points()
    assert steps_of(reader)[0] >= 4 * 5_000 // 256
    # The best of three: a machine adds to a step now and then, to the same one hardly three times.
    tries = [steps_of(OtlpReader(inner + empty * 5_000).points()) for _ in range(3)]
    assert min(worst_s / total_s for _, worst_s, total_s in tries) < 0.2, "most of the work is done in one step"


def read_or_refuse(payload: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        read(payload)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_points_or_a_fault(payload: bytes) -> None:
    read_or_refuse(payload)


@pytest.mark.slow
@settings(max_examples=EXAMPLES_ALL, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_points_or_a_fault_at_length(payload: bytes) -> None:
    read_or_refuse(payload)


@pytest.mark.parametrize("examples", [EXAMPLES, pytest.param(EXAMPLES_ALL, marks=pytest.mark.slow)])
def test_damaged_messages_give_points_or_a_fault(examples: int) -> None:
    seed = 20_261_115
    print("seed", seed)
    source = random.Random(seed)
    sound = metrics_data(
        *(metric(f"org.apache.kafka.m{number}", Sum(number), {"node_id": str(number)}) for number in range(20)),
        resource={"client_rack": "r"},
    )
    for _ in range(examples):
        damaged = bytearray(sound)
        for _ in range(source.randint(1, 4)):
            damaged[source.randrange(len(damaged))] = source.randrange(256)
        read_or_refuse(bytes(damaged))
