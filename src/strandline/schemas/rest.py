"""The registry over HTTP: an ASGI application that reads requests, negotiates content types, and writes answers.

It routes on the path as the client sent it, because a subject may contain a slash (`%2F`). It knows no users: an
application that guards it can be put in front.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from strandline.schemas.api import Call, Plain, dispatch
from strandline.schemas.failures import SCHEMA_TOO_LARGE, STORE_FAILED, RegistryError
from strandline.schemas.forwarding import FORWARDED_HEADER, OFFSET_HEADER, Forwarder, PrimaryAway
from strandline.schemas.registry import SchemaRegistry

BODY_BYTES_MAX: Final = 4_000_000
"""Bytes of a request's body. A schema of the largest size may be written with escapes."""
DROPPED_BYTES_MAX: Final = 64_000_000
"""Bytes of a body that is too large which are read before the answer."""
PATH_BYTES_MAX: Final = 8_000

_V1: Final = "application/vnd.schemaregistry.v1+json"
_ANSWERED: Final = (_V1, "application/vnd.schemaregistry+json", "application/json")
_ACCEPTED: Final = (*_ANSWERED, "application/octet-stream")

logger = logging.getLogger("strandline.schemas")


class RegistryApp:
    """The ASGI application."""

    def __init__(self, registry: SchemaRegistry, forwarder: Forwarder | None = None) -> None:
        self.registry = registry
        self._forwarder = forwarder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the server serves HTTP only"
        request = Request(scope, receive)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = request.scope["raw_path"].split(b"?")[0]
        if path in (b"/livez", b"/readyz"):
            is_well = path == b"/livez" or self.registry.is_ready
            return Response(
                "ok\n" if is_well else "reading the topic\n", 200 if is_well else 503, media_type="text/plain"
            )
        media_type = _answered_type(request.headers.get("accept", ""))
        if media_type is None:
            return _error(RegistryError(406, "HTTP 406 Not Acceptable"), _V1)
        try:
            if not self.registry.is_ready:
                raise RegistryError(503, "The registry is still reading its topic. Try again in a moment.")
            body = await _body(request) if request.method in ("POST", "PUT") else b""
            if _is_write(request.method, path):
                forwarded = await self._forwarded(request, body)
                if forwarded is not None:
                    return forwarded
            answer = await dispatch(self._call(request, path, body))
        except RegistryError as error:
            return _error(error, media_type)
        except Exception:
            logger.exception("%s %s failed", request.method, path.decode("latin-1"))
            return _error(RegistryError(STORE_FAILED, "The registry failed; its log says why."), media_type)
        headers = {OFFSET_HEADER: str(self.registry.position)} if _is_write(request.method, path) else None
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

    def _call(self, request: Request, path: bytes, body: bytes) -> Call:
        if len(path) > PATH_BYTES_MAX:
            raise RegistryError(414, "HTTP 414 URI Too Long")
        parts = path.strip(b"/").split(b"/") if path.strip(b"/") else []
        query = parse_qs(request.scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        method = "GET" if request.method == "HEAD" else request.method
        names = tuple(unquote(part.decode("latin-1")) for part in parts)
        return Call(self.registry, method, names, query, _json(body) if method in ("POST", "PUT") else None)


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


def _is_write(method: str, path: bytes) -> bool:
    """Say whether a request may change something: a POST only if it registers, because others ask."""
    if method != "POST":
        return method in ("PUT", "DELETE")
    return path.rstrip(b"/").endswith(b"/versions") and b"/compatibility/" not in path


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
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
