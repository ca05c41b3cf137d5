"""The ASGI application in front of a service's routes: what it lets in, and what it adds to answers.

In this order: the Host must be a name of the service, because a page whose name is made to point here (DNS rebinding)
would else be of the same origin. A browser may change something only from pages of this service or of `http.origins`.
The body has a limit of size and time. Then the route decides by its declared right; without one it is refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Router
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from strandline.security.principal import ANONYMOUS, Principal
from strandline.services.http.caller import CALLER, Caller
from strandline.services.http.cluster_rights import ClusterRights
from strandline.services.http.declared_rights import DeclaredRight, right_of
from strandline.services.http.logins import Logins
from strandline.services.http.request_refused import RequestRefused

log = logging.getLogger("strandline.http")

BODY_S_MAX: Final = 30.0
"""The time in which the body of a request must arrive."""
SEND_S_MAX: Final = 30.0
"""The time in which a client must take a part of an answer."""
_READING: Final = ("GET", "HEAD", "OPTIONS")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)
_CLOSE: Final = {"Connection": "close"}
_HARDENED: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""Headers of every answer; a route may set its own."""

Handler = Callable[[Request, Exception], Response | Awaitable[Response]]


class Guard:
    """The routes of one service, and the checks in front of them.

    `handlers` turn exceptions of routes into answers, as in Starlette. `logins` is None if callers are anonymous.
    `rights` is None if every route is public.
    """

    def __init__(
        self,
        routes: Sequence[BaseRoute],
        *,
        rights: ClusterRights | None,
        logins: Logins | None,
        hosts: Callable[[], Collection[str]],
        origins: Collection[str] = (),
        has_tls: bool = False,
        body_bytes_max: int,
        handlers: Mapping[Any, Handler] | None = None,
        lifespan: Lifespan[Any] | None = None,
    ) -> None:
        self._rights = rights
        self._logins = logins
        self._hosts = hosts
        self._origins = origins
        self._has_tls = has_tls
        self._body_bytes_max = body_bytes_max
        self._enforce(routes)
        router = Router(routes, redirect_slashes=False, default=self._not_found, lifespan=lifespan)
        self._lifespan: ASGIApp = router
        answers: dict[Any, Any] = {RequestRefused: _on_refused, HTTPException: _on_http_exception, **(handlers or {})}
        self._app: ASGIApp = ExceptionMiddleware(router, answers)

    def _enforce(self, routes: Sequence[BaseRoute]) -> None:
        for route in routes:
            inner = getattr(route, "routes", None) if isinstance(route, Mount) else None
            if inner:
                self._enforce(inner)
            elif (app := getattr(route, "app", None)) is not None:
                endpoint = getattr(route, "endpoint", app)
                route.app = _Enforced(app, right_of(endpoint), self)  # type: ignore[attr-defined]  # BaseRoute has none
            else:
                raise TypeError(f"{route!r} cannot be guarded: use Route or Mount")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")
        answer = _Answer(send)
        # With it, a route raises what is wrong with a method, and the answer has the form of all others.
        scope["app"] = self
        try:
            self._check(scope)
            body = _Body(receive, self._body_bytes_max)
            await self._app(scope, body.receive, answer.send)
        except _NotTaken:
            log.info("a client at %s took too long for its answer", (scope.get("client") or ("?",))[0])
        except RequestRefused as refused:
            await refused.response()(scope, receive, answer.send)
        except Exception:
            if answer.has_begun:
                raise
            log.exception("a request to %s failed", scope["path"])
            failed = RequestRefused(500, "the service failed; its log says why", _CLOSE)
            await failed.response()(scope, receive, answer.send)

    def _check(self, scope: Scope) -> None:
        """Raise RequestRefused for a request that no route gets."""
        host = _one(scope, b"host")
        if not self._is_own(host):
            raise RequestRefused(421, "the header Host has no name of this service; http.hosts may add it", _CLOSE)
        if scope["method"] not in _READING and (why := self._why_foreign(scope, host)):
            raise RequestRefused(403, why, _CLOSE)
        length = _one(scope, b"content-length") or "0"
        if not length.isdecimal() or int(length) > self._body_bytes_max:
            raise _too_large(self._body_bytes_max)

    def _is_own(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].lower().rstrip(".")
        # An address cannot be made to point elsewhere.
        return name in self._hosts() or _is_address(name.strip("[]"))

    def _why_foreign(self, scope: Scope, host: str) -> str | None:
        """Return why a browser may not send this from the page that it shows; None if it may, or is no browser."""
        origin = _one(scope, b"origin").lower()
        if origin in self._origins:
            return None
        scheme, separator, place = origin.partition("://")
        schemes = ("https",) if self._has_tls else ("http", "https")
        is_own = bool(separator) and scheme in schemes and place == host.lower()
        if origin and not is_own:
            return "a page of another site may not change anything here; http.origins may allow it"
        site = _one(scope, b"sec-fetch-site").lower()
        if not origin and site not in ("", "same-origin", "none"):
            return "a page of another site may not change anything here"
        return None

    async def caller_of(self, scope: Scope) -> Caller:
        """Return the caller of a request. Raise RequestRefused if it is not authenticated."""
        address = (scope.get("client") or ("", 0))[0]
        principal: Principal = ANONYMOUS
        if self._logins is not None:
            principal = await self._logins.principal_of(_one(scope, b"authorization") or None, address)
        if self._rights is None:
            raise RequestRefused(403, "this service serves its public routes alone")
        return Caller(principal, address, self._rights)

    async def _not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Only callers learn which routes there are.
        await self.caller_of(scope)
        raise RequestRefused(404, "there is nothing at this path")


class _Enforced:
    """One route behind its declared right."""

    def __init__(self, app: ASGIApp, right: DeclaredRight | None, guard: Guard) -> None:
        self._app = app
        self._right = right
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        right = self._right
        if right is None:
            raise RequestRefused(403, "this route declares no right, so that it is served to no client")
        if not right.is_public:
            caller = scope[CALLER] = await self._guard.caller_of(scope)
            if right.operation is not None:
                name = str(scope["path_params"][right.path]) if right.path else right.name
                await caller.require(right.operation, right.resource_type, name)
        await self._app(scope, receive, send)


class _Body:
    """The body of one request, within its limits of size and time."""

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self._receive = receive
        self._bytes_max = bytes_max
        self._bytes = 0
        self._ends_at = asyncio.get_running_loop().time() + BODY_S_MAX
        self._is_whole = False

    async def receive(self) -> Message:
        if self._is_whole:
            # A route that streams waits here for the end of the connection.
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._ends_at):
                message = await self._receive()
        except TimeoutError:
            raise RequestRefused(408, f"the body did not arrive within {BODY_S_MAX:g} s", _CLOSE) from None
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._bytes_max:
            raise _too_large(self._bytes_max)
        self._is_whole = not message.get("more_body", False)
        return message


class _NotTaken(Exception):
    """A part of an answer that the client did not take in time."""


class _Answer:
    """The answer to one request, with the headers that all have. A client that does not take it is left."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            given = message.get("headers", ())
            names = {name.lower() for name, _ in given}
            message["headers"] = [*given, *(each for each in _HARDENED if each[0] not in names)]
        try:
            async with asyncio.timeout(SEND_S_MAX):
                await self._send(message)
        except TimeoutError:
            raise _NotTaken from None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _one(scope: Scope, name: bytes) -> str:
    """Return the value of a header; empty if it is missing. Raise RequestRefused if it is there more than once."""
    found = [value for each, value in scope["headers"] if each == name]
    if len(found) > 1:
        raise RequestRefused(400, f"the header {name.decode().title()} is there more than once", _CLOSE)
    return found[0].decode("latin-1").strip() if found else ""


def _too_large(bytes_max: int) -> RequestRefused:
    return RequestRefused(413, f"the body is larger than {bytes_max} bytes (http.body.bytes.max)", _CLOSE)


async def _on_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestRefused)
    return error.response()


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return RequestRefused(error.status_code, error.detail, error.headers).response()
