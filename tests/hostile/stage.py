"""A broker with a neighbour that must not notice what is done to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.hostile.neighbour import TOPIC, Neighbour
from tests.hostile.peer import Peer
from tests.hostile.process import standard_error, until

import strandline
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.testing.embedded_broker import EmbeddedBroker


@contextlib.contextmanager
def stage(
    topics: Mapping[str, int],
    *,
    properties: Mapping[str, str] | None = None,
    data: Path | None = None,
    configs: Mapping[str, Mapping[str, str]] | None = None,
) -> Iterator[EmbeddedBroker]:
    """Ends with a check that the broker still runs, that it never failed with an exception of its own, that the
    neighbour noticed nothing, and that it stops with status 0."""
    with strandline.embedded(properties=properties, data=data) as log:
        log.create_topic(TOPIC)
        for topic, partitions in topics.items():
            settings = (configs or {}).get(topic, {})
            log.create_topic(topic, partitions, **{name.replace(".", "_"): value for name, value in settings.items()})
        make_offsets_topic(log)
        pid = log.pid
        with Neighbour(log.bootstrap):
            yield log
        assert log.running
        assert log.pid == pid, "the broker was started anew"
        check_standard_error(pid)


def make_offsets_topic(log: EmbeddedBroker) -> None:
    """The neighbour's group would have it made at some time; whoever counts descriptors wants its fifty logs now."""
    with Peer(log.port) as peer:
        peer.ask(FindCoordinatorRequest(key="neighbour"), 1)
    until((log.data / "__consumer_offsets-49").exists, "the offsets topic is made")


def check_standard_error(pid: int) -> None:
    """An exception that reached the top is a fault of ours, even if it cost one connection only."""
    text = standard_error(pid)
    assert "Traceback" not in text, text[text.index("Traceback") - 500 :][:4000]
