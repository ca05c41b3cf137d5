"""A connection that came too soon after others of its address: held for a while without a word, then closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.broker.network.transport import Transport

if TYPE_CHECKING:
    from strandline.runtime.runtime import Runtime

NEWCOMERS_HELD_MAX: Final = 1000
"""Connections that are held at one time; one more is closed at once."""


class ThrottledNewcomer:
    """Takes nothing from its peer, and closes after a delay. Until then the peer does not try again."""

    def __init__(self, transport: Transport, runtime: Runtime, delay_ms: int, held: set[ThrottledNewcomer]) -> None:
        self._transport = transport
        self._held = held
        held.add(self)
        self._timer = runtime.call_later(delay_ms / 1000, self._end)

    def receive(self, view: memoryview) -> None:
        self._transport.pause()

    def on_congested(self) -> None:
        """Do nothing: it sends nothing."""

    def on_drained(self) -> None:
        """Do nothing: it sends nothing."""

    def on_closed(self) -> None:
        self._timer.cancel()
        self._held.discard(self)

    def _end(self) -> None:
        self._held.discard(self)
        self._transport.close()
