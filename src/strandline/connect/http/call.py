"""One request to the API: its path, query and body, and what its caller may do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from strandline.connect.herder.interface import Herder, RequestFailed
from strandline.connect.http.rights import EVERY_CONNECT_RIGHT, ConnectRight, ConnectRights
from strandline.connect.plugins import Plugins
from strandline.connect.validation.checks import WORKER_CONVERTERS, Resolve

NO_ANSWER: Final = object()
"""The body of an answer that has none."""


@dataclass(frozen=True)
class ConnectAnswer:
    """What a route answers. `location` is the path of what was made."""

    body: Any = NO_ANSWER
    status: int = 200
    location: str | None = None


@dataclass(frozen=True)
class ConnectCall:
    """One request."""

    herder: Herder
    plugins: Plugins
    method: str
    path: tuple[str, ...]
    """Parts of the path, decoded."""
    query: dict[str, list[str]] = field(default_factory=dict)
    body: bytes = b""
    rights: ConnectRights = EVERY_CONNECT_RIGHT
    converters: dict[str, str] = field(default_factory=lambda: dict(WORKER_CONVERTERS))
    resolve: Resolve | None = None

    @property
    def name(self) -> str:
        """The connector, plugin or logger that the path names."""
        return self.path[2] if self.path[0] == "admin" else self.path[1]

    @property
    def task(self) -> int:
        """The task that the path names. Raise RequestFailed if that is no number."""
        text = self.path[3]
        if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > 10:
            raise RequestFailed(404, "HTTP 404 Not Found")
        return int(text)

    def flag(self, name: str, default: bool = False) -> bool:
        given = self.query.get(name)
        return default if given is None else given[0].lower() == "true"

    def sees(self, connector: str) -> bool:
        return self.rights.why_denied(ConnectRight.SEE, connector) is None

    def require(self, right: ConnectRight, connector: str | None) -> None:
        """Raise RequestFailed unless the caller has a right."""
        if why := self.rights.why_denied(right, connector):
            raise RequestFailed(403, why)
