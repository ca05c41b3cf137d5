"""A route for an application that routes by itself."""

from __future__ import annotations

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send


class EveryPath(BaseRoute):
    """A route for an application that routes on the raw path itself: Starlette's would decode `%2F` and `%0A` first."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.endpoint = app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return Match.FULL, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)
