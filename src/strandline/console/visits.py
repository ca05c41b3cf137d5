"""What every route begins with: the cluster of the URL, the visitor, and the reader that talks to the cluster as it."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from starlette.requests import Request

from strandline.console.audit import AuditTrail
from strandline.console.context import PageContext
from strandline.console.failures import LoginNeeded, PageFailed
from strandline.console.logins import ConsoleLogins
from strandline.console.reading.cluster_reading import ClusterReading
from strandline.console.reading.shared_reader import SharedReader
from strandline.console.reading.user_cluster import ClusterUser
from strandline.console.sessions import ConsoleSession, Sessions
from strandline.console.settings import ConsoleCluster, ConsoleSettings

log = logging.getLogger("strandline.console")

THREADS_MAX: Final = 16
READERS_MAX: Final = 200
READER_IDLE_S: Final = 300.0
"""A user's connections are closed after so long without a page; those without a login stay."""
HEADER_LOGIN_S: Final = 60.0
HEADER_LOGINS_MAX: Final = 1000
STREAMS_MAX: Final = 500


class Visits:
    """The state of a console: sessions, readers, logins, and the trail of changes. Used by one event loop."""

    def __init__(self, settings: ConsoleSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self.clock = clock
        self.threads = ThreadPoolExecutor(THREADS_MAX, "console")
        self.sessions = Sessions(lasts_s=settings.session_s, is_secure=settings.is_secure, clock=clock)
        self.logins = ConsoleLogins(self.threads, clock)
        self.audit = AuditTrail(settings.audit_file, lambda: time.time_ns() // 1_000_000)
        self.stopping = asyncio.Event()
        self.streams = 0
        self._readers: dict[tuple[str, bytes], SharedReader] = {}
        self._key = secrets.token_bytes(32)
        self._by_header: OrderedDict[bytes, tuple[ClusterUser, float]] = OrderedDict()

    def cluster(self, request: Request) -> ConsoleCluster:
        """Return the cluster that the URL names. Raise PageFailed if there is none of this name."""
        found = self.settings.cluster(request.path_params["cluster"])
        if found is None:
            raise PageFailed(404, "This console has no cluster of this name", "choose one of those that it has")
        return found

    async def visit(self, request: Request, session: ConsoleSession, *, is_export: bool = False) -> PageContext:
        """Return the context of a request. Raise LoginNeeded if the visitor has to log in first."""
        cluster = self.cluster(request)
        user = await self._user(request, cluster, session)
        return PageContext(
            self.settings,
            cluster,
            session,
            ClusterReading(self.reader(cluster, user)),
            self.audit,
            {name: text for name, text in request.path_params.items() if name != "cluster"},
            dict(request.query_params),
            is_export,
        )

    def reader(self, cluster: ConsoleCluster, user: ClusterUser) -> SharedReader:
        """Return the reader of a user, which all of its tabs share."""
        self._close_idle()
        place = cluster.name, user.key
        found = self._readers.get(place)
        if found is None:
            while len(self._readers) >= READERS_MAX:
                oldest = min(self._readers, key=lambda each: self._readers[each].used_at)
                self._readers.pop(oldest).close()
            found = self._readers[place] = SharedReader(cluster, user, self.threads, self.clock)
        found.used_at = self.clock()
        return found

    def is_admitted(self, context: PageContext, *, by_header: bool) -> bool:
        """Return whether a stream may go on: its visitor is still logged in as the same user.

        A program that logged in by a header has no session; its stream ends with its connection, or its token.
        """
        if not context.cluster.has_login:
            return True
        user = context.reading.shared.user
        if user.expires_s is not None and user.expires_s <= time.time():
            return False
        session = context.session
        return by_header or (not self.sessions.is_over(session) and session.users.get(context.cluster.name) == user)

    def has_header_login(self, request: Request) -> bool:
        return bool(request.headers.get("authorization"))

    def close(self) -> None:
        """Close every connection to a cluster."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self.threads.shutdown(wait=False, cancel_futures=False)

    async def _user(self, request: Request, cluster: ConsoleCluster, session: ConsoleSession) -> ClusterUser:
        if not cluster.has_login:
            return ClusterUser()
        if header := request.headers.get("authorization"):
            return await self._header_user(cluster, header, address_of(request))
        user = session.users.get(cluster.name)
        if user is None or self.sessions.is_over(session):
            raise LoginNeeded(f"The cluster {cluster.name} wants to know who you are")
        if user.expires_s is not None and user.expires_s <= time.time():
            self.sessions.log_out(session, cluster.name)
            raise LoginNeeded("The token of this login has ended")
        return user

    async def _header_user(self, cluster: ConsoleCluster, header: str, address: str) -> ClusterUser:
        """Return the user of a program, whose login is remembered under a keyed hash for a minute."""
        key = hmac.digest(self._key, f"{cluster.name}\0{header}".encode(), "sha256")
        found = self._by_header.get(key)
        if found is not None and found[1] > self.clock():
            return found[0]
        user = await self.logins.prove_header(cluster, header, address)
        lasts_s = HEADER_LOGIN_S if user.expires_s is None else min(HEADER_LOGIN_S, user.expires_s - time.time())
        while len(self._by_header) >= HEADER_LOGINS_MAX:
            self._by_header.popitem(last=False)
        self._by_header[key] = user, self.clock() + lasts_s
        return user

    def _close_idle(self) -> None:
        now = self.clock()
        for place, reader in list(self._readers.items()):
            if reader.user.name and now - reader.used_at > READER_IDLE_S:
                self._readers.pop(place).close()


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""
