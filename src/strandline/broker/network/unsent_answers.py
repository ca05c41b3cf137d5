"""The memory of answers that peers do not take, of all connections of a listener together.

Batches wait in their files. Those of an object store wait in blocks of a cache, which they hold. All other answers are
bytes: one for each connection, because no further request of a connection is started meanwhile, or those of the
Produces that wait for their commit. Thousands of connections that ask for the metadata of thousands of topics and read
nothing could fill the memory, so beyond a budget the connection that took nothing for the longest time is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from strandline.broker.network.limited_connection import LimitedConnection
    from strandline.broker.network.transport import Piece

UNSENT_BYTES_MAX: Final = 256 * 1024 * 1024
VIEWS_SHARE: Final = 4
"""Up to this part of the budget views are sent as they are. Each holds a whole block of a cache; a copy does not."""


class UnsentAnswers:
    def __init__(
        self, close: Callable[[LimitedConnection], object], call_soon: Callable[[Callable[[], object]], object]
    ) -> None:
        self.bytes_max = UNSENT_BYTES_MAX
        self.size_bytes = 0
        self._close = close
        self._call_soon = call_soon
        self._is_due = False
        self._sizes: dict[LimitedConnection, int] = {}
        """The connection that took nothing for the longest time comes first."""

    def note(self, connection: LimitedConnection, size_bytes: int) -> None:
        """Count what a connection holds now; it keeps its place."""
        self.size_bytes += size_bytes - self._sizes.get(connection, 0)
        self._sizes[connection] = size_bytes
        if self.size_bytes > self.bytes_max and not self._is_due:
            # On a turn of its own: the handler that sent an answer may be in the middle of sending others.
            self._is_due = True
            self._call_soon(self._make_room)

    def packed(self, pieces: list[Piece]) -> list[Piece]:
        """Return the pieces of an answer as they are to be sent: without views, if much waits already."""
        if self.size_bytes * VIEWS_SHARE <= self.bytes_max:
            return pieces
        return [bytes(each) if isinstance(each, memoryview) else each for each in pieces]

    def forget(self, connection: LimitedConnection) -> None:
        """The connection took everything, or it is closed."""
        self.size_bytes -= self._sizes.pop(connection, 0)

    def _make_room(self) -> None:
        self._is_due = False
        while self.size_bytes > self.bytes_max:
            self._close(next(iter(self._sizes)))
