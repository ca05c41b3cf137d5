"""One answer of a cluster, kept for moments: asked once at a time, and still shown while the cluster is silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

SHARE_OF_TIME: Final = 16
"""An answer that takes long is asked for less often, so that asking takes at most a sixteenth of the time."""
WAIT_S: Final = 0.1
"""The time that a page waits for a newer answer if there is one that is a little old, and the last came that soon."""
SLOW_S: Final = 60.0
"""The age up to which no page waits for a newer answer to a question that takes long; it says how old it is."""
STALE_S_MAX: Final = 600.0
"""The age of an answer that is still shown while the cluster does not answer."""


class Known(NamedTuple, Generic[T]):
    """An answer, its age, and why there is no newer one; empty if there is no reason."""

    value: T
    age_s: float
    failure: str = ""


class KeptValue(Generic[T]):
    """The newest answer to one question. Used by one event loop."""

    def __init__(self, ask: Callable[[], Awaitable[T]], clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._value: list[T] = []
        self._asked_at = 0.0
        self._took_s = 0.0
        self._error: Exception | None = None
        self._running: asyncio.Task[None] | None = None
        self._running_since = 0.0
        self._forgotten_at = float("-inf")
        self.used_at = clock()

    async def get(self, fresh_s: float) -> Known[T]:
        """Return an answer that is about `fresh_s` old at most. Raise what the question raises if there is none."""
        self.used_at = self._clock()
        fresh_s = max(fresh_s, SHARE_OF_TIME * self._took_s)
        if self._running is None and not (self._is_valid and self._age_s <= fresh_s):
            self._running_since = self._clock()
            self._running = asyncio.get_running_loop().create_task(self._renew())
        if self._running is not None:
            # A little old is good enough for a page, and so is anything while the cluster fails.
            old_s = 5 * fresh_s if self._took_s <= WAIT_S else max(5 * fresh_s, SLOW_S)
            is_usable = self._is_valid and (self._age_s < old_s or self._error is not None)
            if not (is_usable and self._took_s > WAIT_S):
                await asyncio.wait([self._running], timeout=WAIT_S if is_usable else None)
            if self._error is None and not self._is_valid:
                # Something was changed after the question was asked.
                return await self.get(fresh_s)
        if self._value and self._age_s <= STALE_S_MAX:
            return Known(self._value[0], self._age_s, str(self._error) if self._error is not None else "")
        assert self._error is not None, "a question ends with an answer or an error"
        raise self._error

    @property
    def _age_s(self) -> float:
        return self._clock() - self._asked_at

    @property
    def _is_valid(self) -> bool:
        return bool(self._value) and self._asked_at >= self._forgotten_at

    @property
    def first_asked_s(self) -> float:
        """How long the first answer is being waited for; 0 if there is one, or nothing is asked."""
        return 0.0 if self._is_valid or self._running is None else self._clock() - self._running_since

    def forget(self) -> None:
        """Have the next reader wait for a new answer, because something was changed."""
        self._forgotten_at = self._clock()

    def cancel(self) -> None:
        if self._running is not None:
            self._running.cancel()

    async def _renew(self) -> None:
        began = self._clock()
        try:
            value = await self._ask()
        except Exception as error:  # kept, and raised to whom it concerns
            self._error = error
        else:
            self._value = [value]
            # The age counts from the question: what changed while the answer came is not in it.
            self._asked_at = began
            self._error = None
        finally:
            self._took_s = self._clock() - began
            self._running = None
