"""Collects the operations of many client threads into one history, and lets a test wait for progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from strandline.testing.history import Op


class Recorder:
    """One history under construction. Every method may be called from any thread."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.now_ns = now_ns
        self._ops: list[Op] = []
        self._processes = 0
        self._acknowledged = 0
        self._changed = threading.Condition()

    def new_process(self) -> int:
        """Return a number for one client instance; a client that is replaced after a failure takes a new one."""
        with self._changed:
            self._processes += 1
            return self._processes

    def add(self, op: Op) -> None:
        with self._changed:
            self._ops.append(op)
            if op.f == "send" and op.outcome == "ok":
                self._acknowledged += 1
            self._changed.notify_all()

    @property
    def acknowledged(self) -> int:
        """Sends that the broker has acknowledged so far."""
        with self._changed:
            return self._acknowledged

    def wait_acknowledged(self, count: int, *, timeout_s: float) -> None:
        """Wait until `count` sends in all have been acknowledged, which proves that the broker serves again."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._acknowledged >= count, timeout_s):
                raise TimeoutError(f"{self._acknowledged} of {count} sends acknowledged within {timeout_s:g} s")

    def wait_op(self, wanted: Callable[[Op], bool], *, timeout_s: float) -> Op:
        """Wait for the next operation that is `wanted`; what completed before the call does not count."""
        with self._changed:
            seen = len(self._ops)
            deadline_ns = self.now_ns() + int(timeout_s * 1e9)
            while True:
                for op in self._ops[seen:]:
                    if wanted(op):
                        return op
                seen = len(self._ops)
                remaining_s = (deadline_ns - self.now_ns()) / 1e9
                if remaining_s <= 0 or not self._changed.wait(remaining_s):
                    raise TimeoutError(f"no such operation completed within {timeout_s:g} s")

    def ops(self) -> list[Op]:
        """Return the history so far, in the order of completion."""
        with self._changed:
            return list(self._ops)
