"""Work that runs until it is told to stop, here or on a thread of its own."""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, Self, TypeVar

log = logging.getLogger("strandline.queue")

WorkT = TypeVar("WorkT")


class BackgroundWork(Generic[WorkT]):
    """What consumers with handlers have in common: starting, stopping, and a queue of what handlers have ended."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._done: SimpleQueue[WorkT | None] = SimpleQueue()
        """What a handler has ended; None wakes the loop."""
        self._is_stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Work until `stop`."""
        raise NotImplementedError

    def start(self) -> Self:
        """Work on a thread of its own until `stop`."""
        self._thread = threading.Thread(target=self._run_kept, name=self._name, daemon=True)
        self._thread.start()
        return self

    def stop(self, *, wait: bool = True) -> None:
        """Finish what runs, and leave the group. Raises what ended the work, if it failed.

        Without `wait` it only begins; so several can stop at a time. Call it again to wait.
        """
        self._is_stopping.set()
        self._done.put(None)
        if not wait:
            return
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
            if self._failure is not None:
                raise self._failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _run_kept(self) -> None:
        try:
            self.run()
        except BaseException as error:
            log.exception("%s ended", self._name)
            self._failure = error
