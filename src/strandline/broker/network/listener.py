"""One address that peers connect to: who is admitted, and what is served to them.

A node has one or more for clients and, where it is a controller, for controllers and brokers. Each has a dispatcher of
its own, because clients are answered with the addresses of the listener that they use. Each transport that is accepted
gets a `Connection`.
"""

from __future__ import annotations

import logging

from strandline.broker.network.admission import Admission
from strandline.broker.network.connection import Connection
from strandline.broker.network.dispatch import Dispatcher
from strandline.broker.network.throttled_newcomer import NEWCOMERS_HELD_MAX, ThrottledNewcomer
from strandline.broker.network.transport import AcceptedTls, Listening, Network, Receiver, Transport
from strandline.errors import InvalidConfig
from strandline.observability.log_lines import fields
from strandline.runtime.runtime import Runtime

log = logging.getLogger("strandline.broker")


class SocketListener:
    def __init__(
        self,
        network: Network,
        runtime: Runtime,
        dispatcher: Dispatcher,
        admission: Admission,
        own_admission: Admission | None = None,
        *,
        is_exempt: bool = False,
        tls: AcceptedTls | None = None,
    ) -> None:
        """`admission` is shared by the listeners of a node; `own_admission` has the limits of this one alone.

        `max.connections` does not hold for one that `is_exempt`.
        """
        self._network = network
        self._runtime = runtime
        self._dispatcher = dispatcher
        self.admission = admission
        self.own_admission = own_admission
        self._is_exempt = is_exempt
        self._tls = tls
        self._listening: Listening | None = None
        self._warned_at = -1
        self._held: set[ThrottledNewcomer] = set()

    def bind(self, host: str, port: int) -> tuple[str, int]:
        """Take the address; what was really bound (port 0 chooses one). Peers are served after `open`.

        InvalidConfig if it cannot be had.
        """
        try:
            listening = self._listening = self._network.listen(
                host, port, self._on_accept, delay_s=self._delay_s, tls=self._tls
            )
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise InvalidConfig(
                f"cannot listen on {host}:{port}: {why}; choose another address or port (--listen, or listeners)"
            ) from error
        self._dispatcher.limits.on_pressure.append(listening.hold_back)
        return listening.host, listening.port

    def open(self) -> None:
        assert self._listening is not None
        self._listening.open()

    def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def _delay_s(self) -> float:
        now, own = self._runtime.monotonic(), self.own_admission
        delay_s = self.admission.delay_s(now)
        return delay_s if own is None else max(delay_s, own.delay_s(now))

    def _on_accept(self, transport: Transport) -> Receiver | None:
        limits, host, own = self._dispatcher.limits, transport.peer_host, self.own_admission
        self.admission.note_creation()
        if limits.creation_delay_ms is not None and (delay_ms := limits.creation_delay_ms(host)):
            limits.refusals["rate"] += 1
            is_room = len(self._held) < NEWCOMERS_HELD_MAX
            return ThrottledNewcomer(transport, self._runtime, delay_ms, self._held) if is_room else None
        is_full = self.admission.is_full_for(
            host, len(limits.connections), limits.connections_by_host.get(host, 0), is_exempt=self._is_exempt
        )
        if own is not None:
            own.note_creation()
            name = self._dispatcher.listener_name
            here = limits.connections_by_listener.get(name, 0)
            is_full = is_full or own.is_full_for(host, here, limits.connections_by_listener_host.get((name, host), 0))
        if is_full:
            limits.refusals["limit"] += 1
            self._warn(host)
            return None
        connection = Connection(self._dispatcher, transport)
        limits.welcome(connection)
        return connection

    def _warn(self, host: str) -> None:
        limits = self._dispatcher.limits
        if self._warned_at == limits.ticks:
            # Once in a second is enough: a flood of connections is not to become a flood of lines.
            return
        self._warned_at = limits.ticks
        log.warning(
            "%d connections; refusing one of %s: see max.connections, max.connections.per.ip, `ulimit -n`",
            len(limits.connections),
            host,
            extra=fields(host=host, connections=len(limits.connections)),
        )
