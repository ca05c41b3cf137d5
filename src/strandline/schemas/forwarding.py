"""Writes that another registry decides: sent on to the primary as they came, and answered as it answers.

The answer waits until this registry has what the primary wrote, so that a client which reads here sees it.

The primary proves the client's credentials itself, and decides about its rights again: no header says who the client
is. Credentials go out over TLS to a host whose certificate is trusted, or to this machine; never in the clear.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from strandline.config.cluster_checks import is_loopback
from strandline.errors import InvalidConfig
from strandline.schemas.election import RegistryAddress
from strandline.schemas.failures import FORWARDING_FAILED, RegistryError
from strandline.schemas.registry import SchemaRegistry
from strandline.schemas.topic import SchemaTopicFailed

FORWARDED_HEADER: Final = "x-forward"
"""Confluent's name: a request that has it is not sent on again."""
OFFSET_HEADER: Final = "x-strandline-offset"
"""The offset up to which a registry had read when it answered a write."""
CONNECT_S_MAX: Final = 2.0
ANSWER_S_MAX: Final = 35.0
"""Longer than a primary tries to write."""
THREADS_MAX: Final = 16
_CREDENTIALS: Final = "authorization"
_PASSED_ON: Final = ("content-type", "accept", _CREDENTIALS)

logger = logging.getLogger("strandline.schemas")

MakeContext = Callable[[], ssl.SSLContext]
"""Makes the context that checks the certificate of a primary, and shows our own. Raises InvalidConfig."""


class PrimaryAway(Exception):
    """The primary did not see the request: it can not be reached, or must not get the client's credentials."""


@dataclass(frozen=True)
class ForwardedAnswer:
    status: int
    body: bytes
    media_type: str


class Forwarder:
    """The way to the primary."""

    def __init__(self, registry: SchemaRegistry, make_context: MakeContext) -> None:
        self.own: RegistryAddress | None = None
        """Where this registry serves; set when it is known."""
        self.primary: RegistryAddress | None = None
        self._registry = registry
        self._make_context = make_context
        self._threads = ThreadPoolExecutor(THREADS_MAX, "registry-forwarding")

    @property
    def is_primary(self) -> bool:
        """Say whether writes are decided here: this is the primary, or none is known."""
        return self.primary is None or self.primary == self.own

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def forward(self, method: str, target: bytes, headers: Mapping[str, str], body: bytes) -> ForwardedAnswer:
        """Return the primary's answer. Raise PrimaryAway if it did not see the request, else RegistryError."""
        primary = self.primary
        assert primary is not None
        sent = {name: headers[name] for name in _PASSED_ON if name in headers} | {FORWARDED_HEADER: "false"}
        if _CREDENTIALS in sent and primary.scheme != "https" and not is_loopback(primary.host):
            raise PrimaryAway(f"the primary at {primary.url} has no TLS, so that it gets no credentials of clients")
        loop = asyncio.get_running_loop()
        answer, offset = await loop.run_in_executor(
            self._threads, self._send, primary, method, target.decode("latin-1"), sent, body
        )
        if offset is not None and answer.status < 300:
            try:
                async with asyncio.timeout(self._registry.settings.timeout_s):
                    await self._registry.wait_for(offset - 1)
            except (TimeoutError, SchemaTopicFailed):
                logger.warning("the topic was not read to offset %d in time, which the primary wrote", offset)
        return answer

    def _send(
        self, primary: RegistryAddress, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[ForwardedAnswer, int | None]:
        """Ask the primary, in a thread; return its answer and how far it had read the topic."""
        try:
            connection = self._connect(primary)
        except (OSError, InvalidConfig) as error:
            raise PrimaryAway(f"the primary at {primary.url} can not be reached: {error}") from error
        try:
            connection.request(method, target, body, dict(headers))
            answer = connection.getresponse()
            offset = answer.getheader(OFFSET_HEADER)
            media_type = answer.getheader("content-type") or "application/json"
            known = int(offset) if offset is not None and offset.isdigit() else None
            return ForwardedAnswer(answer.status, answer.read(), media_type), known
        except (OSError, http.client.HTTPException) as error:
            raise RegistryError(
                FORWARDING_FAILED, f"The primary at {primary.url} was lost while it handled the request: {error}"
            ) from error
        finally:
            connection.close()

    def _connect(self, primary: RegistryAddress) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if primary.scheme == "https":
            # Made for each connection, so that a renewed certificate needs no restart.
            context = self._make_context()
            connection = http.client.HTTPSConnection(primary.host, primary.port, timeout=CONNECT_S_MAX, context=context)
        else:
            connection = http.client.HTTPConnection(primary.host, primary.port, timeout=CONNECT_S_MAX)
        try:
            connection.connect()
            connection.sock.settimeout(ANSWER_S_MAX)
        except OSError:
            connection.close()
            raise
        return connection
