"""One response from many parts, each asked of a shard of groups; sent when the last part is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.errors import ErrorCode


class Gathering:
    def __init__(self, then: Callable[[list[Any]], object]) -> None:
        """`then` gets the parts in the order in which they were asked for."""
        self._then = then
        self._parts: list[Any] = []
        self._missing = 0
        self._is_asking = True

    def token(
        self, *, refusal: Callable[[ErrorCode], Any], shape: Callable[[Any], Any] | None = None
    ) -> PendingRequest:
        """Return the token of the next part; `refusal` and `shape` make the part of an answer."""
        index = len(self._parts)
        self._parts.append(None)
        self._missing += 1

        def put(part: Any) -> None:
            self._parts[index] = part
            self._missing -= 1
            if not self._is_asking and not self._missing:
                self._then(self._parts)

        token = PendingRequest(put, refusal=refusal, shape=shape)
        token.collect()
        return token

    def end(self, _: object = None) -> None:
        """Finish: no more parts will be asked for."""
        self._is_asking = False
        if not self._missing:
            self._then(self._parts)
