"""Kafka Connect's REST API as an ASGI application: it reads requests, routes them, and writes answers.

It routes on the path as the client sent it, because a connector's name may contain a slash (`%2F`). It knows no users:
the guard in front of it says what a caller may do. What only the leader may do is sent on to it, once.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from strandline.client.http_forwarding import HttpForwarder, MakeContext, PeerAway, PeerLost
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig
from strandline.connect.herder.interface import Herder, LeaderOnly, RequestFailed
from strandline.connect.http.call import NO_ANSWER, ConnectAnswer, ConnectCall
from strandline.connect.http.rights import EVERY_CONNECT_RIGHT, ConnectRights
from strandline.connect.http.routes import ConnectRoute, methods_of, route_of, shape_of
from strandline.connect.plugins import Plugins
from strandline.connect.validation.checks import WORKER_CONVERTERS, Resolve

BODY_BYTES_MAX: Final = 1 << 20
DROPPED_BYTES_MAX: Final = 64 << 20
"""Bytes of a body that is too large which are read before the answer."""
PATH_BYTES_MAX: Final = 8_000
REQUEST_S_MAX: Final = 90.0
"""As Kafka Connect: after this the client is answered, though the worker goes on."""
FORWARDED_HEADER: Final = "x-strandline-forwarded"
"""A request that has it is not sent on again, so that two workers never send one in a circle."""

_JSON: Final = "application/json"
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_PASSED_BACK: Final = ("location", "allow")

log = logging.getLogger("strandline.connect")

ConnectRightsOf = Callable[[Scope], Awaitable[ConnectRights]]
"""Returns what the caller of a request may do."""


async def every_right(scope: Scope) -> ConnectRights:
    """Return the rights of a caller of a worker that has no guard."""
    return EVERY_CONNECT_RIGHT


class ConnectApp:
    """The ASGI application.

    `converters` are the worker's, which hold for connectors that name none; `resolve` puts values for `${...}` into a
    config that is validated. `make_context` makes the context for TLS to the leader.
    """

    def __init__(
        self,
        herder: Herder,
        plugins: Plugins,
        rights_of: ConnectRightsOf = every_right,
        *,
        make_context: MakeContext | None = None,
        converters: Mapping[str, str] = WORKER_CONVERTERS,
        resolve: Resolve | None = None,
    ) -> None:
        self._herder = herder
        self._plugins = plugins
        self._rights_of = rights_of
        self._converters = dict(converters)
        self._resolve = resolve
        self._forwarder = HttpForwarder(make_context or _default_context, "leader", REQUEST_S_MAX)
        self._running: set[asyncio.Task[ConnectAnswer]] = set()

    def stop(self) -> None:
        """Send nothing on any more."""
        self._forwarder.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the server serves HTTP only"
        request = Request(scope, receive)
        try:
            response = await self._response(request)
        except RequestFailed as error:
            response = _error(error, _allowed(request, error))
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        path = _path(request)
        if request.method == "OPTIONS":
            allowed = methods_of(shape_of(path))
            if not allowed:
                raise RequestFailed(404, "HTTP 404 Not Found")
            return Response(media_type=_JSON, headers={"allow": ",".join(allowed)})
        route = route_of("GET" if request.method == "HEAD" else request.method, path)
        if not _accepts_json(request.headers.get("accept", "")):
            raise RequestFailed(406, "HTTP 406 Not Acceptable")
        rights = await self._rights_of(request.scope)
        body = await _body(request, route)
        query = parse_qs(request.scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        call = ConnectCall(
            self._herder, self._plugins, request.method, path, query, body, rights, self._converters, self._resolve
        )
        if route.right is not None:
            call.require(route.right, call.name if path[0] == "connectors" else None)
        try:
            return _answer(await self._served(route, call))
        except LeaderOnly as error:
            # Decided before also for what is sent on, because the leader does not see the client's address.
            return await self._forwarded(request, body, error)

    async def _served(self, route: ConnectRoute, call: ConnectCall) -> ConnectAnswer:
        """Run a route. A change that takes too long goes on, because half of one would be worse."""
        running = asyncio.ensure_future(_run(route, call))
        self._running.add(running)
        running.add_done_callback(self._ended)
        try:
            return await asyncio.wait_for(asyncio.shield(running), REQUEST_S_MAX)
        except TimeoutError:
            raise RequestFailed(500, f"Request timed out after {REQUEST_S_MAX:.0f} s; the worker goes on") from None

    def _ended(self, running: asyncio.Task[ConnectAnswer]) -> None:
        self._running.discard(running)
        if not running.cancelled():
            # Taken also if no request waits for it any more, else asyncio would report it as lost.
            running.exception()

    async def _forwarded(self, request: Request, body: bytes, reason: LeaderOnly) -> Response:
        """Return the leader's answer. Raise RequestFailed if there is none."""
        if reason.leader_url is None or FORWARDED_HEADER in request.headers:
            raise reason
        query = request.scope.get("query_string", b"")
        target = _raw_path(request) + (b"?" + query if query else b"")
        try:
            answer = await self._forwarder.forward(
                reason.leader_url, request.method, target, request.headers, body, {FORWARDED_HEADER: "true"}
            )
        except (PeerAway, PeerLost) as error:
            raise RequestFailed(500, f"IO Error trying to forward REST request: {error}") from error
        headers = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
        media_type = answer.headers.get("content-type")
        return Response(answer.body, answer.status, headers, media_type=media_type)


async def _run(route: ConnectRoute, call: ConnectCall) -> ConnectAnswer:
    try:
        return await route.handler(call)
    except RequestFailed:
        raise
    except InvalidConnectorConfig as error:
        raise RequestFailed(400, str(error)) from None
    except ConnectFailed as error:
        log.warning("%s /%s failed: %s", call.method, "/".join(call.path), error)
        raise RequestFailed(500, str(error)) from None
    except Exception:
        log.exception("%s /%s failed", call.method, "/".join(call.path))
        raise RequestFailed(500, "The worker failed; its log says why.") from None


def _raw_path(request: Request) -> bytes:
    path: bytes = request.scope["raw_path"]
    return path.split(b"?")[0]


def _path(request: Request) -> tuple[str, ...]:
    path = _raw_path(request)
    if len(path) > PATH_BYTES_MAX:
        raise RequestFailed(414, "HTTP 414 URI Too Long")
    parts = path.removeprefix(b"/").removesuffix(b"/").split(b"/")
    if parts == [b""]:
        return ()
    if b"" in parts:
        raise RequestFailed(404, "HTTP 404 Not Found")
    try:
        return tuple(unquote(part.decode("latin-1"), errors="strict") for part in parts)
    except UnicodeDecodeError:
        raise RequestFailed(400, "The path is not UTF-8") from None


async def _body(request: Request, route: ConnectRoute) -> bytes:
    """Return the body of a request. Raise RequestFailed if it is of another type than JSON, or too large."""
    data = bytearray()
    size_bytes = 0
    async for chunk in request.stream():
        size_bytes += len(chunk)
        # The rest is read and dropped, because a client that is still sending does not see the answer.
        if size_bytes <= BODY_BYTES_MAX:
            data += chunk
        elif size_bytes > DROPPED_BYTES_MAX:
            break
    if size_bytes > BODY_BYTES_MAX:
        raise RequestFailed(413, f"The request is larger than {BODY_BYTES_MAX:,} bytes")
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if data and route.has_body and content_type != _JSON:
        raise RequestFailed(415, "HTTP 415 Unsupported Media Type")
    return bytes(data)


def _accepts_json(accept: str) -> bool:
    wanted = [each.partition(";")[0].strip().lower() for each in accept.split(",") if each.strip()]
    return not wanted or any(each in (_JSON, "application/*", "*/*") for each in wanted)


def _answer(answer: ConnectAnswer) -> Response:
    headers = {} if answer.location is None else {"location": answer.location}
    if answer.body is NO_ANSWER:
        return Response(status_code=answer.status, headers=headers)
    return Response(_text(answer.body), answer.status, headers, media_type=_JSON)


def _allowed(request: Request, error: RequestFailed) -> dict[str, str]:
    return {"allow": ",".join(methods_of(shape_of(_path(request))))} if error.status == 405 else {}


def _error(error: RequestFailed, headers: dict[str, str]) -> Response:
    body = _text({"error_code": error.status, "message": str(error)})
    return Response(body, error.status, headers, media_type=_JSON)


def _text(value: Any) -> bytes:
    return _ENCODER.encode(value).encode("utf-8", "replace")


def _default_context() -> Any:
    import ssl

    return ssl.create_default_context()
