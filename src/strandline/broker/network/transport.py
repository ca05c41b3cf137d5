"""What carries bytes, seen from those who send and receive them: a plain socket, TLS, or a simulated network.

Four roles. A `Network` gives addresses and connections. A `Transport` is one connection; its user is its
`Receiver`. All calls happen on the loop, and none of them calls back before it has returned: what a `send` meets on the
way is told on a later turn.

After `Transport.close` nothing more is told to its receiver, save an `on_closed` that was on its way. A connection that
ends otherwise, because the peer closed it or could not be reached, is told once, by `on_closed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from strandline.log.segment.log_slice import LogSlice

if TYPE_CHECKING:
    import ssl

Piece = bytes | memoryview | LogSlice
"""A part of an answer: bytes, a view of a block in a cache, or batches that go from file to socket without passing
through here."""


class Transport(Protocol):
    @property
    def peer_host(self) -> str: ...

    @property
    def peer_port(self) -> int:
        """0 if the peer is gone."""

    @property
    def is_congested(self) -> bool:
        """Whether bytes wait to be sent; no further request is started meanwhile."""

    @property
    def unsent_bytes(self) -> int:
        """The memory that they take, about, while the transport is congested."""

    def send(self, data: bytes) -> None: ...

    def send_pieces(self, pieces: list[Piece]) -> None:
        """Send them in order; slices are released when they are sent, or when they never will be."""

    def pause(self) -> None:
        """Stop reading; the peer's own buffers hold it back."""

    def resume(self) -> None: ...

    def close(self) -> None: ...


class OutgoingTransport(Transport, Protocol):
    """A connection that was asked for. Before `on_connected` nothing may be sent."""

    @property
    def failure(self) -> str:
        """Why it could not be made, for people; empty if it was made, or if the reason is unknown."""

    @property
    def is_refused(self) -> bool:
        """Whether the machine of the peer refused the connection at each of its addresses: no process listens."""


class Receiver(Protocol):
    """Our end of a connection."""

    def receive(self, view: memoryview) -> None:
        """Bytes of the peer, in order; `view` is good until this returns."""

    def on_congested(self) -> None:
        """The peer took some of what was sent and not all. Told again each time it took more."""

    def on_drained(self) -> None:
        """Everything was sent, after some of it had to wait."""

    def on_closed(self) -> None:
        """The connection is gone, and was not closed by us. The last that is told."""


class OutgoingReceiver(Receiver, Protocol):
    def on_connected(self) -> None:
        """The connection is there. If it cannot be made, `on_closed` is told and this never is."""


Accept = Callable[[Transport], Receiver | None]
"""Takes a connection that a peer made; None refuses it, and it is closed."""


class Listening(Protocol):
    """An address that is taken. Peers are welcome after `open`."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int:
        """What was really bound: port 0 asks for any that is free."""

    def open(self) -> None: ...

    def hold_back(self, is_held: bool) -> None:
        """While held, little is read at a time from the connections that came by this address."""

    def close(self) -> None:
        """Take no more connections; those that are there stay."""


class AcceptedTls(Protocol):
    """The TLS of an address: what peers are shown, and what becomes of them."""

    is_between_nodes: bool
    """Whether nodes use it among themselves; their handshakes go before those of clients."""

    def server_context(self) -> ssl.SSLContext: ...

    def on_secured(self, receiver: Receiver, certificate: bytes | None) -> None:
        """Note that the handshake is over, and the certificate of the peer as DER, if it has shown one."""

    def on_failed(self, receiver: Receiver, reason: str, kind: str) -> None:
        """Close the connection: its handshake failed or took too long."""


class OutgoingTls(Protocol):
    """The TLS of the connections that a node makes."""

    def client_context(self) -> ssl.SSLContext: ...


class Network(Protocol):
    def listen(
        self,
        host: str,
        port: int,
        on_accept: Accept,
        *,
        delay_s: Callable[[], float] | None = None,
        tls: AcceptedTls | None = None,
    ) -> Listening:
        """Take the address, or raise OSError. `delay_s()` is how long the next connection has to wait; 0 for not.

        Without `tls` peers are served in the clear.
        """

    def connect(
        self, host: str, port: int, receiver: OutgoingReceiver, *, tls: OutgoingTls | None = None
    ) -> OutgoingTransport:
        """Begin to connect. There is no timeout: a caller that has waited long enough closes the transport.

        With `tls`, `on_connected` comes after the handshake, which checks that the certificate is for `host`.
        """
