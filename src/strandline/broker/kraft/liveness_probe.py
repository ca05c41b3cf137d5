"""Probes brokers whose heartbeats stopped, with sockets. `quorum/controller/broker_liveness` decides what follows.

A knock is a connection that is closed as soon as it is there. Nothing is sent: that the kernel accepts it says that a
process listens, and more cannot be told apart from a process that is slow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from strandline.broker.network.transport import OutgoingTransport
from strandline.observability.log_lines import fields
from strandline.quorum.controller.broker_liveness import ProbedBroker, ProbeOutcome

if TYPE_CHECKING:
    from strandline.broker.node import Node

log = logging.getLogger("strandline.controller")

KNOCK_TIMEOUT_S: Final = 1.0


class Knock:
    """One attempt; `on_done` is told once."""

    def __init__(self, node: Node, address: tuple[str, int], on_done: Callable[[ProbeOutcome], object]) -> None:
        self._on_done = on_done
        self._timer = node.runtime.call_later(KNOCK_TIMEOUT_S, self._finish, ProbeOutcome.UNKNOWN)
        self._transport: OutgoingTransport = node.network.connect(*address, self)

    def cancel(self) -> None:
        self._timer.cancel()
        self._transport.close()

    def _finish(self, outcome: ProbeOutcome) -> None:
        self.cancel()
        self._on_done(outcome)

    # What the connection tells

    def on_connected(self) -> None:
        self._finish(ProbeOutcome.ANSWERED)

    def on_closed(self) -> None:
        self._finish(ProbeOutcome.REFUSED if self._transport.is_refused else ProbeOutcome.UNKNOWN)

    def receive(self, view: memoryview) -> None:
        """Nothing was asked."""

    def on_congested(self) -> None:
        """Nothing is sent."""

    def on_drained(self) -> None:
        """Nothing is sent."""


class DeathKnocks:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._under_way: dict[ProbedBroker, Knock] = {}
        self.on_death: Callable[[int, int], object] = lambda broker_id, broker_epoch: None
        """Told the id and the epoch of a broker that is dead."""

    def knock(self, watched: ProbedBroker) -> None:
        node = self._node
        broker = node.image.brokers.get(watched.broker_id)
        address = None if broker is None else broker.address(node.config.inter_broker_listener_name)
        if broker is None or address is None:
            node.controller.on_probed(watched, -1, ProbeOutcome.UNKNOWN, now=node.runtime.monotonic())
            return
        epoch = broker.epoch

        def on_done(outcome: ProbeOutcome) -> None:
            del self._under_way[watched]
            if node.controller.on_probed(watched, epoch, outcome, now=node.runtime.monotonic()):
                host, port = address
                facts = fields(broker_id=watched.broker_id, broker_epoch=epoch, host=host, port=port)
                log.warning(
                    "broker %d is dead: its heartbeats stopped, and %s:%d refuses connections",
                    watched.broker_id,
                    host,
                    port,
                    extra=facts,
                )
                self.on_death(watched.broker_id, epoch)

        self._under_way[watched] = Knock(node, address, on_done)

    def close(self) -> None:
        for knock in self._under_way.values():
            knock.cancel()
        self._under_way.clear()
