"""How a payload or a value fails to fit its schema."""

from __future__ import annotations

from typing import Final

STEPS_SHOWN: Final = 12


class PayloadFailed(ValueError):
    """A payload that does not decode, or a value that does not fit: the reason, and the place inside the value."""

    def __init__(self, reason: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path

    def inside(self, step: str | int) -> PayloadFailed:
        """Return the same failure, seen from one level further out."""
        return PayloadFailed(self.reason, (step, *self.path))

    def __str__(self) -> str:
        if not self.path:
            return self.reason
        place = ""
        for step in self.path[:STEPS_SHOWN]:
            place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else step
        return f"at {place}{'...' if len(self.path) > STEPS_SHOWN else ''}: {self.reason}"
