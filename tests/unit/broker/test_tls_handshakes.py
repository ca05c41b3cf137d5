"""Handshakes that wait: a few at a time, those between nodes first, and none for longer than the deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline.broker.network.connection_limits import CLOSES_PER_TURN_MAX
from strandline.broker.network.tls.tls_handshakes import HANDSHAKE_S_MAX, STEPS_MAX, Handshakes


class Stage:
    """A loop, a clock and threads that do nothing by themselves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.running: list[tuple[Any, Callable[..., object]]] = []
        self.timers: list[Callable[[], object]] = []
        stage: Any = self
        self.handshakes = Handshakes(stage, stage)

    def monotonic(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        self.timers.append(callback)
        return object()  # type: ignore[return-value]

    def in_thread(self, work: Any, on_done: Callable[..., object]) -> None:
        self.running.append((work.__self__, on_done))

    def finish(self, wanted: str | None = "read", error: BaseException | None = None) -> Peer:
        """End the step that began first."""
        peer, on_done = self.running.pop(0)
        on_done(wanted, error)
        assert isinstance(peer, Peer)
        return peer

    def sweep(self) -> None:
        self.timers.pop(0)()


class Peer:
    def __init__(self, stage: Stage, *, is_between_nodes: bool = False) -> None:
        self.stage = stage
        self.closed = False
        self.is_stepping = False
        self.is_between_nodes = is_between_nodes
        self.steps: list[str | None] = []
        self.failed: list[str] = []
        stage.handshakes.begin(self)

    def take_step(self) -> str | None:
        raise AssertionError("the stage has no threads")

    def on_step(self, wanted: str | None, error: BaseException | None) -> None:
        self.steps.append(wanted)

    def fail(self, reason: str, *, kind: str = "protocol") -> None:
        self.failed.append(kind)
        self.stage.handshakes.end(self)


def test_a_few_steps_run_at_a_time_and_those_between_nodes_go_first() -> None:
    stage = Stage()
    clients = [Peer(stage) for _ in range(10)]
    for client in clients:
        stage.handshakes.step(client)
    assert [peer for peer, _ in stage.running] == clients[:STEPS_MAX]
    assert all(peer.is_stepping for peer in clients[:STEPS_MAX])
    node = Peer(stage, is_between_nodes=True)
    stage.handshakes.step(node)
    assert len(stage.running) == STEPS_MAX
    clients[STEPS_MAX].closed = True
    order = [stage.finish() for _ in range(10)]
    assert order == [*clients[:STEPS_MAX], node, *clients[STEPS_MAX + 1 :]]
    assert not any(peer.is_stepping for peer in clients)
    assert clients[STEPS_MAX].steps == [], "a thread worked for a connection that is closed"


def test_what_takes_too_long_is_closed_a_share_per_turn() -> None:
    stage = Stage()
    late = [Peer(stage) for _ in range(CLOSES_PER_TURN_MAX + 5)]
    stage.now = HANDSHAKE_S_MAX / 2
    early = Peer(stage)
    stage.sweep()
    assert not late[0].failed
    stage.now = HANDSHAKE_S_MAX
    stage.sweep()
    assert sum(len(each.failed) for each in late) == CLOSES_PER_TURN_MAX
    stage.sweep()
    assert all(each.failed == ["deadline"] for each in late)
    assert not early.failed
    stage.handshakes.end(early)
    stage.sweep()
    assert not stage.timers, "with no handshake under way nothing is looked at"
