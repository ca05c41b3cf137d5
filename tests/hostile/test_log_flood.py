"""A flood of bad connections is no flood of lines."""

from __future__ import annotations

import logging

import pytest
from tests.hostile.silent_wire import Wire

from strandline.broker.network.connection import Connection
from strandline.broker.network.connection_limits import REFUSALS_LOGGED_MAX
from strandline.broker.network.dispatch import Dispatcher


def test_a_second_has_so_many_lines(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher = Dispatcher(None, {}, frame_size_max=100, inbox_bytes_max=1000)  # type: ignore[arg-type]

    def garbage() -> None:
        wire = Wire()
        connection = Connection(dispatcher, wire)  # type: ignore[arg-type]
        dispatcher.limits.welcome(connection)
        connection.receive(memoryview(bytearray(b"\xff" * 20)))
        assert wire.closed

    with caplog.at_level(logging.INFO, "strandline.broker"):
        for _ in range(500):
            garbage()
        assert len(caplog.messages) == REFUSALS_LOGGED_MAX
        dispatcher.limits.ticks += 1
        garbage()
    assert caplog.messages[REFUSALS_LOGGED_MAX:] == [
        f"... and closed {500 - REFUSALS_LOGGED_MAX} more",
        "closing the connection from somewhere: a frame of -1 bytes",
    ]
    assert dispatcher.limits.refused == 501
    assert not dispatcher.limits.connections
