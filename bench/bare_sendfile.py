"""The floor of a fetch: a loop that sends files from the page cache to a socket, and does nothing else.

`cpu_ms_per_mb` runs it as a process of its own and reads what it sends, as one consumer would.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

MB = 1_000_000

PIECE_BYTES = 1 << 20
"""What a consumer asks of a partition at a time, by default."""


def cpu_ms_per_mb(files: Sequence[Path]) -> float:
    """Return the CPU time, user and system, that it takes to send a MB of these files."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = [sys.executable, "-SP", __file__, str(port), *map(str, files)]
        sender = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            listener.settimeout(30.0)
            connection, _ = listener.accept()
            with connection:
                received = _drain(connection)
            cpu_s = float(sender.communicate(timeout=30.0)[0])
        finally:
            sender.kill()
            sender.wait()
    return cpu_s * 1e3 / (received / MB)


def _drain(connection: socket.socket) -> int:
    received, room = 0, bytearray(PIECE_BYTES)
    while size_bytes := connection.recv_into(room):
        received += size_bytes
    return received


def send(port: int, files: Sequence[str]) -> float:
    """Send the files, one after the other; return the CPU seconds."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        start_s = time.process_time()
        for file in files:
            with open(file, "rb") as source:
                at, end = 0, os.fstat(source.fileno()).st_size
                while at < end:
                    at += os.sendfile(connection.fileno(), source.fileno(), at, min(PIECE_BYTES, end - at))
        return time.process_time() - start_s


if __name__ == "__main__":
    print(send(int(sys.argv[1]), sys.argv[2:]))
