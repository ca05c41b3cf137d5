"""Writes that another registry decides: sent on to the primary as they came, and answered as it answers.

The answer waits until this registry has what the primary wrote, so that a client which reads here sees it.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from strandline.schemas.election import RegistryAddress
from strandline.schemas.failures import FORWARDING_FAILED, RegistryError
from strandline.schemas.registry import SchemaRegistry

FORWARDED_HEADER: Final = "x-forward"
"""Confluent's name: a request that has it is not sent on again."""
OFFSET_HEADER: Final = "x-strandline-offset"
"""The offset up to which a registry had read when it answered a write."""
CONNECT_S_MAX: Final = 2.0
ANSWER_S_MAX: Final = 35.0
"""Longer than a primary tries to write."""
THREADS_MAX: Final = 16
_PASSED_ON: Final = ("content-type", "accept", "authorization")

logger = logging.getLogger("strandline.schemas")


class PrimaryAway(Exception):
    """No connection to the primary could be made: it did not see the request."""


@dataclass(frozen=True)
class ForwardedAnswer:
    status: int
    body: bytes
    media_type: str


class Forwarder:
    """The way to the primary."""

    def __init__(self, registry: SchemaRegistry, own: RegistryAddress) -> None:
        self.own = own
        self.primary: RegistryAddress | None = None
        self._registry = registry
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
        loop = asyncio.get_running_loop()
        answer, offset = await loop.run_in_executor(
            self._threads, _send, primary, method, target.decode("latin-1"), sent, body
        )
        if offset is not None and answer.status < 300:
            try:
                async with asyncio.timeout(self._registry.settings.timeout_s):
                    await self._registry.wait_for(offset - 1)
            except TimeoutError:
                logger.warning("the topic was not read to offset %d in time, which the primary wrote", offset)
        return answer


def _send(
    primary: RegistryAddress, method: str, target: str, headers: Mapping[str, str], body: bytes
) -> tuple[ForwardedAnswer, int | None]:
    """Ask the primary, in a thread; return its answer and how far it had read the topic."""
    split = urlsplit(primary.url)
    kind = http.client.HTTPSConnection if split.scheme == "https" else http.client.HTTPConnection
    connection = kind(primary.host, primary.port, timeout=CONNECT_S_MAX)
    try:
        try:
            connection.connect()
        except OSError as error:
            raise PrimaryAway(f"the primary at {primary.url} can not be reached: {error}") from error
        connection.sock.settimeout(ANSWER_S_MAX)
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
