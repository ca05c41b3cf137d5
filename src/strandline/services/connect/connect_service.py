"""A worker that runs: its tasks, and the guarded door in front of its REST API, until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from strandline.connect.herder.administration import Administration
from strandline.connect.herder.worker import ConnectWorker
from strandline.connect.http.app import ConnectApp
from strandline.connect.http.metrics import metrics_text
from strandline.services.connect.connect_rights import rights_of
from strandline.services.connect.connect_settings import ConnectServiceSettings
from strandline.services.http.declared_rights import every_caller, public
from strandline.services.http.door import HttpDoor
from strandline.services.http.every_path import EveryPath

log = logging.getLogger("strandline.connect")


class ConnectService:
    """One worker. `on_ready` is called when it has joined its group."""

    def __init__(self, settings: ConnectServiceSettings, on_ready: Callable[[], None]) -> None:
        """Raise InvalidConfig if the address is taken or the certificate cannot be used."""
        self._settings = settings
        self._on_ready = on_ready
        self._worker: ConnectWorker | None = None
        self._app: ConnectApp | None = None
        self._failure: Exception | None = None
        self.is_full = False
        """Whether it has ended because of its limits, and is to be started again."""
        routes = [*self._health(), EveryPath(self._serve)]
        self._door = HttpDoor(settings.door, routes, lifespan=self._life)

    @property
    def url(self) -> str:
        host = self._settings.host_name
        port = self._settings.port or self._door.port
        scheme = "https" if self._settings.door.has_tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def was_signalled(self) -> bool:
        """Whether a signal has asked for the end of this process, perhaps while it ended because of its limits."""
        return self._door.was_signalled

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raise ConnectFailed, or InvalidConfig if the cluster refuses its rules."""
        self._door.run()
        if self._failure is not None:
            raise self._failure

    @contextlib.asynccontextmanager
    async def _life(self, app: Any) -> AsyncIterator[None]:
        settings = self._settings
        self._worker = ConnectWorker(settings.bootstrap, settings.worker, self.url, on_full=self._on_full)
        self._app = ConnectApp(
            Administration(self._worker),
            self._worker.plugins,
            rights_of,
            make_context=settings.leader_context,
            converters=self._worker.defaults,
            resolve=self._worker.secrets.resolve,
        )
        # HTTP does not wait for it: `/livez` answers while the topics are read.
        starting = asyncio.create_task(self._start(self._worker))
        try:
            yield
        finally:
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
            self._app.stop()
            await self._worker.stop()

    async def _start(self, worker: ConnectWorker) -> None:
        try:
            await worker.start()
            await worker.joined.wait()
        except Exception as error:  # whatever it is ends the service, and `run` raises it
            self._failure = error
            self._door.stop()
            return
        self._on_ready()

    def _on_full(self, sentence: str) -> None:
        log.error("%s", sentence)
        self.is_full = True
        self._door.stop()

    @every_caller
    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._app is not None
        await self._app(scope, receive, send)

    def _health(self) -> list[Route]:
        @public
        async def livez(request: Request) -> Response:
            return PlainTextResponse("ok\n")

        @public
        async def readyz(request: Request) -> Response:
            is_ready = self._worker is not None and self._worker.joined.is_set()
            return PlainTextResponse("ok\n") if is_ready else PlainTextResponse("joining its group\n", 503)

        @every_caller
        async def metrics(request: Request) -> Response:
            assert self._worker is not None
            return PlainTextResponse(metrics_text(self._worker))

        return [Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", metrics)]
