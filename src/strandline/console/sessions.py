"""Sessions of browsers: an id in a cookie, and the users that have logged in with it. Secrets are in memory only.

A browser without a login has a session as well, of which the server keeps nothing: the token against forged requests
follows from the id by a key of this process. A login gives the browser a new id, so that one that was planted is of no
use.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from strandline.console.reading.user_cluster import ClusterUser

COOKIE: Final = "strandline_session"
SESSIONS_MAX: Final = 5000
"""Sessions with a login; the one that was not used for longest ends first."""
FLASHES_MAX: Final = 1000
STREAMS_MAX: Final = 20
"""Streams of one session at a time."""
_ID: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_PORT: Final = re.compile(r":([0-9]{1,5})$")


@dataclass
class ConsoleSession:
    """One browser."""

    id: str = field(repr=False)
    csrf: str = field(repr=False)
    """What a form must send back."""
    users: dict[str, ClusterUser] = field(default_factory=dict)
    """As whom it has logged in, by cluster."""
    used_at: float = 0.0
    streams: int = 0
    is_new: bool = True
    """Whether the browser does not have the cookie yet."""


class Sessions:
    """The sessions of this process. Used by one event loop."""

    def __init__(self, *, lasts_s: float, is_secure: bool, clock: Callable[[], float]) -> None:
        self._lasts_s = lasts_s
        self._is_secure = is_secure
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._sessions: OrderedDict[str, ConsoleSession] = OrderedDict()
        self._flashes: OrderedDict[str, str] = OrderedDict()

    def of(self, request: Request) -> ConsoleSession:
        """Return the session of a request; a new one if its cookie has none."""
        given = request.cookies.get(self._cookie(request), "")
        if not _ID.fullmatch(given):
            return self._made(secrets.token_urlsafe(32))
        found = self._sessions.get(given)
        if found is not None and not self.is_over(found):
            found.used_at = self._clock()
            self._sessions.move_to_end(given)
            return found
        self._sessions.pop(given, None)
        anonymous = self._made(given)
        anonymous.is_new = False
        return anonymous

    def is_over(self, session: ConsoleSession) -> bool:
        """Return whether a session has ended: by time, by logout, or by a login that replaced it."""
        if not session.users:
            return False
        return session.id not in self._sessions or self._clock() - session.used_at > self._lasts_s

    def log_in(self, session: ConsoleSession, cluster: str, user: ClusterUser) -> ConsoleSession:
        """Return the session that has this user, with an id that only this browser gets."""
        self._sessions.pop(session.id, None)
        made = self._made(secrets.token_urlsafe(32))
        made.users = {**session.users, cluster: user}
        made.used_at = self._clock()
        while len(self._sessions) >= SESSIONS_MAX:
            self._sessions.popitem(last=False)
        self._sessions[made.id] = made
        return made

    def log_out(self, session: ConsoleSession, cluster: str) -> None:
        session.users.pop(cluster, None)
        if not session.users:
            self._sessions.pop(session.id, None)

    def users(self) -> list[ClusterUser]:
        """Return the users of the sessions that have not ended."""
        for ended in [each for each in self._sessions.values() if self.is_over(each)]:
            del self._sessions[ended.id]
        return [user for session in self._sessions.values() for user in session.users.values()]

    def is_forged(self, session: ConsoleSession, token: str) -> bool:
        """Return whether a request that changes something does not have the token of its session."""
        return not hmac.compare_digest(token.encode("utf-8", "replace"), session.csrf.encode())

    def keep(self, session: ConsoleSession, request: Request, response: Response) -> None:
        """Give the browser the cookie, if it does not have it."""
        if session.is_new:
            response.set_cookie(
                self._cookie(request), session.id, path="/", secure=self._is_secure, httponly=True, samesite="strict"
            )

    def flash(self, session: ConsoleSession, sentence: str) -> None:
        """Keep a sentence for the next page."""
        self._flashes[session.id] = sentence
        while len(self._flashes) > FLASHES_MAX:
            self._flashes.popitem(last=False)

    def take_flash(self, session: ConsoleSession) -> str:
        return self._flashes.pop(session.id, "")

    def _made(self, session_id: str) -> ConsoleSession:
        return ConsoleSession(session_id, hmac.digest(self._key, session_id.encode(), "sha256").hex())

    def _cookie(self, request: Request) -> str:
        # Browsers share cookies between the ports of a host, and several consoles may run on one.
        port = _PORT.search(request.headers.get("host", ""))
        name = f"{COOKIE}_{port[1]}" if port else COOKIE
        return f"__Host-{name}" if self._is_secure else name
