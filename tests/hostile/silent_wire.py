"""The other side of a connection, without a socket."""

from __future__ import annotations


class Wire:
    """A transport that only remembers what it was told."""

    peer_host = "somewhere"
    is_congested = False
    unsent_bytes = 0

    def __init__(self) -> None:
        self.reading = True
        self.closed = False

    def send(self, data: bytes) -> None:
        pass

    def send_pieces(self, pieces: list[object]) -> None:
        pass

    def pause(self) -> None:
        self.reading = False

    def resume(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True
