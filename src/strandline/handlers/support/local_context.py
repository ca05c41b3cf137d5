"""A request without a connection of its own: sent within this process, or wrapped in an Envelope.

The same handler serves it, and its response goes to `on_reply` as a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from strandline.handlers.support.context import ApiRange, BrokerServices, Connection
from strandline.security.principal import ANONYMOUS_SESSION, Session

if TYPE_CHECKING:
    from strandline.handlers.access.client_guard import ClientGuard


class LocalContext:
    def __init__(
        self,
        node: BrokerServices,
        routes: Mapping[int, ApiRange],
        api_version: int,
        on_reply: Callable[[Any], object],
        *,
        client_id: str | None,
        client_host: str = "",
        session: Session = ANONYMOUS_SESSION,
        pays_quotas: bool = False,
    ) -> None:
        self.node = node
        self.routes = routes
        self.api_version = api_version
        self.client_id = client_id
        self.client_host = client_host
        self.session = session
        self.guard: ClientGuard | None = None
        self.amend: Callable[[Any], Any] | None = None
        self.pays_quotas = pays_quotas
        self.client_port = 0
        self.listener_name = ""
        self.client_software: tuple[str, str] | None = None
        self.is_at_controller = True
        self._on_reply = on_reply
        self._is_answered = False

    @property
    def connection(self) -> Connection:
        raise AssertionError("no connection belongs to this request")

    def remember_software(self, name: str, version: str) -> None:
        """Do nothing: in-process requests have no client software."""

    def reply(self, response: Any) -> None:
        assert not self._is_answered, "a request is answered once"
        self._is_answered = True
        self._on_reply(response if self.amend is None else self.amend(response))
