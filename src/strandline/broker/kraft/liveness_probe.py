"""Probes brokers whose heartbeats stopped, with sockets. `broker_liveness` of the controller decides what follows.

A probe is a connection that is closed as soon as it is accepted. Nothing is sent: the kernel accepts a connection if a
process listens, and a request could not tell a dead process from a slow one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from strandline.broker.environment import Environment
from strandline.broker.network.transport import OutgoingTransport
from strandline.observability.log_lines import fields
from strandline.quorum.controller.brokers.broker_liveness import ProbedBroker, ProbeOutcome
from strandline.quorum.controller.controller import Controller

log = logging.getLogger("strandline.controller")

PROBE_TIMEOUT_S: Final = 1.0


class LivenessProbe:
    """One attempt; it calls `on_done` once."""

    def __init__(
        self, environment: Environment, address: tuple[str, int], on_done: Callable[[ProbeOutcome], object]
    ) -> None:
        self._on_done = on_done
        self._timer = environment.runtime.call_later(PROBE_TIMEOUT_S, self._finish, ProbeOutcome.UNKNOWN)
        self._transport: OutgoingTransport = environment.network.connect(*address, self)

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


class LivenessProbes:
    """The probes of a controller that are under way."""

    def __init__(self, environment: Environment, controller: Controller) -> None:
        self._environment = environment
        self._controller = controller
        self._under_way: dict[ProbedBroker, LivenessProbe] = {}
        self.on_death: Callable[[int, int], object] = lambda broker_id, broker_epoch: None
        """Called with the id and the epoch of a broker that is dead."""

    def probe(self, watched: ProbedBroker) -> None:
        """Probe the address of a broker, and tell the controller what came of it."""
        environment, controller = self._environment, self._controller
        broker = environment.image().brokers.get(watched.broker_id)
        address = None if broker is None else environment.address_of(broker.id) or broker.first_address
        if broker is None or address is None:
            controller.on_probed(watched, -1, ProbeOutcome.UNKNOWN, now=environment.runtime.monotonic())
            return
        epoch = broker.epoch

        def on_done(outcome: ProbeOutcome) -> None:
            del self._under_way[watched]
            if controller.on_probed(watched, epoch, outcome, now=environment.runtime.monotonic()):
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

        self._under_way[watched] = LivenessProbe(environment, address, on_done)

    def close(self) -> None:
        for probe in self._under_way.values():
            probe.cancel()
        self._under_way.clear()
