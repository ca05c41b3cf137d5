"""The frame of a member that is a Python program: its argument, its standard input and its standard output."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

from tests.clients.groups.telling import Teller, Wanted


def run(member: Callable[[Wanted, Teller, threading.Event], None]) -> None:
    """Be a member until standard input ends."""
    stopping = threading.Event()

    def listen() -> None:
        # Past the buffer of `sys.stdin`, whose lock a thread must not hold when the interpreter ends.
        while os.read(sys.stdin.fileno(), 1024):
            pass
        stopping.set()

    threading.Thread(target=listen, daemon=True).start()
    member(Wanted.of(sys.argv[1]), Teller(sys.stdout.fileno()), stopping)
