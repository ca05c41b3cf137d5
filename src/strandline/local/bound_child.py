"""Runs a module as `python -m` would, in a process that does not outlive its parent.

    python -m strandline.local.bound_child strandline.broker --data DIR ...

The parent holds the write end of our standard input and never writes; when the parent dies, however it dies, the kernel
closes that end and we read end-of-file. Linux's PR_SET_PDEATHSIG looks simpler but fires when the *thread* that started
us ends, which in a test suite is not the end of the test.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

SHUTDOWN_TIMEOUT_S = 10.0


def follow_parent(stdin_fd: int) -> None:
    """Block until the parent is gone, then end this process: cleanly if possible, by force if that hangs."""
    while os.read(stdin_fd, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SHUTDOWN_TIMEOUT_S)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python -m strandline.local.bound_child MODULE [ARGUMENT ...]")
    # The thread sleeps in read(2) without the interpreter lock, so it costs the module nothing.
    threading.Thread(target=follow_parent, args=(0,), name="follow-parent", daemon=True).start()
    module = sys.argv[1]
    del sys.argv[1]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
