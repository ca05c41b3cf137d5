"""A registry that runs: the topic's reader and writer, the election, and the guarded door in front, until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from strandline.schemas.election import PrimaryElection, RegistryAddress
from strandline.schemas.engine_table import all_types
from strandline.schemas.forwarding import Forwarder
from strandline.schemas.http.rest import RegistryApp
from strandline.schemas.registry import SchemaRegistry
from strandline.services.http.declared_rights import every_caller, public
from strandline.services.http.door import HttpDoor
from strandline.services.http.every_path import EveryPath
from strandline.services.registry.registry_settings import RegistryServiceSettings
from strandline.services.registry.subject_rights import rights_of

SWITCH_S: Final = 0.0005
"""How long a thread that wants to run waits for one that computes: the writer and the reader wait for the loop."""


class RegistryService:
    """One registry. `on_ready` is called when every schema is known."""

    def __init__(self, settings: RegistryServiceSettings, on_ready: Callable[[], None]) -> None:
        """Raise InvalidConfig if the address is taken or the certificate cannot be used."""
        self._settings = settings
        self._on_ready = on_ready
        self._registry = SchemaRegistry(settings.registry, all_types())
        self._forwarder = Forwarder(self._registry, settings.primary_context)
        self._election: PrimaryElection | None = None
        self._failure: Exception | None = None
        app = every_caller(RegistryApp(self._registry, rights_of, self._forwarder))
        routes = [*_health(self._registry), EveryPath(app)]
        self._door = HttpDoor(settings.door, routes, lifespan=self._life)
        self._forwarder.own = RegistryAddress(settings.host_name, self._door.port, self._scheme)

    @property
    def url(self) -> str:
        host = self._settings.door.host or self._settings.host_name
        return f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{self._door.port}"

    @property
    def _scheme(self) -> str:
        return "https" if self._settings.door.has_tls else "http"

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raise SchemaTopicFailed, or InvalidConfig if the cluster refuses its rules."""
        # Five milliseconds by default, and a write goes from the loop to threads and back some ten times.
        sys.setswitchinterval(SWITCH_S)
        self._door.run()
        if self._failure is not None:
            raise self._failure

    @contextlib.asynccontextmanager
    async def _life(self, app: Any) -> AsyncIterator[None]:
        # HTTP does not wait for it: `/livez` answers while the topic is read.
        starting = asyncio.create_task(self._start())
        try:
            yield
        finally:
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
            if self._election is not None:
                await asyncio.to_thread(self._election.stop)
            self._forwarder.stop()
            await self._registry.stop()

    async def _start(self) -> None:
        # A hundred thousand schemas are millions of objects that live for ever: the collector need not look at them.
        gc.disable()
        try:
            await self._registry.start()
            await self._registry.wait_ready()
        except Exception as error:  # whatever it is ends the service, and `run` raises it
            self._failure = error
            self._door.stop()
            return
        finally:
            gc.freeze()
            gc.enable()
        self._elect()
        self._on_ready()

    def _elect(self) -> None:
        """Take part in the election of a primary; the loop learns which one it is."""
        loop = asyncio.get_running_loop()
        own, settings = self._forwarder.own, self._settings.registry
        assert own is not None

        def on_primary(primary: RegistryAddress | None) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(learn, primary)

        def learn(primary: RegistryAddress | None) -> None:
            self._forwarder.primary = primary

        self._election = PrimaryElection(settings.bootstrap, settings.group, own, on_primary)
        self._election.start()


def _health(registry: SchemaRegistry) -> list[Route]:
    @public
    async def livez(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    @public
    async def readyz(request: Request) -> Response:
        if registry.is_ready:
            return PlainTextResponse("ok\n")
        return PlainTextResponse("reading the topic\n", 503)

    return [Route("/livez", livez), Route("/readyz", readyz)]
