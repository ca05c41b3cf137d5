"""The registry as a server: the topic's reader and writer, and HTTP in front of them, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Final

import uvicorn

from strandline.schemas.election import PrimaryElection, RegistryAddress
from strandline.schemas.engine_table import all_types
from strandline.schemas.forwarding import Forwarder
from strandline.schemas.registry import RegistrySettings, SchemaRegistry
from strandline.schemas.rest import RegistryApp

CONNECTIONS_MAX: Final = 2000
"""Connections at once; a request on another one is answered with 503."""


def serve(settings: RegistrySettings, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT; `on_ready` is called when every schema is known. Raise SchemaTopicFailed."""
    asyncio.run(_serve(settings, listener, on_ready))


class RegistryHttpServer(uvicorn.Server):
    """A server that stops on a signal; uvicorn's own would then send the signal to its process again."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.should_exit = True

    def stop_if_failed(self, started: asyncio.Task[None]) -> None:
        if started.cancelled() or started.exception() is not None:
            self.should_exit = True


async def _serve(settings: RegistrySettings, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    registry = SchemaRegistry(settings, all_types())
    own = RegistryAddress(*listener.getsockname()[:2])
    forwarder = Forwarder(registry, own)
    config = uvicorn.Config(
        RegistryApp(registry, forwarder),
        lifespan="off",
        log_config=None,
        access_log=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=5,
    )
    server = RegistryHttpServer(config)
    # HTTP first: `/livez` answers while the topic is read.
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    starting = asyncio.create_task(_start(registry, on_ready))
    starting.add_done_callback(server.stop_if_failed)
    election = None
    try:
        await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and starting.exception() is None:
            election = _elect(settings, own, forwarder)
        await serving
        if starting.done():
            starting.result()
    finally:
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await starting
        if election is not None:
            await asyncio.to_thread(election.stop)
        forwarder.stop()
        await registry.stop()


def _elect(settings: RegistrySettings, own: RegistryAddress, forwarder: Forwarder) -> PrimaryElection:
    """Take part in the election of a primary; the loop learns who it is."""
    loop = asyncio.get_running_loop()

    def on_primary(primary: RegistryAddress | None) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(learn, primary)

    def learn(primary: RegistryAddress | None) -> None:
        forwarder.primary = primary

    election = PrimaryElection(settings.bootstrap, settings.group, own, on_primary)
    election.start()
    return election


async def _start(registry: SchemaRegistry, on_ready: Callable[[], None]) -> None:
    # A hundred thousand schemas are millions of objects that live for ever: the collector need not look at them.
    gc.disable()
    try:
        await registry.start()
        await registry.wait_ready()
    finally:
        gc.freeze()
        gc.enable()
    on_ready()
