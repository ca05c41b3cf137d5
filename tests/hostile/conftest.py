"""One broker for a module of hostile tests, and a neighbour that must not notice any of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.hostile.neighbour import TOPIC, Neighbour
from tests.hostile.peer import Peer
from tests.hostile.process import standard_error, until

import strandline
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.testing.embedded_broker import EmbeddedBroker


def wait_for_offsets_topic(log: EmbeddedBroker) -> None:
    """The neighbour's group has it made; tests that count descriptors begin when its fifty logs are there."""
    with Peer(log.port) as peer:
        peer.ask(FindCoordinatorRequest(key="neighbour"), 1)
    until((log.data / "__consumer_offsets-49").exists, "the offsets topic is made")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """Ends with a check that it still runs, stops cleanly, and never failed with an exception of its own."""
    with strandline.embedded() as log:
        log.create_topic(TOPIC)
        log.create_topic("target", 2)
        pid = log.pid
        wait_for_offsets_topic(log)
        with Neighbour(log.bootstrap):
            yield log
        assert log.pid == pid, "the broker was started anew"
        assert log.running
        text = standard_error(pid)
        assert "Traceback" not in text, text[text.index("Traceback") - 500 :][:4000]
