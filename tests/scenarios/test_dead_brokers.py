"""Processes that die are missed at once: the session of a broker, nine seconds by default, is for those that hang."""

from __future__ import annotations

import time
from collections.abc import Callable

import strandline
from strandline.local.embedded_cluster import EmbeddedCluster

TOPIC = "orders"
PATIENCE_S = 60.0
DEFAULTS = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000"}


def why_fenced(cluster: EmbeddedCluster, broker_id: int) -> list[str]:
    """What controllers said when they fenced a broker for its silence."""
    lines = [line for text in cluster.stderr_texts().values() for line in text.splitlines()]
    return [
        reason
        for line in lines
        for reason in ("is dead and is fenced", "was not heard for a session and is fenced")
        if f"broker {broker_id} {reason}" in line
    ]


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_a_leader_that_is_killed_is_replaced_because_it_is_dead_not_because_its_session_ended() -> None:
    with strandline.embedded(nodes=3, properties=DEFAULTS) as cluster:
        cluster.create_topic(TOPIC, 3)
        # Whoever it is: the active controller itself, perhaps, and then the next one has to miss it.
        lost = cluster.leader_of(TOPIC, 0)
        cluster.kill(lost)
        wait_until(lambda: cluster.leader_of(TOPIC, 0) != lost, "another node leads")
        assert why_fenced(cluster, lost) == ["is dead and is fenced"]
        cluster.start(lost)
        cluster.wait_in_sync(TOPIC)
        # Back at once: the next life need not wait for the session of the one before.
        again = cluster.leader_of(TOPIC, 0)
        cluster.kill(again)
        cluster.start(again)
        cluster.wait_in_sync(TOPIC)
        assert "was not heard for a session and is fenced" not in why_fenced(cluster, again)
        others = [each for each in cluster.nodes if each not in (lost, again)]
        assert [why_fenced(cluster, each) for each in others] == [[]] * len(others), "nobody else was fenced"
