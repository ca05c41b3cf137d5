"""A connection as the limits and the metrics of its listener see it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from strandline.broker.network.transport import Transport
from strandline.handlers.support.context import ClientQuota
from strandline.observability.request_meter import RequestMeter


class StartedRequest(Protocol):
    """A request that was started and is not answered yet."""

    meter: RequestMeter | None


class LimitedConnection(Protocol):
    """A connection that is counted and may be closed."""

    closed: bool
    paused: bool
    has_asked: bool
    """Whether a whole request has come."""
    inbox: bytearray | None
    used_at: int
    number: int
    software: tuple[str, str] | None
    quota: ClientQuota | None

    @property
    def listener_name(self) -> str: ...

    @property
    def transport(self) -> Transport: ...

    @property
    def inbox_size(self) -> int: ...

    @property
    def started(self) -> Iterable[StartedRequest] | None: ...

    def close(self) -> None: ...
