"""A broker with a neighbour that must not notice what is done to it."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.hostile.machine_control import MachineControl
from tests.hostile.neighbour import TOPIC, Neighbour
from tests.hostile.peer import Peer
from tests.hostile.process import standard_error, until

import strandline
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.local.embedded_broker import EmbeddedBroker

STALL_MS_MAX = 50
IS_QUIET = bool(os.environ.get("STRANDLINE_QUIET_MACHINE"))
NOISE_MIN = 6
NOISE_BY_SLOWDOWN = 3
"""Neighbours on the same host, and other lanes of tests, make one turn cost several times the processor time that it
cost a minute ago; a computation beside the broker says how many times. What is wrong takes seconds. On a machine that
does nothing else the limit holds to the word."""
_STALLS = re.compile(
    r"loop stalls above \d+ ms: \d+, the longest \d+ ms, of our own doing at least (?P<ours_ms>\d+) ms"
)


NODE_ID = "4711"
"""No number that odd requests have by chance: one that unregisters the only broker is odd, sound, and obeyed."""


@contextlib.contextmanager
def stage(
    topics: Mapping[str, int],
    *,
    properties: Mapping[str, str] | None = None,
    data: Path | None = None,
    configs: Mapping[str, Mapping[str, str]] | None = None,
) -> Iterator[EmbeddedBroker]:
    """Ends with a check that the broker still runs, that it never failed with an exception of its own, that the
    neighbour noticed nothing, that it stops with status 0, and that no turn of its loop computed for too long."""
    # With an endpoint for what clients push, so that every API is there.
    served = {"http.listener": "127.0.0.1:0", "node.id": NODE_ID, **(properties or {})}
    with MachineControl() as control, strandline.embedded(properties=served, data=data) as log:
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
        log.stop()
        check_stalls(log.stderr_text(), control.slowdown)


def make_offsets_topic(log: EmbeddedBroker) -> None:
    """The neighbour's group would have it made at some time; whoever counts descriptors wants its fifty logs now."""
    with Peer(log.port) as peer:
        peer.ask(FindCoordinatorRequest(key="neighbour"), 1)
    until((log.data / "__consumer_offsets-49").exists, "the offsets topic is made")


def check_standard_error(pid: int) -> None:
    """An exception that reached the top is a fault of ours, even if it cost one connection only."""
    text = standard_error(pid)
    assert "Traceback" not in text, text[text.index("Traceback") - 500 :][:4000]


def check_stalls(text: str, slowdown: float) -> None:
    """Check the processor time that one turn took for certain: that others use the machine too does not count."""
    told = _STALLS.search(text)
    assert told is not None, f"no word of stalls: {text[-500:]}"
    print(told[0], f"; the machine was up to {slowdown:.1f} times slower than at best")
    limit_ms = STALL_MS_MAX * (1 if IS_QUIET else max(NOISE_MIN, NOISE_BY_SLOWDOWN * slowdown))
    assert int(told["ours_ms"]) < limit_ms, f"a turn of the loop took too long (limit {limit_ms:.0f} ms): {told[0]}"
