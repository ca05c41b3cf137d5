"""A console that runs: the application, and the guarded door in front of it, until a signal."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from strandline.console.app import create_app
from strandline.services.console.console_settings import ConsoleServiceSettings
from strandline.services.http.declared_rights import public
from strandline.services.http.door import HttpDoor
from strandline.services.http.every_path import EveryPath

_COLLECTED: Final = 10_000, 2, 1_000
"""Objects that are new before they are looked through, and how many times that before older ones are."""


class ConsoleService:
    """One console. `on_ready` is called when it listens."""

    def __init__(self, settings: ConsoleServiceSettings, on_ready: Callable[[], None] = lambda: None) -> None:
        """Raise InvalidConfig if the address is taken or the certificate cannot be used."""
        self._settings = settings
        self.console = create_app(settings.console)
        routes = [EveryPath(self._serve)]
        self._door = HttpDoor(
            settings.door,
            routes,
            lifespan=self._life,
            on_stop=self.console.stop,
            on_ready=on_ready,
            has_own_login=True,
        )

    @property
    def app(self) -> ASGIApp:
        """The application behind the guard, for tests that need no port."""
        return self._door.guard

    @property
    def url(self) -> str:
        host = self._settings.door.host or "localhost"
        scheme = "https" if self._settings.door.has_tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self._door.port}"

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        # A collection of all that a large cluster keeps in memory stops the loop for a fifth of a second, and finds
        # little: what is read is freed without it.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECTED)
        self._door.run()

    def stop(self) -> None:
        """Have `run` return. Any thread may call this."""
        self._door.stop()

    def close(self) -> None:
        """Give the port back. `run` does it by itself."""
        self._door.close()

    @public
    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Visitors log in to the clusters, so that the guard has no users to know.
        await self.console(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _life(self, app: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self.console.close()
