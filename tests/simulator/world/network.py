"""A network between simulated machines: streams of bytes as TCP gives them, with everything that TCP does not prevent.

A stream keeps its order, is cut into pieces anywhere, and stalls when the reader does. A blocked way (`block`, one
direction at a time) is silence: bytes wait, as TCP sends them again, and after a while the sender's end gives up; the
other end learns nothing and is half open. A process that dies leaves a FIN or a reset behind it, a machine that loses
power leaves silence, and a reset when it is back. Connections overtake each other; only within one is there an order.

The view that a receiver gets is poisoned once the receiver has returned, so that code which keeps one is found out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tests.simulator.world.loop import SimLoop
from tests.simulator.world.runtime import SimRuntime
from tests.simulator.world.transport import SimTransport

from strandline.broker.network.transport import Accept, AcceptedTls, OutgoingReceiver, OutgoingTls

SYN_RETRIES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""After how long a lost attempt to connect is made again."""
TCP_TIMEOUT_S: Final = (5.0, 30.0)
"""After how long without an answer an end gives up: drawn for each case."""
EPHEMERAL_PORT: Final = 40_000
LOCAL_S: Final = 0.00002


class SimListening:
    def __init__(self, network: SimNetwork, runtime: SimRuntime, host: str, port: int, on_accept: Accept) -> None:
        self._network = network
        self.runtime = runtime
        self.host = host
        self.port = port
        self.on_accept = on_accept
        self.is_open = False

    def open(self) -> None:
        self.is_open = True

    def hold_back(self, is_held: bool) -> None:
        """Pieces are small here already."""

    def close(self) -> None:
        self.is_open = False
        self._network.listening.pop((self.runtime.host.name, self.port), None)

    def accept(self, transport: SimTransport) -> None:
        if not self.is_open:
            transport.close()
            return
        receiver = self.on_accept(transport)
        if receiver is None:
            transport.close()
        else:
            transport.attach(receiver)


class HostNetwork:
    """The `Network` that one life of one process is given."""

    def __init__(self, network: SimNetwork, runtime: SimRuntime) -> None:
        self._network = network
        self._runtime = runtime

    def listen(
        self,
        host: str,
        port: int,
        on_accept: Accept,
        *,
        delay_s: Callable[[], float] | None = None,
        tls: AcceptedTls | None = None,
    ) -> SimListening:
        assert tls is None, "the simulated network has no TLS"
        network, name = self._network, self._runtime.host.name
        port = port or network.new_port()
        if (name, port) in network.listening:
            raise OSError(98, "Address already in use")
        listening = SimListening(network, self._runtime, host or name, port, on_accept)
        network.listening[name, port] = listening
        return listening

    def connect(
        self, host: str, port: int, receiver: OutgoingReceiver, *, tls: OutgoingTls | None = None
    ) -> SimTransport:
        assert tls is None, "the simulated network has no TLS"
        network = self._network
        transport = SimTransport(network, self._runtime, host, port, own_port=network.new_port())
        transport.receiver = transport.connecting = receiver
        network.try_to_connect(transport, 0)
        return transport


class SimNetwork:
    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.random: random.Random = loop.derive("network")
        self.listening: dict[tuple[str, int], SimListening] = {}
        self.blocked: dict[tuple[str, str], None] = {}
        self.down: dict[str, None] = {}
        """Machines without power."""
        self.transports: dict[int, SimTransport] = {}
        """Every open end, by its number."""
        self.delay_s = 0.0003
        """What a way takes, about."""
        self.slow: dict[tuple[str, str], float] = {}
        """Ways that take longer, by so many seconds."""
        self.spike_share = 0.0
        """How many pieces meet a delay of up to `spike_s`."""
        self.spike_s = 0.5
        self.fragment_share = 0.0
        """How many pieces arrive in several."""
        self.flip_share = 0.0
        """How many runs of records that a broker sends lose a bit on the way."""
        self.window_bytes = 256 * 1024
        self.tcp_timeout_s = TCP_TIMEOUT_S
        self._ports = EPHEMERAL_PORT
        self._numbers = 0

    def of(self, runtime: SimRuntime) -> HostNetwork:
        """Return the network as one life of a process sees it; its machine has power from now on."""
        self.down.pop(runtime.host.name, None)
        self._reset_waiting_for(runtime.host.name)
        return HostNetwork(self, runtime)

    def new_port(self) -> int:
        self._ports += 1
        return self._ports

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # Ways

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self.blocked or target in self.down or source in self.down

    def way_s(self, source: str, target: str) -> float:
        """Return how long a piece takes now."""
        if source == target:
            return LOCAL_S
        rng = self.random
        delay = self.delay_s * (0.5 + rng.random())
        if self.spike_share and rng.random() < self.spike_share:
            delay += rng.random() * self.spike_s
        if self.slow:
            delay += self.slow.get((source, target), 0.0)
        return delay

    # Connecting

    def try_to_connect(self, transport: SimTransport, attempt: int) -> None:
        if transport.closed:
            return
        source, target = transport.own_host, transport.peer_host
        if self.is_cut(source, target) or self.is_cut(target, source):
            if attempt >= len(SYN_RETRIES_S):
                transport.failure = "timed out"
                transport.end_soon()
            else:
                delay = SYN_RETRIES_S[attempt] * (0.5 + self.random.random())
                self.loop.call_in(delay, self.try_to_connect, transport, attempt + 1)
            return
        self.loop.call_in(self.way_s(source, target), self._arrive, transport)

    def _arrive(self, transport: SimTransport) -> None:
        if transport.closed or transport.actor.is_dead:
            return
        back_s = self.way_s(transport.peer_host, transport.own_host)
        listening = self.listening.get((transport.peer_host, transport.peer_port))
        if listening is None or not listening.is_open:
            transport.failure = "connection refused"
            transport.is_refused = True
            self.loop.call_in(back_s, transport.end_soon)
            return
        accepted = SimTransport(
            self, listening.runtime, transport.own_host, transport.own_port, own_port=listening.port
        )
        accepted.join(transport)
        # The kernel shakes hands; the process is notified when it has time.
        self.loop.call_at(self.loop.now, listening.runtime.actor, listening.accept, accepted)
        self.loop.call_at(self.loop.now + back_s, transport.actor, transport.connected)

    # Faults

    def block(self, source: str, target: str) -> None:
        """Nothing gets from one to the other; the way back may stay open."""
        self.blocked[source, target] = None

    def unblock(self, source: str, target: str) -> None:
        self.blocked.pop((source, target), None)
        self._send_again()

    def split(self, one_side: list[str], other_side: list[str]) -> None:
        for one in one_side:
            for other in other_side:
                self.block(one, other)
                self.block(other, one)

    def heal(self) -> None:
        self.blocked.clear()
        self.slow.clear()
        self._send_again()

    def _send_again(self) -> None:
        for transport in list(self.transports.values()):
            transport.send_held()

    def reset(self, transport: SimTransport) -> None:
        """A connection breaks under both ends; what was on its way is lost from some point on."""
        peer = transport.peer
        transport.break_off()
        if peer is not None:
            peer.break_off()

    def between(self, one: str, other: str) -> list[SimTransport]:
        """Return the ends of `one` of the connections between two machines."""
        return [each for each in self.transports.values() if each.own_host == one and each.peer_host == other]

    def process_died(self, runtime: SimRuntime) -> None:
        """kill -9: the kernel closes what the process had open."""
        for transport in self._of(runtime):
            if self.random.random() < 0.5:
                transport.close()
            else:
                peer = transport.peer
                transport.vanish()
                if peer is not None and not self.is_cut(transport.own_host, transport.peer_host):
                    peer.break_off()
        self._stop_listening(runtime)

    def power_cut(self, runtime: SimRuntime) -> None:
        """Cut the power: connections end without a FIN or a reset."""
        self.down[runtime.host.name] = None
        for transport in self._of(runtime):
            transport.vanish()
        self._stop_listening(runtime)

    def _of(self, runtime: SimRuntime) -> list[SimTransport]:
        return [each for each in self.transports.values() if each.actor is runtime.actor]

    def _stop_listening(self, runtime: SimRuntime) -> None:
        for address, listening in list(self.listening.items()):
            if listening.runtime is runtime:
                del self.listening[address]

    def _reset_waiting_for(self, host: str) -> None:
        """Reset old connections to a machine that is back, because it does not know them."""
        for transport in list(self.transports.values()):
            if transport.peer_host == host and transport.held and transport.is_peer_gone:
                transport.break_off()
