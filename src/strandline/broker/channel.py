"""One outgoing connection for requests to one address: connects by need, pipelines, matches answers to requests.

Requests are sent in the order in which they were asked, and a server answers a connection in that order. So a request
that waits at the server (a long poll) holds up what is asked after it: give it a channel of its own.

`on_answer(response, error)` is called exactly once for each request, never before `ask` has returned: with the answer,
or with None and `Disconnected` (no connection, or one that was lost: the request may have been carried out, or not),
`TimedOut` (the same), or `MalformedMessage`. A timed-out request ends the connection, because whatever comes after it
would wait behind it, and a peer that was cut off is found again sooner by a new connection than by an old one.

After a failure the next attempt to connect waits, longer each time; requests wait with it, as far as their timeouts
allow. So whoever asks again at once after a failure does not spin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from strandline.broker.transport import Network
from strandline.codec.message import Message
from strandline.runtime import Runtime

OnAnswer = Callable[[Any, BaseException | None], object]
OnBody = Callable[[memoryview | None, BaseException | None], object]


class Channel:
    def __init__(
        self,
        runtime: Runtime,
        network: Network,
        host: str,
        port: int,
        *,
        client_id: str,
        frame_size_max: int = 100 << 20,
    ) -> None:
        """Nothing is connected before the first request."""
        raise NotImplementedError

    @property
    def address(self) -> tuple[str, int]:
        raise NotImplementedError

    def ask(self, request: Message, version: int, on_answer: OnAnswer, *, timeout_s: float) -> None:
        """Send `request`, call `on_answer(response, None)` or `on_answer(None, error)`."""
        raise NotImplementedError

    def ask_raw(
        self,
        api_key: int,
        version: int,
        body: Sequence[bytes],
        on_answer: OnBody,
        *,
        timeout_s: float,
        flexible: bool = True,
    ) -> None:
        """The same with bodies as bytes. The view that `on_answer` gets is good until it returns.

        `flexible` says whether this version of the message has tagged fields in its headers.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Drop the connection. Who still waits is told `Disconnected`, on a later turn; so is who asks afterwards."""
        raise NotImplementedError
