"""Requests over HTTP that another worker of a service answers: sent on as they came, and answered as it answers.

The other worker proves the client's credentials itself, and decides about its rights again: no header says who the
client is. Credentials go out over TLS to a host whose certificate is trusted, or to this machine; never in the clear.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from strandline.config.cluster_checks import is_loopback
from strandline.errors import InvalidConfig

CONNECT_S_MAX: Final = 2.0
THREADS_MAX: Final = 16
_CREDENTIALS: Final = "authorization"
_PASSED_ON: Final = ("content-type", "accept", _CREDENTIALS)

MakeContext = Callable[[], ssl.SSLContext]
"""Makes the context that checks the certificate of another worker, and shows our own. Raises InvalidConfig."""


class PeerAway(Exception):
    """The other worker did not see the request: it can not be reached, or must not get the client's credentials."""


class PeerLost(Exception):
    """The other worker was lost while it handled the request: it may have done what it was asked, or not."""


@dataclass(frozen=True)
class ForwardedAnswer:
    """What the other worker answered. Names of headers are lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "application/json")


class HttpForwarder:
    """The way to other workers. `peer` is what messages call one, such as `primary`."""

    def __init__(self, make_context: MakeContext, peer: str, answer_s_max: float) -> None:
        self._make_context = make_context
        self._peer = peer
        self._answer_s_max = answer_s_max
        self._threads = ThreadPoolExecutor(THREADS_MAX, f"{peer}-forwarding")

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def forward(
        self, url: str, method: str, target: bytes, headers: Mapping[str, str], body: bytes, marks: Mapping[str, str]
    ) -> ForwardedAnswer:
        """Return the answer of the worker at a URL. Raise PeerAway if it did not see the request, else PeerLost.

        `marks` are headers that are added, so that the other worker knows that it was sent on.
        """
        parts = urlsplit(url)
        sent = {name: headers[name] for name in _PASSED_ON if name in headers} | dict(marks)
        if _CREDENTIALS in sent and parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            raise PeerAway(f"the {self._peer} at {url} has no TLS, so that it gets no credentials of clients")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._send, url, method, target.decode("latin-1"), sent, body)

    def _send(self, url: str, method: str, target: str, headers: Mapping[str, str], body: bytes) -> ForwardedAnswer:
        try:
            connection = self._connect(url)
        except (OSError, ValueError, InvalidConfig) as error:
            raise PeerAway(f"the {self._peer} at {url} can not be reached: {error}") from error
        try:
            connection.request(method, target, body, dict(headers))
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return ForwardedAnswer(answer.status, answer.read(), found)
        except (OSError, http.client.HTTPException) as error:
            raise PeerLost(f"The {self._peer} at {url} was lost while it handled the request: {error}") from error
        finally:
            connection.close()

    def _connect(self, url: str) -> http.client.HTTPConnection:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            # Made for each connection, so that a renewed certificate needs no restart.
            context = self._make_context()
            connection = http.client.HTTPSConnection(host, port, timeout=CONNECT_S_MAX, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=CONNECT_S_MAX)
        try:
            connection.connect()
            connection.sock.settimeout(self._answer_s_max)
        except OSError:
            connection.close()
            raise
        return connection
