"""Notifies requests and channels that wait for a change of the metadata log."""

from __future__ import annotations

from collections.abc import Callable

from strandline.runtime.runtime import Runtime


class QuorumNews:
    """The parts that wait until the log has grown, more of it is committed, or another node leads."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiters: dict[Callable[[], object], None] = {}
        self._is_due = False

    def subscribe(self, look: Callable[[], object]) -> None:
        """Call `look` after each change, until `unsubscribe`."""
        self._waiters[look] = None

    def unsubscribe(self, look: Callable[[], object]) -> None:
        """Call `look` no more."""
        self._waiters.pop(look, None)

    def announce(self) -> None:
        """Call all that wait, once, on the next turn of the loop."""
        if self._waiters and not self._is_due:
            self._is_due = True
            self._runtime.call_soon(self._call)

    def _call(self) -> None:
        self._is_due = False
        for look in list(self._waiters):
            look()
