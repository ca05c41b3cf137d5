"""An HTTP service that listens: TLS with certificates that are reloaded, limits on connections, a graceful stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, Final

import uvicorn
from starlette.routing import BaseRoute
from starlette.types import Lifespan

from strandline.client.cluster_client import ClientSettings
from strandline.client.security import ClientSecurity
from strandline.errors import InvalidConfig
from strandline.security.tls.certificates import Certificate
from strandline.security.tls.contexts import TlsContexts, make_contexts
from strandline.security.tls.stores import store_files
from strandline.services.http.cluster_rights import ClusterRights
from strandline.services.http.connection import HEADER_BYTES_MAX, BoundedConnection
from strandline.services.http.door_settings import DoorSettings
from strandline.services.http.guard import Guard, Handler
from strandline.services.http.logins import Logins

log = logging.getLogger("strandline.http")

CONNECTIONS_MAX: Final = 1024
CONNECTIONS_OF_ADDRESS_MAX: Final = 256
"""Connections in all, and from one address; one more is closed."""
HANDSHAKE_S_MAX: Final = 10.0
STOP_S_MAX: Final = 30.0
"""The time that requests have to end when the service stops."""
LOGIN_THREADS_MAX: Final = 16
_BACKLOG: Final = 256
_KEEP_ALIVE_S: Final = 30
_TICKS_A_SECOND: Final = 10
_RELOAD_S: Final = 3.0
_CLIENT_S: Final = 10.0
_DNS_NAME: Final = b"\x82"
"""The tag of a host name among the alternative names of a certificate."""


class HttpDoor:
    """One service at one address, behind the guard.

    `routes` are Starlette's, each with a right (`declared_rights`). `handlers` turn exceptions of routes into answers;
    `lifespan` is entered before the first request and left after the last one. `on_stop` is called when the service is
    to stop, so that answers without an end can end; `on_ready` when connections are taken. A service with a login of
    its own has public routes alone, and the guard asks the cluster nothing.
    """

    def __init__(
        self,
        settings: DoorSettings,
        routes: Sequence[BaseRoute],
        *,
        handlers: Mapping[Any, Handler] | None = None,
        lifespan: Lifespan[Any] | None = None,
        on_stop: Callable[[], object] = lambda: None,
        on_ready: Callable[[], object] = lambda: None,
        has_own_login: bool = False,
    ) -> None:
        """Raise InvalidConfig if the address is taken or the certificate cannot be used."""
        self.settings = settings
        self._tls = _DoorTls(settings) if settings.has_tls else None
        self._login_threads = ThreadPoolExecutor(LOGIN_THREADS_MAX, "http-login")
        self._rights_thread = ThreadPoolExecutor(1, "http-rights")
        self._rights = None if has_own_login else _rights_of(settings, self._rights_thread)
        logins = Logins(settings, self._login_threads, clock=time.monotonic, time_s=time.time)
        self.guard = Guard(
            routes,
            rights=self._rights,
            logins=logins if settings.authentication else None,
            hosts=self._names,
            origins=settings.origins,
            has_tls=settings.has_tls,
            body_bytes_max=settings.body_bytes_max,
            handlers=handlers,
            lifespan=lifespan,
        )
        config = uvicorn.Config(
            self.guard,
            interface="asgi3",
            lifespan="on",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            # A header must not say where a client comes from: ACLs may name its address.
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(STOP_S_MAX),
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        )
        self._listening = _bind(settings)
        self.port = int(self._listening.getsockname()[1])
        """The port that the service listens on; chosen by the machine if the settings have 0."""
        context = None if self._tls is None else self._tls.context
        self._server = _Server(config, self._listening, context, on_ready, on_stop)

    @property
    def is_ready(self) -> bool:
        return self._server.started

    @property
    def was_signalled(self) -> bool:
        """Whether SIGTERM or SIGINT has come, perhaps while it stopped already."""
        return self._server.was_signalled

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raise InvalidConfig if the cluster refuses the service its rights."""
        factory = self._server.config.get_loop_factory()
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(self.serve())

    def stop(self) -> None:
        """Have `serve` return when the requests that run have ended. Any thread may call this."""
        self._server.should_exit = True

    async def serve(self) -> None:
        """Serve until `stop`."""
        reloading = None
        try:
            if self._rights is not None:
                await self._rights.check()
            if self._tls is not None:
                reloading = asyncio.get_running_loop().create_task(self._tls.reload_forever())
            await self._server.serve([self._listening])
        finally:
            if reloading is not None:
                reloading.cancel()
            self.close()

    def close(self) -> None:
        """Close what a door has from its making on."""
        self._listening.close()
        if self._rights is not None:
            self._rights.close()
        for threads in (self._rights_thread, self._login_threads):
            threads.shutdown(wait=False)

    def _names(self) -> frozenset[str]:
        own = {"localhost", self.settings.host.lower()} | self.settings.hosts
        return frozenset(own) | (frozenset() if self._tls is None else self._tls.names)


class _Server(uvicorn.Server):
    """uvicorn's server, which accepts connections itself: each has the newest certificate, and their number a limit."""

    def __init__(
        self,
        config: uvicorn.Config,
        listening: socket.socket,
        context: Callable[[], ssl.SSLContext] | None,
        on_ready: Callable[[], object],
        on_stop: Callable[[], object],
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._listening = listening
        self._context = context
        self._addresses: Counter[str] = Counter()
        self._is_stopping = False
        self.was_signalled = False
        self._newcomers: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM. Unlike in the base they do not end the process: a stop is a success."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.was_signalled = True
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise InvalidConfig("the service could not start; the log says why")
        self.servers = []
        self._listening.listen(_BACKLOG)
        self._watch()
        self.started = True
        self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_A_SECOND == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, BoundedConnection):
                    connection.end_if_not_closed()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._is_stopping = True
        asyncio.get_running_loop().remove_reader(self._listening)
        for task in tuple(self._newcomers):
            task.cancel()
        self._on_stop()
        await super().shutdown(sockets)

    def _watch(self) -> None:
        if not self._is_stopping:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        # Not by a task with `sock_accept`: if it is cancelled, a connection that it has just taken stays open.
        loop = asyncio.get_running_loop()
        try:
            connection, peer = self._listening.accept()
        except BlockingIOError:
            return
        except OSError as error:
            # No descriptor is left, or the peer is gone already.
            log.warning("no connection could be accepted: %s", error)
            loop.remove_reader(self._listening)
            loop.call_later(0.1, self._watch)
            return
        address = peer[0]
        if self._addresses.total() >= CONNECTIONS_MAX or self._addresses[address] >= CONNECTIONS_OF_ADDRESS_MAX:
            connection.close()
            return
        self._addresses[address] += 1
        task = loop.create_task(self._admit(connection, address))
        self._newcomers.add(task)
        task.add_done_callback(lambda ended: self._on_admitted(ended, connection, address))

    async def _admit(self, connection: socket.socket, address: str) -> None:
        state = self.lifespan.state
        made = BoundedConnection(self.config, self.server_state, state, lambda: self._forget(address))
        tls: dict[str, Any] = {}
        if self._context is not None:
            tls = {"ssl": self._context(), "ssl_handshake_timeout": HANDSHAKE_S_MAX}
        await asyncio.get_running_loop().connect_accepted_socket(lambda: made, connection, **tls)

    def _on_admitted(self, task: asyncio.Task[None], connection: socket.socket, address: str) -> None:
        self._newcomers.discard(task)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            # It never began, or the handshake failed; the connection was never that of the protocol.
            connection.close()
            self._forget(address)
        if error is not None and not isinstance(error, OSError):
            log.error("a connection could not be served", exc_info=error)

    def _forget(self, address: str) -> None:
        self._addresses[address] -= 1
        if self._addresses[address] <= 0:
            del self._addresses[address]


class _DoorTls:
    """The certificate of a service, read again when its file changes."""

    def __init__(self, settings: DoorSettings) -> None:
        self._settings = settings
        self._files = store_files(settings.tls_text)
        self._contexts = self._make()
        self.names = _names_of(self._contexts.certificate)

    def context(self) -> ssl.SSLContext:
        return self._contexts.server

    async def reload_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_RELOAD_S)
            files = await loop.run_in_executor(None, store_files, self._settings.tls_text)
            if files != self._files:
                self._files = files
                try:
                    self._contexts = await loop.run_in_executor(None, self._make)
                except InvalidConfig as error:
                    log.error("the certificate stays as it was: %s", error)
                else:
                    self.names = _names_of(self._contexts.certificate)
                    log.info("the certificate was read again")

    def _make(self) -> TlsContexts:
        return make_contexts(self._settings.tls_text, now_s=time.time())


def _rights_of(settings: DoorSettings, thread: ThreadPoolExecutor) -> ClusterRights:
    client = ClientSecurity.spoken(settings.client)
    within = ClientSettings.within(settings.bootstrap, "strandline-http", _CLIENT_S, client)
    return ClusterRights(within, thread, clock=time.monotonic)


def _names_of(certificate: Certificate | None) -> frozenset[str]:
    """Return the host names of a certificate."""
    names = () if certificate is None else certificate.alternative_names
    return frozenset(name[2:].decode("ascii", "replace").lower() for name in names if name.startswith(_DNS_NAME))


def _bind(settings: DoorSettings) -> socket.socket:
    """Return a socket at the address of the service, bound so that a port that is taken stops the start."""
    where = f"listeners={'https' if settings.has_tls else 'http'}://{settings.host}:{settings.port}"
    with contextlib.ExitStack() as stack:
        try:
            found = socket.getaddrinfo(
                settings.host or None, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            # IPv4 first: a client that is given 127.0.0.1 must reach a service at localhost.
            family, kind, protocol, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
            made = stack.enter_context(socket.socket(family, kind, protocol))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setblocking(False)
            made.bind(address)
        except OSError as error:
            raise InvalidConfig(f"{where} cannot be used: {(error.strerror or str(error)).lower()}") from error
        stack.pop_all()
    return made
