"""The node's HTTP endpoint: what it answers, and where it listens (`http.listener`)."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Final

from strandline.broker.metrics.http_server import OK, PLAIN, UNAVAILABLE, HttpServer, Page, listening_socket
from strandline.config.node_config import HTTP, BrokerConfig
from strandline.errors import InvalidConfig
from strandline.observability.log_lines import fields

if TYPE_CHECKING:
    import ssl

    from strandline.broker.metrics.scrape import ObservedBroker
    from strandline.broker.network.tls.tls_listeners import ListenerTls

log = logging.getLogger("strandline.http")

SETTING: Final = "http.listener"
OFF: Final = ("", "off")
MODULES: Final = (
    "json",
    "strandline.observability.exposition",
    "strandline.broker.metrics.requests",
    "strandline.broker.metrics.topics",
    "strandline.broker.metrics.groups",
    "strandline.broker.metrics.transactions",
    "strandline.broker.metrics.node",
    "strandline.broker.metrics.client_metrics",
    "strandline.broker.metrics.families",
)


def parse_listener(raw: str) -> tuple[str, int] | None:
    """Host and port of `http.listener`; None if nothing is to be served."""
    if raw.strip().lower() in OFF:
        return None
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[^:/\[\]\s]*):([0-9]{1,5})", raw.strip())
    if match is None or int(match[2]) > 65_535:
        raise InvalidConfig(f"{SETTING}={raw!r} is not allowed; expected host:port, or off")
    return match[1].strip("[]"), int(match[2])


def take_address(config: BrokerConfig) -> socket.socket | None:
    """Bind before the node starts, so that a port that is taken stops the start and not the service.

    Only a listener that was asked for is worth that: a second node on one machine should start without ado.
    """
    address = parse_listener(config.http_listener)
    if address is None:
        return None
    try:
        return listening_socket(*address)
    except OSError as error:
        words = f"{SETTING}={config.http_listener}: {(error.strerror or str(error)).lower()}"
        if SETTING in config.given:
            raise InvalidConfig(f"{words}; choose another port, or off") from error
        log.warning("%s; going on without metrics, set it to another port or to off", words)
        return None


class Endpoint:
    """The pages. `node` is there once it was made; until then the endpoint lives and is not ready."""

    def __init__(self, config: BrokerConfig) -> None:
        """InvalidConfig if it is to speak TLS and has no usable certificate."""
        self._tls: ListenerTls | None = None
        if config.http_security_protocol == "SSL" and parse_listener(config.http_listener) is not None:
            from strandline.broker.network.tls.tls_listeners import ListenerTls

            self._tls = ListenerTls(config, HTTP, now_s=time.time(), is_server=True, is_between_nodes=False)
        self.node: ObservedBroker | None = None
        self._server = HttpServer(
            {
                "/metrics": lambda: self._metrics(public=False),
                "/public_metrics": lambda: self._metrics(public=True),
                "/livez": lambda: Page(OK, PLAIN, ["ok\n"]),
                "/readyz": self._readiness,
            },
            None if self._tls is None else self._context,
        )

    def _context(self) -> ssl.SSLContext:
        """Return the context in force. The node, when it is there, keeps it up to date."""
        if self.node is not None and self.node.tls is not None:
            return self.node.tls.by_listener[HTTP].server_context()
        assert self._tls is not None
        return self._tls.server_context()

    async def start(self, listening: socket.socket) -> None:
        bound = listening.getsockname()
        await self._server.start(listening)
        host = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        scheme = "http" if self._tls is None else "https"
        log.info("metrics at %s://%s:%d/metrics", scheme, host, bound[1], extra=fields(host=bound[0], port=bound[1]))

    def load(self, loop: asyncio.AbstractEventLoop) -> None:
        """Import what the first scrape would wait for, one module per turn of the loop."""
        for module in MODULES:
            if module not in sys.modules:
                import_module(module)
                loop.call_soon(self.load, loop)
                return

    async def close(self) -> None:
        await self._server.close()

    def _metrics(self, *, public: bool) -> Page:
        if self.node is None:
            return Page(UNAVAILABLE, PLAIN, ["the node is starting\n"])
        from strandline.broker.metrics import families
        from strandline.observability.exposition import CONTENT_TYPE

        return Page(OK, CONTENT_TYPE, families.page(self.node, public=public))

    def _readiness(self) -> Page:
        import json

        reasons = reasons_not_ready(self.node)
        status = UNAVAILABLE if reasons else OK
        return Page(status, "application/json", [json.dumps({"ready": not reasons, "reasons": reasons}) + "\n"])


def reasons_not_ready(node: ObservedBroker | None) -> list[str]:
    """Why clients should not be sent here now; empty if they may be."""
    if node is not None and (node.dispatcher.limits.is_stopping or node.has_failed):
        return ["stopping"]
    if node is None or not node.is_serving:
        return ["starting"]
    reasons = [node.replicas.recovery.progress] if node.replicas.recovery.is_pending else []
    failure = node.metadata.log.failure
    return reasons if failure is None else [*reasons, f"the metadata log failed: {failure}"]
