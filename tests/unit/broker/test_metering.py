"""Requests are counted and timed where they pass, and a node that counts nothing pays for nothing."""

from __future__ import annotations

import logging

import pytest
from tests.unit.broker.peer import FETCH, FRAME_MAX, PRODUCE, Broker, feed, request

from strandline.broker.metrics.watchdog import QUIET_S, STALL_S, TOLD_S, Watchdog
from strandline.broker.network.dispatch import WINDOW_REQUESTS_BUSY, WINDOWS_PER_TIMED, Dispatcher
from strandline.observability.request_meter import RequestMeter


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1_000

    def __call__(self) -> int:
        self.now_ns += 10
        return self.now_ns


class Metered(Broker):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        before = self.dispatcher
        self.dispatcher = Dispatcher(
            before.node, before.routes, frame_size_max=FRAME_MAX, inbox_bytes_max=1 << 30, clock_ns=self.clock
        )

    def begun(self, api_key: int) -> int:
        return self.dispatcher.routes[api_key].requests

    def meter(self, api_key: int) -> RequestMeter:
        meter = self.dispatcher.routes[api_key].meter
        assert meter is not None
        return meter


def test_an_answer_at_once_has_its_time() -> None:
    broker = Metered()
    broker.at_once.add(PRODUCE)
    connection, _ = broker.connect()
    feed(connection, request(1))
    meter = broker.meter(PRODUCE)
    assert broker.begun(PRODUCE) == 1
    assert (sum(meter.at_once), sum(meter.waited)) == (1, 0)
    assert meter.at_once_ns == 10
    assert meter.at_once[(10).bit_length()] == 1


def test_what_waits_is_told_apart_and_timed_until_it_leaves() -> None:
    broker = Metered()
    connection, transport = broker.connect()
    feed(connection, request(1) + request(2))
    broker.clock.now_ns += 1_000_000
    broker.answer(2)
    assert not transport.answered, "the first is not answered yet"
    assert not sum(broker.meter(PRODUCE).waited)
    broker.clock.now_ns += 1_000_000
    broker.answer(1)
    meter = broker.meter(PRODUCE)
    assert (sum(meter.waited), sum(meter.at_once)) == (2, 0)
    assert meter.waited[(2_000_000).bit_length()] == 2
    assert meter.response_bytes == len(b"body 1" + b"body 2")


def test_an_answer_within_the_turn_has_not_waited_even_behind_one_that_has() -> None:
    broker = Metered()
    connection, _ = broker.connect()
    feed(connection, request(1))
    broker.answer(1)
    broker.at_once.add(FETCH)
    feed(connection, request(2, key=FETCH))
    assert (sum(broker.meter(PRODUCE).waited), sum(broker.meter(FETCH).at_once)) == (1, 1)
    broker.at_once = {PRODUCE}
    feed(connection, request(3, key=FETCH) + request(4))
    broker.answer(3)
    assert (sum(broker.meter(FETCH).waited), sum(broker.meter(PRODUCE).at_once)) == (1, 1)


def test_a_client_that_hangs_up_leaves_requests_unanswered() -> None:
    broker = Metered()
    connection, _ = broker.connect()
    feed(connection, request(1, key=FETCH, body=b"x" * 100, client_id=b"me"))
    connection.close()
    meter = broker.meter(FETCH)
    assert (broker.begun(FETCH), meter.request_bytes, meter.unanswered) == (1, 102, 1)
    assert not sum(meter.waited)


def test_without_a_clock_nothing_is_timed() -> None:
    broker = Broker()
    connection, transport = broker.connect()
    feed(connection, request(1))
    broker.answer(1)
    assert transport.answered == [1]
    assert all(route.meter is None for route in broker.dispatcher.routes.values())


def test_a_busy_node_times_a_part_and_counts_all() -> None:
    broker = Metered()
    broker.at_once.add(PRODUCE)
    connection, _ = broker.connect()
    windows = 4 * WINDOWS_PER_TIMED
    per_window = WINDOW_REQUESTS_BUSY + 1
    for _ in range(windows):
        for number in range(per_window):
            feed(connection, request(number))
        broker.dispatcher.next_window()
    meter = broker.meter(PRODUCE)
    assert broker.begun(PRODUCE) == windows * per_window
    assert sum(meter.at_once) in range(windows * per_window // 5, windows * per_window // 2)
    broker.dispatcher.next_window()
    timed_before = sum(meter.at_once)
    for number in range(5):
        feed(connection, request(number))
        broker.dispatcher.next_window()
    assert sum(meter.at_once) == timed_before + 5, "a quiet node times all"


# Stalls


class Turns:
    """A runtime whose time the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: list[tuple[float, object]] = []
        self.wake = lambda: None

    def monotonic(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: object, *args: object) -> None:
        self.wake = callback  # type: ignore[assignment]
        self.now += delay_s


def test_a_long_stall_is_told_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    turns = Turns()
    watchdog = Watchdog(turns)  # type: ignore[arg-type]
    asked: list[float] = []

    def explain(stalled_s: float) -> str:
        asked.append(round(stalled_s, 3))
        return "a reason"

    watchdog.explain = explain
    with caplog.at_level(logging.WARNING):
        watchdog.start()
        for stalled_s in (STALL_S / 2, STALL_S * 2, TOLD_S * 2, TOLD_S * 3, TOLD_S * 2):
            turns.now += stalled_s
            turns.wake()
        turns.now += QUIET_S
        turns.wake()
    assert watchdog.stalls == 5
    assert asked[:3] == [TOLD_S * 2, round(TOLD_S * 3, 3), TOLD_S * 2]
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in lines] == [
        "the loop stood still for 200 ms",
        "the loop stood still for 10000 ms",
    ]
    assert lines[1].endswith("; 2 more since the last such line")
    # None of it was computing, so it was not us.
    assert "the machine, or a disk, did not let us run" in lines[0]
