"""Whole pages of HTML: a declared page, a form of an action, the login, a failure. All have the same frame."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from strandline.console.context import PageContext
from strandline.console.declarations import ConsoleAction, ConsolePage, PageModule
from strandline.console.failures import FailureWords, LoginNeeded
from strandline.console.logins import KINDS
from strandline.console.rendering import Renderer
from strandline.console.sessions import ConsoleSession, Sessions
from strandline.console.settings import ConsoleCluster, ConsoleSettings

THEMES: Final = ("auto", "light", "dark")
_LOCAL: Final = re.compile(r"/(?![/\\])[^\\\x00-\x20\x7f]*")


class Screens:
    """Renders pages in their frame."""

    def __init__(
        self, settings: ConsoleSettings, renderer: Renderer, sessions: Sessions, modules: Sequence[PageModule]
    ) -> None:
        self._settings = settings
        self._renderer = renderer
        self._sessions = sessions
        self._pages = {page.name: page for module in modules for page in module.pages}
        groups: dict[str, list[ConsolePage]] = {}
        for page in self._pages.values():
            if page.group:
                groups.setdefault(page.group, []).append(page)
        self._navigation = groups

    def page(self, request: Request, context: PageContext, page: ConsolePage, model: Mapping[str, Any]) -> Response:
        """Return a declared page with its answer."""
        base = self._base(context.cluster)
        values = self._frame(request, context.session, context.cluster)
        values |= {
            "page": page,
            "title": page.title.format_map(context.params),
            "current": page.under or page.name,
            "parent": self._pages.get(page.under),
            "context": context,
            "model": model,
            "notes": context.reading.notes,
            "read_only": context.read_only,
            "user": context.user,
            "api": f"/api/v1/clusters/{context.cluster.name}{request.url.path.removeprefix(base)}",
            "flash": self._sessions.take_flash(context.session),
        }
        return HTMLResponse(self._renderer.render(f"pages/{page.template}", values))

    def fragment(self, context: PageContext, template: str, model: Mapping[str, Any]) -> str:
        """Return a part of a page for a stream to send."""
        return self._renderer.render(
            template, {"model": model, "context": context, "base": self._base(context.cluster)}
        )

    def action(
        self, request: Request, context: PageContext, action: ConsoleAction, status: int = 200, **values: Any
    ) -> Response:
        """Return the form or the confirmation of an action."""
        found = self._frame(request, context.session, context.cluster)
        found |= {
            "current": action.under,
            "parent": self._pages.get(action.under),
            "action": action,
            "context": context,
            "user": context.user,
            "read_only": context.read_only,
            "notes": context.reading.notes,
            "flash": "",
            **values,
        }
        return HTMLResponse(self._renderer.render("action.html", found), status)

    def login(
        self, request: Request, session: ConsoleSession, cluster: ConsoleCluster, words: FailureWords | None = None
    ) -> Response:
        """Return the form of the login of a cluster."""
        values = self._frame(request, session, cluster)
        values |= {
            "current": "",
            "title": f"Log in to {cluster.name}",
            "kinds": KINDS,
            "words": words,
            "next": local_path(request.query_params.get("next", "")) or self._base(cluster),
        }
        return HTMLResponse(self._renderer.render("login.html", values), 200 if words is None else words.status)

    def to_login(self, request: Request, session: ConsoleSession, needed: LoginNeeded) -> Response:
        """Send a visitor to the login, and from there back to where it wanted to go."""
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        query = urlencode({"next": here if request.method == "GET" else ""})
        location = f"/login/{quote(request.path_params['cluster'], safe='')}?{query}"
        if "hx-request" in request.headers:
            # A redirect would put the form of the login into a part of the page.
            return Response(status_code=200, headers={"HX-Redirect": location})
        return RedirectResponse(location, 303)

    def failed(self, request: Request, session: ConsoleSession, words: FailureWords) -> Response:
        """Return a failure as a page, which comes again by itself if another attempt may succeed."""
        cluster = self._settings.cluster(request.path_params.get("cluster", ""))
        values = self._frame(request, session, cluster)
        again = request.method == "GET" and words.may_pass
        values |= {"current": "", "words": words, "title": "That did not work", "comes_again": again}
        headers = {"Retry-After": "3"} if again else {}
        return HTMLResponse(self._renderer.render("failed.html", values), words.status, headers)

    def _frame(self, request: Request, session: ConsoleSession, cluster: ConsoleCluster | None) -> dict[str, Any]:
        """Return what the frame of every page needs."""
        theme = request.cookies.get("theme", "")
        return {
            "base": self._base(cluster) if cluster is not None else "",
            "cluster": cluster,
            "clusters": self._settings.clusters,
            "navigation": self._navigation,
            "csrf": session.csrf,
            "theme": theme if theme in THEMES else "auto",
            "themes": THEMES,
            "path": request.url.path,
            "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            "user": session.users[cluster.name].name if cluster is not None and cluster.name in session.users else "",
            "page": None,
            "parent": None,
            "notes": [],
            "flash": "",
            "read_only": None if cluster is None else self._settings.why_read_only(cluster),
            "grafana": self._settings.grafana,
        }

    @staticmethod
    def _base(cluster: ConsoleCluster) -> str:
        return f"/c/{cluster.name}"


def local_path(text: str) -> str:
    """Return a path of this console; empty for the address of another site."""
    return text if _LOCAL.fullmatch(text) else ""
