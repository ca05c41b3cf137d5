"""One client connection, without its socket: bytes in, requests started, answers out in the order of the requests.

A frame is `length int32` and a request header: `api key int16, version int16, correlation id int32, client id`. Frames
are views of the transport's shared buffer and never outlive `receive`; only what is left of an incomplete frame is
kept, and it grows as bytes come, never by what the length claims.

Requests are started in order. A Produce that waits for its commit does not hold up later Produces; anything else that
waits holds up what comes after it, as Kafka does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, Final, Protocol

from strandline.broker.network.connection_limits import ConnectionLimits
from strandline.broker.network.routes import Route
from strandline.broker.network.transport import Piece, Transport
from strandline.handlers.support.context import ClientQuota, Gate
from strandline.log.segment.log_slice import LogSlice
from strandline.observability.request_meter import RequestMeter
from strandline.security.principal import ANONYMOUS_SESSION

FRAME_HEADER: Final = Struct(">ihhih")
"""Frame length, API key, version, correlation id, length of the client id."""
FRAME_HEADER_SIZE: Final = 14
FRAME_SIZE_MIN: Final = 10
LENGTH: Final = Struct(">i")
_LENGTH_AND_ID: Final = Struct(">ii")
_LENGTH_ID_TAGS: Final = Struct(">iib")
PRODUCE: Final = 0
REQUESTS_PER_TURN_MAX: Final = 32
"""Requests of one connection that are started in one turn of the loop."""
PRODUCES_WAITING_MAX: Final = 256
"""Produces of one connection that may wait for their commit at once."""


class ConnectionGate(Gate, Protocol):
    """What stands before the requests of a connection until its client is authenticated."""

    frame_size_max: int
    is_raw: bool
    """Whether frames are bare tokens, without a header."""

    def admits(self, api_key: int, version: int) -> bool:
        """Return whether a request may be started. If it may not, the connection is closed."""

    def on_raw(self, exchange: Exchange, token: bytes) -> None:
        """Take a bare token."""

    def on_closed(self) -> None: ...


class GateKeeper(Protocol):
    """A listener that authenticates its connections."""

    expired: int
    """Connections that were closed because their sessions were over."""

    def logins(self) -> Mapping[str, Mapping[str, int]]:
        """Return the counts of logins by result and mechanism."""

    def gate(self, connection: Connection) -> ConnectionGate: ...


class RequestStarter(Protocol):
    """What a connection hands its requests to, and times them by."""

    listener: str
    sasl: GateKeeper | None
    listener_name: str
    routes: dict[int, Route]
    limits: ConnectionLimits
    clock_ns: Callable[[], int] | None
    window_clock_ns: Callable[[], int] | None
    received_ns: int
    current: RequestMeter | None

    def start(
        self,
        connection: Connection,
        view: memoryview,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id_size: int,
    ) -> None: ...

    def throttle(self, connection: Connection, route: Route, version: int, response: Any) -> Any: ...

    def one_software(self, name: str, version: str) -> tuple[str, str] | None: ...

    def call_soon(self, callback: Callable[[], object]) -> None: ...


class Exchange:
    """A request that was started and is not answered yet."""

    __slots__ = (
        "answer",
        "connection",
        "correlation_id",
        "flexible_header",
        "has_waited",
        "is_produce",
        "meter",
        "on_abandoned",
        "started_ns",
    )

    def __init__(self, connection: Connection, correlation_id: int, flexible_header: bool, is_produce: bool) -> None:
        self.connection = connection
        self.correlation_id = correlation_id
        self.flexible_header = flexible_header
        self.is_produce = is_produce
        self.answer: list[Piece] | None = None
        self.on_abandoned: Callable[[], object] | None = None
        self.has_waited = False
        """Whether it was still open when its connection had started all that it could."""
        dispatcher = connection.dispatcher
        self.meter = dispatcher.current
        self.started_ns = 0 if self.meter is None else dispatcher.clock_ns()  # type: ignore[misc]  # a meter has a clock

    def reply(self, body: bytes) -> None:
        if self.meter is not None:
            self.meter.response_bytes += len(body)
        self.connection.finish(self, [frame(self.correlation_id, self.flexible_header, len(body)) + body])

    def reply_pieces(self, pieces: list[Piece], size: int) -> None:
        if self.meter is not None:
            self.meter.response_bytes += size
        head = frame(self.correlation_id, self.flexible_header, size)
        first = pieces[0]
        assert isinstance(first, bytes), "an answer begins with bytes"
        pieces[0] = head + first
        self.connection.finish(self, pieces)

    def count_error(self, code: int) -> None:
        """A part of the request is answered with this error code."""
        if self.meter is not None:
            self.meter.count_error(code)

    def reply_nothing(self) -> None:
        """The request is done and has no answer (Produce with acks=0)."""
        self.connection.finish(self, [])


def frame(correlation_id: int, flexible_header: bool, body_size: int) -> bytes:
    if flexible_header:
        return _LENGTH_ID_TAGS.pack(body_size + 5, correlation_id, 0)
    return _LENGTH_AND_ID.pack(body_size + 4, correlation_id)


class Connection:
    __slots__ = (
        "closed",
        "dispatcher",
        "gate",
        "has_asked",
        "inbox",
        "inbox_at",
        "limits",
        "muted",
        "needed",
        "number",
        "paused",
        "quota",
        "session",
        "software",
        "started",
        "transport",
        "used_at",
    )

    def __init__(self, dispatcher: RequestStarter, transport: Transport) -> None:
        self.dispatcher = dispatcher
        self.limits = dispatcher.limits
        self.transport = transport
        self.inbox: bytearray | None = None
        self.inbox_at = 0
        self.needed = 0
        """Bytes of the inbox without which nothing can be done."""
        self.started: deque[Exchange] | None = None
        self.paused = False
        self.muted = False
        """Whether no request is started because the client is above a quota; then it is also paused."""
        self.quota: ClientQuota | None = None
        """What the client may use, while there are quotas; see `throttling`."""
        self.closed = False
        self.has_asked = False
        """Whether a whole request has come."""
        self.used_at = 0
        self.number = 0
        """How many connections were accepted up to this one: a later one has a greater number."""
        self.session = ANONYMOUS_SESSION
        sasl = dispatcher.sasl
        self.gate: ConnectionGate | None = None if sasl is None else sasl.gate(self)
        """None once nothing stands before the requests of this connection."""
        self.software: tuple[str, str] | None = None
        """Name and version of the client's library, once it has told them."""

    @property
    def peer_host(self) -> str:
        return self.transport.peer_host

    @property
    def listener_name(self) -> str:
        return self.dispatcher.listener_name

    @property
    def inbox_size(self) -> int:
        """Bytes that came and are not dealt with."""
        return 0 if self.inbox is None else len(self.inbox) - self.inbox_at

    # Bytes in

    def receive(self, view: memoryview) -> None:
        """Bytes from the peer; `view` is not kept."""
        self.used_at = self.limits.ticks
        inbox = self.inbox
        if inbox is None:
            done = self._start_requests(view)
            if self.started is not None:
                self._note_waiting()
            if done:
                self.has_asked = True
            if done < len(view) and not self.closed:
                self.inbox = bytearray(view[done:])
                self.inbox_at = 0
                self.limits.deadlines.on_request_begun(self, self.used_at)
                self.limits.note_inbox(self, len(self.inbox))
            return
        try:
            inbox += view
        except BufferError:
            # A view of an earlier request is still held, by the traceback of an error that is kept perhaps.
            inbox = self.inbox = inbox + view
        self.limits.note_inbox(self, len(view))
        if len(inbox) - self.inbox_at >= self.needed:
            self._work_off_inbox()

    def _work_off_inbox(self) -> None:
        inbox = self.inbox
        if inbox is None or self.closed:
            return
        with memoryview(inbox) as whole, whole[self.inbox_at :] as view:
            done = self._start_requests(view)
        if self.started is not None:
            self._note_waiting()
        if not done or self.closed:
            return
        self.has_asked = True
        self.inbox_at += done
        if self.inbox_at == len(inbox):
            self.inbox = None
            self.limits.deadlines.on_inbox_empty(self)
            self.limits.note_inbox(self, -len(inbox))
            return
        self.limits.deadlines.on_request_begun(self, self.limits.ticks)
        if self.inbox_at * 2 > len(inbox):
            # What is dealt with is cut off only when it is the greater part, so that many small requests that wait
            # behind a slow one are not moved again for each.
            self.limits.note_inbox(self, -self.inbox_at)
            self.inbox = inbox[self.inbox_at :]
            self.inbox_at = 0

    def _start_requests(self, view: memoryview) -> int:
        """Start what is complete and may be started; how many bytes are dealt with."""
        at = 0
        end = len(view)
        room = REQUESTS_PER_TURN_MAX
        self.needed = 0
        clock_ns = self.dispatcher.window_clock_ns
        if clock_ns is not None:
            self.dispatcher.received_ns = clock_ns()
        gate = self.gate
        size_max = self.limits.frame_size_max
        if gate is not None:
            if gate.is_raw:
                return self._start_raw(view)
            size_max = min(size_max, gate.frame_size_max)
        while end - at >= FRAME_HEADER_SIZE:
            size, api_key, version, correlation_id, client_id_size = FRAME_HEADER.unpack_from(view, at)
            if size < FRAME_SIZE_MIN or size > size_max:
                self.limits.refuse_frame(self, size)
                return end
            if end - at - 4 < size:
                self.needed = size + 4
                return at
            if (self.started is not None or self.muted or self.transport.is_congested) and not self._may_start(api_key):
                self._pause()
                return at
            if not room:
                # Two megabytes of the smallest requests would keep the loop for seconds: others have their turn first.
                self._pause()
                self.dispatcher.call_soon(self.go_on)
                return at
            room -= 1
            body = at + FRAME_HEADER_SIZE
            gate = self.gate
            if gate is not None and not gate.admits(api_key, version):
                return end
            self.dispatcher.start(self, view[body : at + 4 + size], api_key, version, correlation_id, client_id_size)
            if self.closed:
                return end
            at += 4 + size
            if gate is not None and gate.is_raw:
                done: int = at + self._start_raw(view[at:])
                return done
        self.needed = FRAME_HEADER_SIZE
        if end - at >= LENGTH.size:
            # A length that cannot be is refused at once, not when more of a frame that is none has come.
            (size,) = LENGTH.unpack_from(view, at)
            if size < FRAME_SIZE_MIN or size > size_max:
                self.limits.refuse_frame(self, size)
                return end
        elif end > at:
            self.needed = LENGTH.size
        return at

    def _start_raw(self, view: memoryview) -> int:
        """Hand the gate a bare token, and start what follows it; return how many bytes are dealt with."""
        gate, end = self.gate, len(view)
        assert gate is not None, "only a gate takes bare tokens"
        self.needed = LENGTH.size
        if end < LENGTH.size:
            return 0
        size: int = LENGTH.unpack_from(view)[0]
        if not 0 <= size <= gate.frame_size_max:
            self.limits.refuse(self, f"a token of {size} bytes")
            return end
        done = LENGTH.size + size
        self.needed = done
        if end < done:
            return 0
        if self.started is not None:
            self._pause()
            return 0
        gate.on_raw(self.begin(0, flexible_header=False), bytes(view[LENGTH.size : done]))
        if self.closed:
            return end
        # A login has few tokens, so this does not go deep.
        return done + self._start_requests(view[done:])

    def _note_waiting(self) -> None:
        """What is open now waits for something. The last were begun last, so those before were noted before."""
        for exchange in reversed(self.started or ()):
            if exchange.has_waited:
                return
            exchange.has_waited = True

    def _may_start(self, api_key: int) -> bool:
        if self.muted or self.transport.is_congested:
            return False
        started = self.started
        if started is None:
            return True
        # Only the last can be something else than a Produce: whatever is not one holds up what comes after it.
        return api_key == PRODUCE and started[-1].is_produce and len(started) < PRODUCES_WAITING_MAX

    def _pause(self) -> None:
        if not self.paused:
            self.paused = True
            self.transport.pause()

    def go_on(self) -> None:
        """Something that held requests up is over."""
        if self.paused and not self.muted and not self.closed and not self.limits.is_stopping:
            self.paused = False
            self._work_off_inbox()
            if not self.paused and not self.closed:
                self.transport.resume()

    def mute(self) -> None:
        """Start no request, and read nothing, until `unmute`. Answers are sent all the same."""
        if not self.closed:
            self.muted = True
            self._pause()

    def unmute(self) -> None:
        self.muted = False
        self.go_on()

    # Answers out

    def begin(self, correlation_id: int, *, flexible_header: bool, is_produce: bool = False) -> Exchange:
        """A request that will be answered later."""
        exchange = Exchange(self, correlation_id, flexible_header, is_produce)
        if self.started is None:
            self.started = deque((exchange,))
        else:
            self.started.append(exchange)
        return exchange

    def reply_now(self, correlation_id: int, flexible_header: bool, body: bytes) -> None:
        """Answer the request that is being started, if nothing before it is still unanswered."""
        if self.started is None:
            self.transport.send(frame(correlation_id, flexible_header, len(body)) + body)
            dispatcher = self.dispatcher
            clock_ns = dispatcher.window_clock_ns
            if clock_ns is not None and (meter := dispatcher.current) is not None:
                took_ns = clock_ns() - dispatcher.received_ns
                meter.at_once_ns += took_ns
                meter.at_once[took_ns.bit_length()] += 1
        else:
            self.begin(correlation_id, flexible_header=flexible_header, is_produce=True).reply(body)

    def leave_unanswered(self) -> None:
        """The request that is being started is done, and has no answer (Produce with acks=0)."""
        meter = self.dispatcher.current
        if meter is not None:
            meter.unanswered += 1

    def finish(self, exchange: Exchange, answer: list[Piece]) -> None:
        if self.closed:
            release(answer)
            return
        exchange.answer = answer
        started = self.started
        assert started is not None
        if started[0] is not exchange:
            return
        while started and (ready := started[0].answer) is not None:
            answered = started.popleft()
            if answered.meter is not None:
                self._time(answered)
            if len(ready) == 1 and type(ready[0]) is bytes:
                self.transport.send(ready[0])
            elif ready:
                self.transport.send_pieces(self.limits.unsent.packed(ready))
        if not started:
            self.started = None
        if self.transport.is_congested:
            self.limits.unsent.note(self, self.transport.unsent_bytes)
        elif self.paused:
            self.go_on()

    def _time(self, answered: Exchange) -> None:
        dispatcher, meter = self.dispatcher, answered.meter
        assert meter is not None
        took_ns = dispatcher.clock_ns() - answered.started_ns  # type: ignore[misc]  # a meter has a clock
        if answered.has_waited:
            meter.waited_ns += took_ns
            meter.waited[took_ns.bit_length()] += 1
        else:
            meter.at_once_ns += took_ns
            meter.at_once[took_ns.bit_length()] += 1

    def on_congested(self) -> None:
        # The peer took some and not all: who takes bytes, however slowly, is not idle.
        self.used_at = self.limits.ticks
        self.limits.unsent.forget(self)
        self.limits.unsent.note(self, self.transport.unsent_bytes)

    def on_drained(self) -> None:
        """The transport has sent everything."""
        self.limits.unsent.forget(self)
        self.go_on()

    # The end

    def close(self) -> None:
        """Close from our side."""
        if not self.closed:
            self.transport.close()
            self.on_closed()

    def when_closed(self, callback: Callable[[], object]) -> None:
        """Call back once when the connection is closed."""
        self.limits.on_closed.setdefault(self, []).append(callback)

    def on_closed(self) -> None:
        """The transport is gone; let go of everything that belonged to it."""
        if self.closed:
            return
        self.closed = True
        if self.inbox is not None:
            self.limits.note_inbox(self, -len(self.inbox))
            self.inbox = None
        for exchange in self.started or ():
            if exchange.answer is not None:
                release(exchange.answer)
            if exchange.meter is not None:
                exchange.meter.unanswered += 1
            if exchange.on_abandoned is not None:
                exchange.on_abandoned()
        self.started = None
        if self.gate is not None:
            self.gate.on_closed()
        self.limits.forget(self)


def release(answer: list[Piece]) -> None:
    for piece in answer:
        if isinstance(piece, LogSlice):
            piece.release()
