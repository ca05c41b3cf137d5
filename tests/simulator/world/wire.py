"""The client side of a connection in the simulation: requests out, answers back in order, a time limit on each.

It shares no code with the brokers' own channels, so that a mistake in one does not hide the same mistake in the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any

from strandline.broker.network.transport import Network, OutgoingTransport
from strandline.codec.message import Message
from strandline.codec.message_codec import decode, encode
from strandline.codec.messages.request_header import RequestHeader
from strandline.runtime.runtime import Runtime

_LENGTH = Struct(">i")
_LENGTH_AND_ID = Struct(">ii")

OnAnswer = Callable[[Any], object]
"""Called with the answer, or with None if there is none and the outcome of the request is unknown."""


class _Asked:
    __slots__ = ("answer_class", "correlation_id", "on_answer", "version")

    def __init__(self, correlation_id: int, answer_class: type[Message], version: int, on_answer: OnAnswer) -> None:
        self.correlation_id = correlation_id
        self.answer_class = answer_class
        self.version = version
        self.on_answer = on_answer


class Wire:
    """One connection, made at once. When it is lost, or a request takes too long, it ends and stays ended."""

    def __init__(self, runtime: Runtime, network: Network, host: str, port: int, *, client_id: str) -> None:
        self._runtime = runtime
        self._client_id = client_id
        self._asked: deque[_Asked] = deque()
        self._unsent: list[bytes] = []
        self._is_connected = False
        self._inbox = bytearray()
        self._correlation_id = 0
        self.is_lost = False
        self._transport: OutgoingTransport = network.connect(host, port, self)

    @property
    def asked(self) -> int:
        """Requests that are not answered yet."""
        return len(self._asked)

    def ask(
        self, request: Message, version: int, answer_class: type[Message], on_answer: OnAnswer, *, timeout_s: float
    ) -> None:
        assert not self.is_lost
        self._correlation_id += 1
        flexible = version >= request.FLEXIBLE_FROM
        header = RequestHeader(request.API_KEY, version, self._correlation_id, self._client_id)
        message = encode(header, 2 if flexible else 1) + encode(request, version)
        asked = _Asked(self._correlation_id, answer_class, version, on_answer)
        self._asked.append(asked)
        self._runtime.call_later(timeout_s, self._expire, asked)
        data = _LENGTH.pack(len(message)) + message
        if self._is_connected:
            self._transport.send(data)
        else:
            self._unsent.append(data)

    def _expire(self, asked: _Asked) -> None:
        if not self.is_lost and asked in self._asked:
            self.close()

    def close(self) -> None:
        """End it; callers that wait for an answer get None."""
        if not self.is_lost:
            self._transport.close()
            self.on_closed()

    # What the transport tells

    def on_connected(self) -> None:
        self._is_connected = True
        unsent, self._unsent = self._unsent, []
        for data in unsent:
            self._transport.send(data)

    def receive(self, view: memoryview) -> None:
        inbox = self._inbox
        inbox += view
        while len(inbox) >= 8 and not self.is_lost:
            size, correlation_id = _LENGTH_AND_ID.unpack_from(inbox)
            if len(inbox) < 4 + size:
                return
            body = bytes(inbox[8 : 4 + size])
            del inbox[: 4 + size]
            asked = self._asked.popleft()
            assert asked.correlation_id == correlation_id, "an answer to another request"
            flexible = asked.version >= asked.answer_class.FLEXIBLE_FROM
            answer, _ = decode(asked.answer_class, asked.version, body, 1 if flexible else 0)
            asked.on_answer(answer)

    def on_congested(self) -> None:
        pass

    def on_drained(self) -> None:
        pass

    def on_closed(self) -> None:
        self.is_lost = True
        waiting, self._asked = self._asked, deque()
        for asked in waiting:
            asked.on_answer(None)
