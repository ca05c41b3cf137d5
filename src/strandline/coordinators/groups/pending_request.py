"""One waiting request, seen from the coordinator: a token that can be answered or refused, now or later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from strandline.coordinators.groups.events import Response
from strandline.errors import ErrorCode


class Waiting(Protocol):
    """What the driver of the groups needs of a token. Exactly one of the two is called, once."""

    def answer(self, response: Response) -> None: ...

    def refuse(self, code: ErrorCode) -> None: ...


class PendingRequest:
    """The wait of one request. An answer that comes before `collect` is collected, a later one goes to `reply`.

    So a handler whose answer is ready returns it like any other handler, and a parked one returns None.
    """

    __slots__ = ("_collected", "_refusal", "_reply", "_response", "_shape")

    def __init__(
        self,
        reply: Callable[[Any], object],
        *,
        refusal: Callable[[ErrorCode], Any],
        shape: Callable[[Any], Any] | None = None,
    ) -> None:
        """`refusal` makes the response for an error code, `shape` fits the coordinator's answer to the version."""
        self._reply = reply
        self._refusal = refusal
        self._shape = shape
        self._response: Any = None
        self._collected = False

    def answer(self, response: Any) -> None:
        self._send(response if self._shape is None else self._shape(response))

    def refuse(self, code: ErrorCode) -> None:
        self._send(self._refusal(code))

    def collect(self) -> Any:
        self._collected = True
        return self._response

    def _send(self, response: Any) -> None:
        if self._collected:
            self._reply(response)
        else:
            self._response = response
