"""Routes of declared pages, actions and streams: HTML, the JSON twin, CSV, one POST, events.

/c/CLUSTER/topics                        the page
/c/CLUSTER/topics?export=csv             every row of its table; `&table=NAME` where there are several
/api/v1/clusters/CLUSTER/topics          the same as JSON; `?export=json` has every row
/c/CLUSTER/do/topic-create               the form, then (`?review=1`) the confirmation, then one POST
/api/v1/clusters/CLUSTER/do/topic-create POST of a JSON object with the fields
/c/CLUSTER/live/...                      events
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from strandline.console.actions import ActionRequests
from strandline.console.context import plain
from strandline.console.declarations import ConsoleDownload, ConsolePage, ConsoleStream, PageModule
from strandline.console.events import LAST_ID_MAX, StreamEvent, event_stream
from strandline.console.failures import EXPECTED, FailureWords, LoginNeeded, PageFailed, words_of
from strandline.console.screens import Screens
from strandline.console.sessions import STREAMS_MAX as STREAMS_OF_SESSION_MAX
from strandline.console.sessions import ConsoleSession
from strandline.console.tables import TableView
from strandline.console.visits import STREAMS_MAX, Visits

log = logging.getLogger("strandline.console")

PAGE_S_MAX: Final = 15.0
"""A page that is not ready by then says so, and comes again by itself."""
API: Final = "/api/v1/clusters/{cluster}"
PAGES: Final = "/c/{cluster}"

T = TypeVar("T")
Handler = Callable[[Request, ConsoleSession], Awaitable[Response]]


class ConsoleRoutes:
    """Makes the routes of modules of pages."""

    def __init__(self, visits: Visits, screens: Screens, modules: Sequence[PageModule]) -> None:
        self._visits = visits
        self._screens = screens
        self._pages = [page for module in modules for page in module.pages]
        self._streams = [stream for module in modules for stream in module.streams]
        self._downloads = [each for module in modules for each in module.downloads]
        self._actions = ActionRequests(visits, screens, [each for module in modules for each in module.actions])

    def routes(self) -> list[Route]:
        """Return the routes of everything that belongs to a cluster."""
        found = [
            Route(f"{PAGES}/do/{{action}}", self.html(self._actions.show), methods=["GET"]),
            Route(f"{PAGES}/do/{{action}}", self.html(self._actions.do), methods=["POST"]),
            Route(f"{API}/do/{{action}}", self.json(self._actions.do_json), methods=["POST"]),
        ]
        for stream in self._streams:
            found.append(Route(PAGES + stream.path, self.html(self._stream(stream)), methods=["GET"]))
        for download in self._downloads:
            found.append(Route(PAGES + download.path, self.html(self._file(download)), methods=["GET"]))
        for page in self._pages:
            path = "" if page.path == "/" else page.path
            found.append(Route((PAGES + path) or "/", self.html(self._page(page)), methods=["GET"]))
            found.append(Route(API + path, self.json(self._twin(page)), methods=["GET"]))
        return found

    # The two ways to answer, and to fail

    def html(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that shows failures as a page, and lets a visitor log in."""

        async def endpoint(request: Request) -> Response:
            session = self._visits.sessions.of(request)
            try:
                response = await handler(request, session)
            except LoginNeeded as needed:
                response = self._screens.to_login(request, session, needed)
            except Exception as error:
                response = self._screens.failed(request, session, await self._failure(request, session, error))
            self._visits.sessions.keep(session, request, response)
            return response

        return endpoint

    def json(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that shows failures as JSON."""

        async def endpoint(request: Request) -> Response:
            session = self._visits.sessions.of(request)
            try:
                return await handler(request, session)
            except Exception as error:
                words = await self._failure(request, session, error)
                headers = {"WWW-Authenticate": 'Basic realm="strandline"'} if words.status == 401 else {}
                body = {"error": words.sentence, "advice": words.advice or None, "status": words.status}
                return JSONResponse(body, words.status, headers)

        return endpoint

    async def _failure(self, request: Request, session: ConsoleSession, error: Exception) -> FailureWords:
        if not isinstance(error, (*EXPECTED, PageFailed)):
            log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        words = words_of(error)
        if words.status == 401 and not isinstance(error, PageFailed) and "cluster" in request.path_params:
            # The cluster has dropped this user: another page must not try it again.
            self._visits.sessions.log_out(session, request.path_params["cluster"])
        return words

    # Pages

    def _page(self, page: ConsolePage) -> Handler:
        async def show(request: Request, session: ConsoleSession) -> Response:
            wanted = request.query_params.get("export", "")
            if wanted not in ("", "csv", "json"):
                raise PageFailed(400, f"export={wanted} is unknown; expected csv or json")
            context = await self._visits.visit(request, session, is_export=bool(wanted))
            model = await _in_time(page.model(context))
            if wanted == "csv":
                return _csv(page, model, request.query_params.get("table", ""))
            if wanted == "json":
                return _download(JSONResponse(plain(model)), f"{page.name}.json")
            return self._screens.page(request, context, page, model)

        return show

    def _file(self, download: ConsoleDownload) -> Handler:
        async def answer(request: Request, session: ConsoleSession) -> Response:
            file = await _in_time(download.source(await self._visits.visit(request, session, is_export=True)))
            return _download(Response(file.content, media_type=file.media_type), _file_name(file.name))

        return answer

    def _twin(self, page: ConsolePage) -> Handler:
        async def answer(request: Request, session: ConsoleSession) -> Response:
            context = await self._visits.visit(request, session, is_export=request.query_params.get("export") == "json")
            model = await _in_time(page.model(context))
            return JSONResponse(plain({**model, "question": page.question, "notes": context.reading.notes}))

        return answer

    def _stream(self, stream: ConsoleStream) -> Handler:
        async def flow(request: Request, session: ConsoleSession) -> Response:
            context = await self._visits.visit(request, session)
            context.render = partial(self._screens.fragment, context)
            visits = self._visits
            if visits.streams >= STREAMS_MAX or session.streams >= STREAMS_OF_SESSION_MAX:
                raise PageFailed(503, "Too many live pages are open", "close some tabs")
            # A browser sends the id as a header when it comes again; htmx and a link have it in the URL.
            last_id = request.headers.get("last-event-id") or request.query_params.get("after", "")
            by_header = visits.has_header_login(request)
            source = self._counted(stream.source(context, last_id[:LAST_ID_MAX]), session)
            return event_stream(
                source,
                stopping=visits.stopping,
                may_go_on=lambda: visits.is_admitted(context, by_header=by_header),
            )

        return flow

    async def _counted(self, source: AsyncIterator[StreamEvent], session: ConsoleSession) -> AsyncIterator[StreamEvent]:
        self._visits.streams += 1
        session.streams += 1
        try:
            async for event in source:
                yield event
        finally:
            self._visits.streams -= 1
            session.streams -= 1


async def _in_time(answer: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(PAGE_S_MAX):
            return await answer
    except TimeoutError:
        raise TimeoutError(f"the cluster has not answered within {PAGE_S_MAX:g} s") from None


def _csv(page: ConsolePage, model: Mapping[str, Any], name: str) -> Response:
    tables = {each.name: each for each in model.values() if isinstance(each, TableView)}
    table = tables.get(name) or (next(iter(tables.values()), None) if not name else None)
    if table is None:
        raise PageFailed(404, "This page has no table of this name", f"it has {', '.join(tables) or 'none'}")
    file = f"{page.name}-{name}.csv" if name else f"{page.name}.csv"
    return _download(Response(table.csv(), media_type="text/csv; charset=utf-8"), file)


def _file_name(name: str) -> str:
    """Return a name without what ends a header."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:200]


def _download(response: Response, file: str) -> Response:
    response.headers["Content-Disposition"] = f'attachment; filename="{file}"'
    return response
