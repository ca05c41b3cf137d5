"""The registry over HTTP: an ASGI application that reads requests, negotiates content types, and writes answers.

It routes on the path as the client sent it, because a subject may contain a slash (`%2F`). It knows no users: the guard
in front of it says what a caller may do.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from strandline.schemas.failures import SCHEMA_TOO_LARGE, STORE_FAILED, RegistryError
from strandline.schemas.forwarding import FORWARDED_HEADER, OFFSET_HEADER, Forwarder, PrimaryAway
from strandline.schemas.http.api import Handler, routed
from strandline.schemas.http.apicurio import SEARCH, Translated, translated
from strandline.schemas.http.call import Call, Plain
from strandline.schemas.http.rights import CallerRights
from strandline.schemas.registry import SchemaRegistry

BODY_BYTES_MAX: Final = 4_000_000
"""Bytes of a request's body. A schema of the largest size may be written with escapes."""
DROPPED_BYTES_MAX: Final = 64_000_000
"""Bytes of a body that is too large which are read before the answer."""
PATH_BYTES_MAX: Final = 8_000

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_V1: Final = "application/vnd.schemaregistry.v1+json"
_ANSWERED: Final = (_V1, "application/vnd.schemaregistry+json", "application/json")
_ACCEPTED: Final = (*_ANSWERED, "application/octet-stream", "application/x-protobuf")

logger = logging.getLogger("strandline.schemas")

RightsOf = Callable[[Scope], Awaitable[CallerRights]]
"""Returns what the caller of a request may do."""


class RegistryApp:
    """The ASGI application."""

    def __init__(self, registry: SchemaRegistry, rights_of: RightsOf, forwarder: Forwarder | None = None) -> None:
        self.registry = registry
        self._rights_of = rights_of
        self._forwarder = forwarder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the server serves HTTP only"
        request = Request(scope, receive)
        media_type = _answered_type(request.headers.get("accept", ""))
        try:
            if media_type is None:
                raise RegistryError(406, "HTTP 406 Not Acceptable")
            rights = await self._rights_of(scope)
            body = await _body(request) if request.method in ("POST", "PUT") else b""
            response = await self._answer(request, body, rights, media_type)
        except RegistryError as error:
            response = _error(error, media_type or _V1)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _answer(self, request: Request, body: bytes, rights: CallerRights, media_type: str) -> Response:
        is_write = False
        try:
            if not self.registry.is_ready:
                why = self.registry.trouble or "The registry is still reading its topic. Try again in a moment."
                raise RegistryError(503, why)
            meant = translated(self._call(request, body, rights), body)
            # Decided here also for what is sent on, because the primary does not see the client's address.
            handler, call = routed(meant.call)
            is_write = call.is_write
            if is_write and (forwarded := await self._forwarded(request, body)) is not None:
                return forwarded
            answer = await _answer_of(handler, call, meant)
        except RegistryError:
            raise
        except Exception:
            logger.exception("%s %s failed", request.method, request.scope["raw_path"].decode("latin-1"))
            raise RegistryError(STORE_FAILED, "The registry failed; its log says why.") from None
        headers = {OFFSET_HEADER: str(self.registry.position)} if is_write else None
        if answer is None and request.method == "DELETE":
            return Response(status_code=204, headers=headers)
        text = answer.text if isinstance(answer, Plain) else _text(answer)
        return Response(text.encode("utf-8", "replace"), media_type=media_type, headers=headers)

    async def _forwarded(self, request: Request, body: bytes) -> Response | None:
        """Return the primary's answer to a write; None if the write is decided here."""
        forwarder = self._forwarder
        if forwarder is None or forwarder.is_primary or FORWARDED_HEADER in request.headers:
            return None
        query = request.scope.get("query_string", b"")
        target = request.scope["raw_path"].split(b"?")[0] + (b"?" + query if query else b"")
        try:
            answer = await forwarder.forward(request.method, target, request.headers, body)
        except PrimaryAway as error:
            # It did not see the write. Deciding here fences it, should it live.
            logger.warning("%s; the write is decided here", error)
            return None
        return Response(answer.body, answer.status, media_type=answer.media_type)

    def _call(self, request: Request, body: bytes, rights: CallerRights) -> Call:
        path = request.scope["raw_path"].split(b"?")[0]
        if len(path) > PATH_BYTES_MAX:
            raise RegistryError(414, "HTTP 414 URI Too Long")
        parts = path.strip(b"/").split(b"/") if path.strip(b"/") else []
        text = request.scope.get("query_string", b"").decode("latin-1")
        query = parse_qs(text, keep_blank_values=True) if text else {}
        method = "GET" if request.method == "HEAD" else request.method
        names = tuple(unquote(part.decode("latin-1")) for part in parts)
        is_json = method in ("POST", "PUT") and names != SEARCH
        return Call(self.registry, method, names, query, _json(body) if is_json else None, rights=rights)


async def _answer_of(handler: Handler, call: Call, meant: Translated) -> Any:
    try:
        answer = await handler(call)
    except RegistryError as error:
        if meant.if_missing is None or error.status != 404:
            raise
        return meant.if_missing
    return answer if isinstance(answer, Plain) else meant.answered(answer)


async def _body(request: Request) -> bytes:
    """Return the body of a request. Raise RegistryError if its type is unknown, or if it is too large."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type and content_type not in _ACCEPTED:
        raise RegistryError(415, "HTTP 415 Unsupported Media Type")
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
        raise RegistryError(SCHEMA_TOO_LARGE, f"The request is larger than {BODY_BYTES_MAX:,} bytes")
    return bytes(data)


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, f"The body is not JSON: {error}") from None


@lru_cache(128)
def _answered_type(accept: str) -> str | None:
    """Return the first content type that a client accepts and the registry has; None if there is none."""
    wanted = [each.partition(";")[0].strip().lower() for each in accept.split(",") if each.strip()]
    for each in wanted:
        if each in _ANSWERED:
            return each
    return _V1 if not wanted or any(each in ("*/*", "application/*") for each in wanted) else None


def _error(error: RegistryError, media_type: str) -> Response:
    body = _text({"error_code": error.code, "message": error.message})
    return Response(body.encode("utf-8", "replace"), error.status, media_type=media_type)


def _text(value: Any) -> str:
    return _ENCODER.encode(value)
