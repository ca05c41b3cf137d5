"""A peer that writes its own bytes: frames that are right, and frames that are not.

frame    size int32 | api key int16 | version int16 | correlation id int32 | client id string | [tags] | body
answer   size int32 | correlation id int32 | [tags] | body
"""

from __future__ import annotations

import re
import socket
import struct
from importlib import import_module
from types import TracebackType
from typing import Any

from strandline.broker.network.routes import Route, routes
from strandline.codec.message import Message
from strandline.codec.message_codec import decode, decode_exact, encode
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.api_versions_response import ApiVersionsResponse

ANSWER_TIMEOUT_S = 60.0
"""How long a broker may take on a busy machine; no test waits so long unless it is about to fail."""
CLIENT_ID = b"hostile"
API_VERSIONS = 18
ROUTES = routes()
"""With those of share groups, which a broker serves if it is asked to."""


class Closed(Exception):
    """The broker hung up."""


def request_class(route: Route) -> type[Message]:
    found: type[Message] = _message(route.name, "Request")
    return found


def _message(name: str, kind: str) -> Any:
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return getattr(import_module(f"strandline.codec.messages.{snake}_{kind.lower()}"), name + kind)


def header(
    api_key: int, version: int, *, flexible: bool, correlation_id: int = 1, client_id: bytes = CLIENT_ID
) -> bytes:
    fields = struct.pack(">hhih", api_key, version, correlation_id, len(client_id)) + client_id
    return fields + b"\0" if flexible else fields


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def raw_request(api_key: int, version: int, body: bytes, *, correlation_id: int = 1) -> bytes:
    """A frame around any body, with the header that the version asks for."""
    route = ROUTES.get(api_key)
    flexible = route is not None and version >= route.flexible_from
    return framed(header(api_key, version, flexible=flexible, correlation_id=correlation_id) + body)


def request(message: Message, version: int, *, correlation_id: int = 1) -> bytes:
    return raw_request(message.API_KEY, version, encode(message, version), correlation_id=correlation_id)


def answer_of(route: Route, version: int, content: bytes) -> Any:
    """The message in an answer without its size; it must be whole and nothing may follow it."""
    at = 4
    if version >= route.flexible_from and route.api_key != API_VERSIONS:
        assert content[4] == 0, "an answer with tagged header fields"
        at = 5
    return decode_exact(_message(route.name, "Response"), version, content, at)


class Peer:
    """One connection to a broker."""

    def __init__(
        self, port: int, *, timeout_s: float = ANSWER_TIMEOUT_S, receive_buffer_bytes: int = 0, source: str = ""
    ) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes:
            # Before the connection is made: the window is agreed on with it.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(timeout_s)
        try:
            if source:
                self.socket.bind((source, 0))
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Hang up with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, content: bytes) -> None:
        try:
            self.socket.sendall(content)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def receive(self, size_bytes: int) -> bytes:
        received = bytearray()
        while len(received) < size_bytes:
            try:
                piece = self.socket.recv(min(size_bytes - len(received), 1 << 20))
            except ConnectionResetError as error:
                raise Closed from error
            if not piece:
                raise Closed(f"after {len(received)} of {size_bytes} bytes")
            received += piece
        return bytes(received)

    def receive_answer(self) -> bytes:
        """One answer without its size: correlation id and all that follows."""
        (size_bytes,) = struct.unpack(">i", self.receive(4))
        return self.receive(size_bytes)

    def ask(self, message: Message, version: int) -> Any:
        """Send a proper request; its answer, decoded."""
        self.send(request(message, version))
        return answer_of(ROUTES[message.API_KEY], version, self.receive_answer())

    def ask_raw(self, content: bytes) -> bytes | None:
        """Send any bytes that should make one request: the answer, or None if the broker hung up instead."""
        try:
            self.send(content)
            return self.receive_answer()
        except Closed:
            return None

    def is_closed(self) -> bool:
        """Whether the broker hangs up without another word; a timeout is a failure of the test."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def is_served(self) -> bool:
        """Whether the connection is still good for a request."""
        try:
            self.send(request(ApiVersionsRequest(), 0, correlation_id=0x5EED))
            content = self.receive_answer()
        except Closed:
            return False
        assert content[:4] == struct.pack(">i", 0x5EED), "the answer of another request came"
        answer, _ = decode(ApiVersionsResponse, 0, content, 4)
        return bool(answer.error_code == 0 and answer.api_keys)
