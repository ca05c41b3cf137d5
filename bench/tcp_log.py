"""The least log one could write: one thread, one client, append = write + fsync, fetch by offset from a list in memory.

    request    kind uint8 (0 append, 1 fetch) | length uint32 or offset uint64 | value
    answer     append: offset uint64            fetch: length uint32 | value

Run as `python -m bench.tcp_log FILE`: prints its port, serves one client, leaves when it hangs up.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import BinaryIO

APPEND, FETCH = 0, 1


def serve(path: str) -> None:
    log = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    index: list[tuple[int, int]] = []
    end = 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        client, _ = listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        requests: BinaryIO = client.makefile("rb")
        while kind := requests.read(1):
            if kind[0] == APPEND:
                (length,) = struct.unpack(">I", requests.read(4))
                os.write(log, requests.read(length))
                os.fsync(log)
                index.append((end, length))
                end += length
                client.sendall(struct.pack(">Q", len(index) - 1))
            else:
                (offset,) = struct.unpack(">Q", requests.read(8))
                position, length = index[offset]
                client.sendall(struct.pack(">I", length) + os.pread(log, length, position))


if __name__ == "__main__":
    serve(sys.argv[1])
