"""The registry as a server: the topic's reader and writer, and HTTP in front of them, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from strandline.schemas.engine_table import all_types
from strandline.schemas.registry import RegistrySettings, SchemaRegistry
from strandline.schemas.rest import RegistryApp


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


async def _serve(settings: RegistrySettings, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    registry = SchemaRegistry(settings, all_types())
    config = uvicorn.Config(
        RegistryApp(registry), lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=5
    )
    server = RegistryHttpServer(config)
    # HTTP first: `/livez` answers while the topic is read.
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    starting = asyncio.create_task(_start(registry, on_ready))
    try:
        await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and starting.exception() is not None:
            server.should_exit = True
        await serving
        if starting.done():
            starting.result()
    finally:
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await starting
        await registry.stop()


async def _start(registry: SchemaRegistry, on_ready: Callable[[], None]) -> None:
    await registry.start()
    await registry.wait_ready()
    on_ready()
