"""One answer out of many: each part is asked of some shard of groups, and the whole leaves when the last has spoken."""

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
        """For the next part; what `refusal` and `shape` make of an answer is the part."""
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
        """No more parts will be asked for."""
        self._is_asking = False
        if not self._missing:
            self._then(self._parts)
