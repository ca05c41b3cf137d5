"""The console as an ASGI application: `create_app(ConsoleSettings(...))`.

It is to stand behind the guard of `strandline.services.http`, which checks Host and Origin and bounds sizes and times.
Sessions, forged forms, rights of users and the headers that bind browsers are its own.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strandline.console import openapi
from strandline.console.actions import FORGED, read_form
from strandline.console.declarations import PageModule
from strandline.console.failures import PageFailed
from strandline.console.pages.index import page_modules
from strandline.console.rendering import STATIC, Renderer
from strandline.console.routing import API, ConsoleRoutes
from strandline.console.screens import THEMES, Screens, local_path
from strandline.console.sessions import ConsoleSession
from strandline.console.settings import ConsoleSettings
from strandline.console.visits import Visits, address_of

POLICY: Final = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    # Not no-referrer: forms would come with `Origin: null`, which the guard takes for another site.
    (b"referrer-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
)
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}
SWITCH_S: Final = 0.001
"""How long the loop waits for a thread that decodes a large answer: pages of others must not wait for it."""


class ConsoleApp:
    """The application, and its end."""

    def __init__(self, settings: ConsoleSettings, modules: Sequence[PageModule] | None = None) -> None:
        sys.setswitchinterval(SWITCH_S)
        modules = page_modules() if modules is None else modules
        self.visits = Visits(settings)
        renderer = Renderer()
        self.screens = Screens(settings, renderer, self.visits.sessions, modules)
        self._settings = settings
        self._files = {
            path.relative_to(STATIC).as_posix(): path.read_bytes() for path in STATIC.rglob("*") if path.is_file()
        }
        self._packed: dict[str, bytes] = {}
        self._static = renderer.static_version
        routes = ConsoleRoutes(self.visits, self.screens, modules)
        html = routes.html
        self._description = openapi.describe(modules, API)
        self._app: ASGIApp = Starlette(
            routes=[
                Route("/", self._home, methods=["GET"]),
                Route("/livez", self._live, methods=["GET"]),
                Route("/readyz", self._live, methods=["GET"]),
                Route("/static/{version}/{path:path}", self._file, methods=["GET"]),
                Route("/preferences", html(self._prefer), methods=["POST"]),
                Route("/login/{cluster}", html(self._login), methods=["GET", "POST"]),
                Route("/logout/{cluster}", html(self._logout), methods=["POST"]),
                Route("/api/v1", self._clusters, methods=["GET"]),
                Route(openapi.PATH, self._describe, methods=["GET"]),
                *routes.routes(),
            ],
            exception_handlers={HTTPException: self._not_found},
        )
        # A path with a slash at its end is another one; a redirect would be to whatever Host was sent.
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message.get("headers", ())}
                message["headers"] = [*message.get("headers", ()), *(each for each in _HEADERS if each[0] not in names)]
            await send(message)

        await self._app(scope, receive, send_hardened)

    def stop(self) -> None:
        """End what flows, so that the service can stop. Call it in the event loop."""
        self.visits.stopping.set()

    def close(self) -> None:
        self.visits.stopping.set()
        self.visits.close()

    async def _home(self, request: Request) -> Response:
        return RedirectResponse(f"/c/{self._settings.clusters[0].name}", 303)

    async def _live(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _clusters(self, request: Request) -> Response:
        return JSONResponse({"clusters": [each.name for each in self._settings.clusters]})

    async def _describe(self, request: Request) -> Response:
        return JSONResponse(self._description)

    async def _file(self, request: Request) -> Response:
        path = request.path_params["path"]
        content = self._files.get(path)
        kind = _TYPES.get(path[path.rfind(".") :], "")
        if content is None or not kind:
            return PlainTextResponse("there is no such file\n", 404)
        headers = {"Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            # Only files: pages have secrets, whose size a compressed answer could give away.
            content = self._packed.get(path) or self._packed.setdefault(path, gzip.compress(content, 9, mtime=0))
            headers["Content-Encoding"] = "gzip"
        # Under the version of another console the content may be another one, which must not be kept.
        is_own = request.path_params["version"] == self._static
        caching = "public, max-age=31536000, immutable" if is_own else "no-store"
        return Response(content, media_type=kind, headers=headers | {"Cache-Control": caching})

    async def _prefer(self, request: Request, session: ConsoleSession) -> Response:
        form = await read_form(request)
        if self.visits.sessions.is_forged(session, form.get("csrf", "")):
            raise PageFailed(403, FORGED, "load the page again")
        response = RedirectResponse(local_path(form.get("next", "")) or "/", 303)
        theme = form.get("theme", "auto")
        if theme in THEMES:
            response.set_cookie(
                "theme",
                theme,
                max_age=365 * 86_400,
                path="/",
                secure=self._settings.is_secure,
                httponly=True,
                samesite="strict",
            )
        return response

    async def _login(self, request: Request, session: ConsoleSession) -> Response:
        cluster = self.visits.cluster(request)
        if not cluster.has_login:
            return RedirectResponse(f"/c/{cluster.name}", 303)
        if request.method == "GET":
            return self.screens.login(request, session, cluster)
        form = await read_form(request)
        if self.visits.sessions.is_forged(session, form.get("csrf", "")):
            raise PageFailed(403, FORGED, "load the page again, and log in again")
        kind, name, address = form.get("kind", "password"), form.get("name", "").strip(), address_of(request)
        noted = {"address": address, "cluster": cluster.name, "action": "login", "target": kind[:20]}
        try:
            user = await self.visits.logins.prove(cluster, kind, name, form.get("secret", ""), address)
        except PageFailed as failed:
            self.visits.audit.note(user=name[:200], outcome="refused", detail=failed.words.sentence, **noted)
            return self.screens.login(request, session, cluster, failed.words)
        self.visits.audit.note(user=user.name, outcome="done", **noted)
        made = self.visits.sessions.log_in(session, cluster.name, user)
        response = RedirectResponse(local_path(form.get("next", "")) or f"/c/{quote(cluster.name)}", 303)
        self.visits.sessions.keep(made, request, response)
        # The cookie of the old session must not be set after it.
        session.is_new = False
        return response

    async def _logout(self, request: Request, session: ConsoleSession) -> Response:
        cluster = self.visits.cluster(request)
        form = await read_form(request)
        if self.visits.sessions.is_forged(session, form.get("csrf", "")):
            raise PageFailed(403, FORGED, "load the page again")
        if (user := session.users.get(cluster.name)) is not None:
            self.visits.audit.note(
                user=user.name, address=address_of(request), cluster=cluster.name, action="logout", outcome="done"
            )
        self.visits.sessions.log_out(session, cluster.name)
        return RedirectResponse(f"/login/{cluster.name}", 303)

    async def _not_found(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": error.detail, "status": error.status_code}, error.status_code)
        session = self.visits.sessions.of(request)
        words = PageFailed(error.status_code, "There is no such page", "the navigation has those that there are").words
        response = self.screens.failed(request, session, words)
        self.visits.sessions.keep(session, request, response)
        return response


def create_app(settings: ConsoleSettings, modules: Sequence[PageModule] | None = None) -> ConsoleApp:
    """Return the console of these clusters; `modules` are its pages, all by default."""
    return ConsoleApp(settings, modules)
