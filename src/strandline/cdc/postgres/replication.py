"""A replication connection that a thread of its own reads, so that PostgreSQL hears from us however slow the log is.

The thread puts what arrives into a bounded queue and stops reading while that is full; status updates flow all the
time, because a server ends a connection that is silent for `wal_sender_timeout`.

    w  data       start i64, end i64, time i64, message of pgoutput
    k  keepalive  end i64, time i64, whether a reply is wanted u8
    r  status     written i64, flushed i64, applied i64, time i64, whether a reply is wanted u8
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from struct import Struct
from typing import Any, Final

import psycopg
from psycopg.pq import ExecStatus

from strandline.cdc.postgres.connection import failure_of, literal, lsn_text, quoted
from strandline.cdc.postgres.pgoutput import EPOCH_US
from strandline.cdc.postgres.settings import PostgresCdcConfig
from strandline.connect.failures import ConnectFailed, RetriableFailure

QUEUE_BYTES_MAX: Final = 8 * 1024 * 1024
SILENCE_S_MAX: Final = 60.0
"""How long a server may be silent, though it was asked for a reply."""
CLOSE_S_MAX: Final = 5.0
SHUTDOWN_S_MAX: Final = 5.0
"""How long a server that shuts down may wait for the log to take its last changes."""
SHUTDOWN_PINGS: Final = 50
"""A server asks so often, one time behind the other, only when it shuts down."""
KEEPALIVE: Final = ord("k")
"""The first byte of what stands in the queue for a keepalive; pgoutput has no such message."""
REPLY_WANTED: Final = b"k\x01"
NO_REPLY_WANTED: Final = b"k\x00"

_DATA: Final = ord("w")
_DATA_HEADER_BYTES: Final = 25
_U64: Final = Struct("!Q").unpack_from
_STATUS: Final = Struct("!cQQQqB").pack

Received = tuple[int, bytes]
"""A position of the WAL and a message of pgoutput, or the end of the WAL so far and a keepalive."""


class ReplicationStream:
    """The changes of a slot, from a position on. One thread takes them; any thread confirms."""

    def __init__(self, connection: psycopg.Connection[Any], config: PostgresCdcConfig, start_lsn: int) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._config = config
        self._start_lsn = start_lsn
        self._interval_s = config.status_update_interval_ms / 1000
        self._queue: list[Received] = []
        self._queued_bytes = 0
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._is_closing = False
        self._received_lsn = start_lsn
        self._confirmed_lsn = start_lsn
        self._sent_lsn = 0
        self._pings = 0
        self._pinged_lsn = 0
        self._pinged_s = 0.0
        self._waking = threading.Lock()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name=f"wal-{config.slot_name}", daemon=True)

    def start(self, parameters: dict[str, str]) -> None:
        """Begin to stream. `parameters` are those of pgoutput."""
        given = ", ".join(f"{quoted(name)} {literal(value)}" for name, value in parameters.items())
        slot = quoted(self._config.slot_name)
        result = self._pgconn.exec_(
            f"START_REPLICATION SLOT {slot} LOGICAL {lsn_text(self._start_lsn)} ({given})".encode()
        )
        if result.status != ExecStatus.COPY_BOTH:
            raise failure_of(psycopg.errors.error_from_result(result), self._config)
        self._thread.start()

    def take(self, timeout_s: float) -> list[Received]:
        """Return everything that has arrived; wait for it if there is nothing. Raise how the stream has failed."""
        with self._changed:
            if not self._queue and self._failure is None:
                self._changed.wait(timeout_s)
            taken, self._queue = self._queue, []
            was_full = self._queued_bytes >= QUEUE_BYTES_MAX
            self._queued_bytes = 0
            if not taken and self._failure is not None:
                raise self._failure
        if was_full:
            self._wake()
        return taken

    @property
    def is_empty(self) -> bool:
        """Whether nothing is at hand."""
        return not self._queue

    def confirm(self, lsn: int) -> None:
        """Have PostgreSQL learn that everything before a position is safe."""
        if lsn > self._confirmed_lsn:
            self._confirmed_lsn = lsn
            self._wake()

    def close(self) -> None:
        """Send the last status, and end the connection."""
        self._is_closing = True
        self._wake()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_S_MAX)
        if not self._thread.is_alive():
            self._connection.close()
            with self._waking:
                if self._wake_write >= 0:
                    os.close(self._wake_read)
                    os.close(self._wake_write)
                    self._wake_read = self._wake_write = -1

    def fail(self, failure: ConnectFailed) -> None:
        """End the stream; `take` raises this."""
        with self._changed:
            self._failure = self._failure or failure
            self._queue.clear()
            self._changed.notify_all()
        self.close()

    def _wake(self) -> None:
        # Under a lock: the number of a closed file may be that of another one.
        with self._waking:
            if self._wake_write >= 0:
                with contextlib.suppress(BlockingIOError):
                    os.write(self._wake_write, b".")

    def _run(self) -> None:
        failure: BaseException
        try:
            self._pump()
            failure = RetriableFailure("the replication stream was closed")
        except psycopg.Error as error:
            failure = failure_of(error, self._config)
        except BaseException as error:  # raised in the thread that takes
            failure = error
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def _pump(self) -> None:
        socket = self._pgconn.socket
        both, only_wake = select.poll(), select.poll()
        for each in (both, only_wake):
            each.register(self._wake_read, select.POLLIN)
        both.register(socket, select.POLLIN)
        status_s = heard_s = time.monotonic()
        self._send_status(is_reply_wanted=False)
        while not self._is_closing:
            now_s = time.monotonic()
            is_due = now_s >= status_s + self._interval_s
            if is_due or self._sent_lsn != self._confirmed_lsn:
                self._send_status(is_reply_wanted=is_due and now_s > heard_s + self._interval_s)
                status_s = now_s
            is_full = self._queued_bytes >= QUEUE_BYTES_MAX
            if is_full:
                heard_s = now_s
            elif now_s > heard_s + SILENCE_S_MAX + 2 * self._interval_s:
                raise RetriableFailure(f"PostgreSQL at {self._config.address} has been silent for {SILENCE_S_MAX:g} s")
            for ready, _ in (only_wake if is_full else both).poll(
                1000 * max(0.01, status_s + self._interval_s - now_s)
            ):
                if ready == self._wake_read:
                    os.read(self._wake_read, 4096)
                else:
                    heard_s = time.monotonic()
                    if self._receive():
                        self._send_status(is_reply_wanted=False)
        self._send_status(is_reply_wanted=False)

    def _receive(self) -> bool:
        """Take what the socket has into the queue. Return whether the server waits for a reply."""
        pgconn = self._pgconn
        pgconn.consume_input()
        received: list[Received] = []
        is_reply_wanted = False
        size = 0
        while True:
            length, data = pgconn.get_copy_data(1)
            if length == 0:
                break
            if length < 0:
                self._deliver(received, size)
                raise self._ended()
            message = bytes(data)
            if message[0] == _DATA:
                received.append((_U64(message, 1)[0], message[_DATA_HEADER_BYTES:]))
                size += length
            elif message[0] == KEEPALIVE:
                is_wanted = message[17] == 1
                is_reply_wanted |= is_wanted
                keepalive = _U64(message, 1)[0], REPLY_WANTED if is_wanted else NO_REPLY_WANTED
                if is_wanted:
                    self._count_ping(keepalive[0])
                if received and received[-1][1] == keepalive[1]:
                    received[-1] = keepalive
                else:
                    received.append(keepalive)
        self._deliver(received, size)
        return is_reply_wanted

    def _count_ping(self, lsn: int) -> None:
        """Raise RetriableFailure if the server shuts down and waits for this side longer than it should have to."""
        now_s = time.monotonic()
        if lsn != self._pinged_lsn or now_s > self._pinged_s + 2 * SHUTDOWN_S_MAX:
            self._pings, self._pinged_lsn, self._pinged_s = 0, lsn, now_s
        self._pings += 1
        if self._pings > SHUTDOWN_PINGS and now_s > self._pinged_s + SHUTDOWN_S_MAX:
            raise RetriableFailure(
                f"PostgreSQL at {self._config.address} shuts down, and the log has not its last changes"
            )

    def _deliver(self, received: list[Received], size: int) -> None:
        if received:
            self._received_lsn = max(self._received_lsn, received[-1][0])
            with self._changed:
                if self._failure is not None:
                    # `fail` has cleared the queue, so these would come behind a hole.
                    return
                if self._queue and self._queue[-1][1] == received[0][1] and received[0][1][0] == KEEPALIVE:
                    # Keepalives may come while nothing takes them; the last one says it all.
                    self._queue.pop()
                self._queue += received
                self._queued_bytes += size
                self._changed.notify_all()

    def _ended(self) -> Exception:
        """Return why the server has ended the stream."""
        result = self._pgconn.get_result()
        if result is not None and result.status == ExecStatus.FATAL_ERROR:
            return psycopg.errors.error_from_result(result)
        return RetriableFailure(f"PostgreSQL at {self._config.address} has ended the replication stream")

    def _send_status(self, *, is_reply_wanted: bool) -> None:
        confirmed = self._confirmed_lsn
        now_us = time.time_ns() // 1000 - EPOCH_US
        written = max(self._received_lsn, confirmed)
        self._pgconn.put_copy_data(_STATUS(b"r", written, confirmed, confirmed, now_us, is_reply_wanted))
        self._pgconn.flush()
        self._sent_lsn = confirmed
