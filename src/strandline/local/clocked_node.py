"""Runs a broker whose clock its parent moves, in a process that does not outlive the parent.

    python -m strandline.local.clocked_node --clock EPOCH_MS [the arguments of strandline.broker]

The parent writes `advance SECONDS` to our standard input. When the clock has moved and the work that became due is
done, we answer with a line `advanced` on standard output. After a line `run` (the answer is `running`), and when the
parent is gone, the clock runs with real time, because a broker that stops waits for some things only for a while.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading

from strandline.broker import main as broker
from strandline.local.bound_child import follow_parent
from strandline.runtime.virtual_runtime import VirtualRuntime


class ClockCommands:
    """The commands of the parent, from the thread that reads them to the loop that obeys."""

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._runtime: VirtualRuntime | None = None
        self._is_there = threading.Event()

    def runtime(self, loop: asyncio.AbstractEventLoop) -> VirtualRuntime:
        self._runtime = VirtualRuntime(loop, start_ms=self._start_ms)
        self._is_there.set()
        return self._runtime

    def follow(self, stdin_fd: int) -> None:
        """Obey the parent until it is gone, then end this process."""
        with os.fdopen(stdin_fd, closefd=False) as commands:
            for line in commands:
                runtime = self._wait_runtime()
                word, *seconds = line.split()
                if word == "advance":
                    asyncio.run_coroutine_threadsafe(runtime.advance(float(seconds[0])), runtime.loop).result()
                    print("advanced", flush=True)
                else:
                    assert word == "run", word
                    runtime.loop.call_soon_threadsafe(runtime.run)
                    print("running", flush=True)
        runtime = self._wait_runtime()
        runtime.loop.call_soon_threadsafe(runtime.run)
        follow_parent(stdin_fd)

    def _wait_runtime(self) -> VirtualRuntime:
        self._is_there.wait()
        assert self._runtime is not None
        return self._runtime


def main() -> int:
    option, start_ms, *arguments = sys.argv[1:]
    assert option == "--clock", "usage: --clock EPOCH_MS and the arguments of strandline.broker"
    commands = ClockCommands(int(start_ms))
    # The thread sleeps in read(2) without the interpreter lock, so it costs the node nothing.
    threading.Thread(target=commands.follow, args=(0,), name="follow-parent", daemon=True).start()
    return broker.main(arguments, runtime_of=commands.runtime)


if __name__ == "__main__":
    sys.exit(main())
