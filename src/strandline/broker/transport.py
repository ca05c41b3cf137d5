"""What a connection asks of whatever carries its bytes: a plain socket, TLS, or a simulated network."""

from __future__ import annotations

from typing import Protocol

from strandline.log.log_slice import LogSlice

Piece = bytes | LogSlice
"""A part of an answer: bytes, or batches that go from file to socket without passing through here."""


class Transport(Protocol):
    peer_host: str

    @property
    def peer_port(self) -> int:
        """0 if the peer is gone."""

    is_congested: bool
    """Whether bytes wait to be sent; no further request is started meanwhile."""

    def send(self, data: bytes) -> None: ...

    def send_pieces(self, pieces: list[Piece]) -> None: ...

    def pause(self) -> None:
        """Stop reading; the peer's own buffers hold it back."""

    def resume(self) -> None: ...

    def close(self) -> None: ...
