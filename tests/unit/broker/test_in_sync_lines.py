"""What the log says of in-sync sets: a broker that goes changes hundreds of them, and one line is enough."""

from __future__ import annotations

import logging

import pytest

from strandline.broker.replicas.alter_partition import tell_changed


def test_what_changes_alike_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tell_changed({(True, (1, 2)): [f"orders-{index}" for index in range(7)], (False, (1, 2, 3)): ["payments-0"]})
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "orders-0, orders-1, orders-2, orders-3, orders-4 and 2 more: in sync are now [1, 2]"),
        ("INFO", "payments-0: in sync are now [1, 2, 3]"),
    ]
