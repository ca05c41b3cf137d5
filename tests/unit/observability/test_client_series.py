"""What clients pushed becomes lines that a stock parser reads, and there are never too many of them."""

from __future__ import annotations

import uuid

import pytest
from prometheus_client.parser import text_string_to_metric_families

from strandline.observability.client_series import (
    CLIENT_FAMILIES_MAX,
    CLIENT_SERIES_MAX,
    SERIES_PER_CLIENT_MAX,
    ClientSeries,
    family_name,
)
from strandline.observability.otlp import Point

ME = uuid.UUID(int=7)
LATER = 10_000


def gauge(name: str, value: float, **attributes: str) -> Point:
    return Point(name, value, tuple(attributes.items()), (), is_monotonic=False, is_delta=False)


def counter(name: str, value: float, *, is_delta: bool = True) -> Point:
    return Point(name, value, (), (), is_monotonic=True, is_delta=is_delta)


def pushed(*points: Point, client_id: str | None = "app") -> ClientSeries:
    series = ClientSeries()
    series.begin(ME, client_id, expires_ms=LATER)
    for point in points:
        series.add(ME, point)
    return series


def values(series: ClientSeries, now_ms: int = 0) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = "".join(series.pieces(now_ms))
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_names_are_prometheus_names() -> None:
    assert (
        family_name("org.apache.kafka.producer.record.send.rate", "gauge") == "kafka_client_producer_record_send_rate"
    )
    assert (
        family_name("org.apache.kafka.producer.record.send.total", "counter")
        == "kafka_client_producer_record_send_total"
    )
    assert family_name("my-metric/s", "counter") == "kafka_client_my_metric_s_total"


def test_deltas_add_up_and_gauges_replace() -> None:
    series = pushed(
        gauge("g", 1),
        gauge("g", 2),
        counter("c", 3),
        counter("c", 4),
        counter("d", 5, is_delta=False),
        counter("d", 6, is_delta=False),
    )
    labels = frozenset({("client_id", "app"), ("client_instance_id", str(ME))})
    assert values(series) == {
        ("kafka_client_g", labels): 2,
        ("kafka_client_c_total", labels): 7,
        ("kafka_client_d_total", labels): 6,
    }


def test_what_a_client_calls_itself_cannot_break_a_line() -> None:
    nasty = 'x"} 1\nkafka_brokers 99\\'
    series = pushed(gauge("m" + nasty, 1, key=nasty, client_id="somebody else", __name__="x"), client_id=nasty)
    ((_, labels),) = values(series)
    assert dict(labels) == {"client_id": nasty, "client_instance_id": str(ME), "key": nasty}


def test_a_client_that_is_silent_is_forgotten() -> None:
    series = pushed(gauge("g", 1), counter("c", 1))
    assert series.series == 2
    assert values(series, LATER - 1)
    assert not values(series, LATER)
    assert (len(series), series.series) == (0, 0)


def test_one_name_has_one_kind() -> None:
    series = pushed(counter("a.total", 1), gauge("a.total", 2))
    assert len(values(series)) == 1
    assert series.left_out == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_left_out(value: float) -> None:
    assert not values(pushed(gauge("g", value)))


def test_there_are_only_so_many_series() -> None:
    series = pushed(*(gauge("g", 1, node=str(number)) for number in range(SERIES_PER_CLIENT_MAX + 5)))
    assert len(values(series)) == SERIES_PER_CLIENT_MAX
    assert series.left_out == 5
    clients = CLIENT_SERIES_MAX // SERIES_PER_CLIENT_MAX
    for client in range(clients):
        other = uuid.UUID(int=100 + client)
        series.begin(other, None, expires_ms=LATER)
        for number in range(SERIES_PER_CLIENT_MAX):
            series.add(other, gauge("g", 1, node=str(number)))
    assert series.series == CLIENT_SERIES_MAX


def test_there_are_only_so_many_families() -> None:
    series = ClientSeries()
    for client in range(3):
        series.begin(uuid.UUID(int=client + 1), None, expires_ms=LATER)
        for number in range(SERIES_PER_CLIENT_MAX):
            series.add(uuid.UUID(int=client + 1), gauge(f"g{client}.{number}", 1))
    assert series.series == CLIENT_FAMILIES_MAX
