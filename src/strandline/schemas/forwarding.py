"""Writes that another registry decides: sent on to the primary as they came, and answered as it answers.

The answer waits until this registry has what the primary wrote, so that a client which reads here sees it.
`client/http_forwarding.py` says where the credentials of clients go, and where they do not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from strandline.client.http_forwarding import ForwardedAnswer, HttpForwarder, MakeContext, PeerAway, PeerLost
from strandline.schemas.election import RegistryAddress
from strandline.schemas.failures import FORWARDING_FAILED, RegistryError
from strandline.schemas.registry import SchemaRegistry
from strandline.schemas.topic import SchemaTopicFailed

FORWARDED_HEADER: Final = "x-forward"
"""Confluent's name: a request that has it is not sent on again."""
OFFSET_HEADER: Final = "x-strandline-offset"
"""The offset up to which a registry had read when it answered a write."""
ANSWER_S_MAX: Final = 35.0
"""Longer than a primary tries to write."""

logger = logging.getLogger("strandline.schemas")


class PrimaryAway(Exception):
    """The primary did not see the request: it can not be reached, or must not get the client's credentials."""


class Forwarder:
    """The way to the primary."""

    def __init__(self, registry: SchemaRegistry, make_context: MakeContext) -> None:
        self.own: RegistryAddress | None = None
        """Where this registry serves; set when it is known."""
        self.primary: RegistryAddress | None = None
        self._registry = registry
        self._forwarder = HttpForwarder(make_context, "primary", ANSWER_S_MAX)

    @property
    def is_primary(self) -> bool:
        """Say whether writes are decided here: this is the primary, or none is known."""
        return self.primary is None or self.primary == self.own

    def stop(self) -> None:
        self._forwarder.stop()

    async def forward(self, method: str, target: bytes, headers: Mapping[str, str], body: bytes) -> ForwardedAnswer:
        """Return the primary's answer. Raise PrimaryAway if it did not see the request, else RegistryError."""
        primary = self.primary
        assert primary is not None
        try:
            answer = await self._forwarder.forward(
                _url(primary), method, target, headers, body, {FORWARDED_HEADER: "false"}
            )
        except PeerAway as error:
            raise PrimaryAway(str(error)) from error
        except PeerLost as error:
            raise RegistryError(FORWARDING_FAILED, str(error)) from error
        offset = answer.headers.get(OFFSET_HEADER, "")
        if offset.isdigit() and answer.status < 300:
            await self._wait_for(int(offset))
        return answer

    async def _wait_for(self, offset: int) -> None:
        """Wait until this registry has read what the primary wrote."""
        try:
            async with asyncio.timeout(self._registry.settings.timeout_s):
                await self._registry.wait_for(offset - 1)
        except (TimeoutError, SchemaTopicFailed):
            logger.warning("the topic was not read to offset %d in time, which the primary wrote", offset)


def _url(address: RegistryAddress) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{address.scheme}://{host}:{address.port}"
