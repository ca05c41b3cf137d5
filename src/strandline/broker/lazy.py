"""Parts of a broker that are imported and made when they are first needed, so that the broker starts quickly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """A part that is made by the first `get`."""

    __slots__ = ("_make", "loaded")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.loaded: T | None = None
        """The part, if it was made."""

    def get(self) -> T:
        """Return the part; make it if this is the first call."""
        if self.loaded is None:
            self.loaded = self._make()
        return self.loaded
