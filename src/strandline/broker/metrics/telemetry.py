"""Takes in what clients push: one push at a time is inflated, off the loop, and read a share per turn.

So a thousand clients that push at once take the memory of one inflated push and of a few that wait, and others are
served in between. Where more wait than there is room for, clients are told to come later.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from strandline.codec.compression import Compression, decompress
from strandline.errors import BatchTooLarge, ErrorCode, PeerError, StrandlineError
from strandline.observability.client_series import ClientSeries
from strandline.observability.client_telemetry import ClientTelemetry
from strandline.observability.otlp import OtlpReader, Point
from strandline.runtime.runtime import Runtime

log = logging.getLogger("strandline.telemetry")

INFLATED_FACTOR_MAX: Final = 8
"""What a push may become, as a multiple of telemetry.max.bytes."""
INFLATED_BYTES_MAX: Final = 32 * 1024 * 1024
"""And never more than this, whatever the setting says."""
WAITING_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of pushes that wait for their turn; beyond, a client is told that it came too early."""
READ_SHARE_S_MAX: Final = 0.002
"""What reading a push may take of one turn of the loop."""

OnTaken = Callable[[ErrorCode], object]


class _Push(NamedTuple):
    instance_id: UUID
    client_id: str | None
    expires_ms: int
    codec: int
    payload: bytes
    size_bytes_max: int
    """`telemetry.max.bytes` when it came."""
    on_taken: OnTaken


class Telemetry:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.clients = ClientTelemetry()
        self.store = ClientSeries()
        self.image_version = -1
        """The version of the cluster's image whose subscriptions the clients were told."""
        self.pushes = 0
        self.refused = 0
        self._waiting: deque[_Push] = deque()
        self._waiting_bytes = 0
        self._is_busy = False

    def take(
        self,
        instance_id: UUID,
        client_id: str | None,
        codec: int,
        payload: bytes,
        *,
        expires_ms: int,
        size_bytes_max: int,
        on_taken: OnTaken,
    ) -> None:
        """Read the push when its turn comes, then call `on_taken` with the error code of the answer."""
        push = _Push(instance_id, client_id, expires_ms, codec, payload, size_bytes_max, on_taken)
        if not push.payload:
            push.on_taken(ErrorCode.NONE)
            return
        if self._is_busy and self._waiting_bytes + len(push.payload) > WAITING_BYTES_MAX:
            self.refused += 1
            push.on_taken(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            return
        self._waiting.append(push)
        self._waiting_bytes += len(push.payload)
        if not self._is_busy:
            self._next()

    def _next(self) -> None:
        self._is_busy = bool(self._waiting)
        if not self._is_busy:
            return
        push = self._waiting.popleft()
        self._waiting_bytes -= len(push.payload)
        if push.codec == Compression.NONE:
            self._inflated(push, push.payload, None)
            return
        limit = min(INFLATED_BYTES_MAX, push.size_bytes_max * INFLATED_FACTOR_MAX)
        self._runtime.in_thread(
            partial(decompress, push.codec, push.payload, size_bytes_max=limit), partial(self._inflated, push)
        )

    def _inflated(self, push: _Push, payload: bytes | None, error: BaseException | None) -> None:
        if payload is None:
            assert error is not None
            self._done(push, error)
            return
        self.store.begin(push.instance_id, push.client_id, expires_ms=push.expires_ms)
        self._read(push, OtlpReader(payload).points())

    def _read(self, push: _Push, points: Iterator[Point | None]) -> None:
        until = self._runtime.monotonic() + READ_SHARE_S_MAX
        try:
            for point in points:
                if point is not None:
                    self.store.add(push.instance_id, point)
                if self._runtime.monotonic() > until:
                    self._runtime.call_soon(self._read, push, points)
                    return
        except PeerError as error:
            self._done(push, error)
            return
        self._done(push, None)

    def _done(self, push: _Push, error: BaseException | None) -> None:
        code = _code_of(error)
        self.pushes += 1
        if code is not ErrorCode.NONE:
            self.refused += 1
            log.debug("metrics of client instance %s were not taken: %s", push.instance_id, error)
        try:
            push.on_taken(code)
        finally:
            self._runtime.call_soon(self._next)


def _code_of(error: BaseException | None) -> ErrorCode:
    """Too large is told apart: a client may send less the next time, and stops for good after INVALID_RECORD."""
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, BatchTooLarge):
        return ErrorCode.TELEMETRY_TOO_LARGE
    if not isinstance(error, StrandlineError):
        log.error("metrics of a client could not be inflated", exc_info=error)
    return ErrorCode.INVALID_RECORD
