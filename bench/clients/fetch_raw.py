"""Reads a topic through bare sockets, each with one Fetch in flight, up to the `ends` of its partitions.

Each of `readers` reads one partition after the other, `passes` times, so that it asks for one partition at a time. It
looks at the headers of batches and at nothing else, so that the rate is the broker's. A batch that is cut at the end is
asked for again, as by every client.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import Any

from bench.clients.turn import finish, task, wait_for_sign
from bench.wire import Connection, frame, string

FETCH, VERSION = 1, 4
WAIT_MS = 1000
_SIZE = struct.Struct(">i")
_BATCH = struct.Struct(">qi")
_LAST_DELTA_AT = 23
_PREFIX_BYTES = 12
_HEADER_BYTES = 61


class Lane(threading.Thread):
    def __init__(self, options: dict[str, Any], number: int, start: threading.Event) -> None:
        super().__init__(daemon=True)
        host, _, port = options["bootstrap"].partition(":")
        self.connection = Connection(host, int(port))
        ends = list(enumerate(options["ends"]))
        self.work = ends[number :: options["readers"]] * options["passes"]
        self.topic, self.sign, self.fetch_bytes = options["topic"], start, options["fetch_bytes"]
        self.buffer = memoryview(bytearray(self.fetch_bytes + (1 << 20)))
        self.partition = self.offset = self.bytes = 0
        self.failure = ""

    def run(self) -> None:
        self.sign.wait()
        try:
            for partition, end in self.work:
                self.partition, self.offset = partition, 0
                while self.offset < end:
                    self._fetch()
        except (OSError, struct.error) as error:
            self.failure = f"{type(error).__name__}: {error}"

    def _fetch(self) -> None:
        body = struct.pack(">iiiib", -1, WAIT_MS, 1, self.fetch_bytes, 0)
        body += struct.pack(">i", 1) + string(self.topic)
        body += struct.pack(">iiqi", 1, self.partition, self.offset, self.fetch_bytes)
        self.connection.socket.sendall(frame(FETCH, VERSION, body))
        size = _SIZE.unpack(self._receive(4))[0]
        answer = self._receive(size)
        # correlation id, throttle time, topics, name, partitions, index
        at = 4 + 4 + 4 + len(string(self.topic)) + 4 + 4
        error, _, _, aborted = struct.unpack_from(">hqqi", answer, at)
        if error:
            raise OSError(f"partition {self.partition} at {self.offset}: error code {error}")
        at += 22 + 16 * max(0, aborted)
        end = at + 4 + _SIZE.unpack_from(answer, at)[0]
        at += 4
        while end - at >= _HEADER_BYTES:
            base, length = _BATCH.unpack_from(answer, at)
            if end - at < length + _PREFIX_BYTES:
                break
            self.offset = base + _SIZE.unpack_from(answer, at + _LAST_DELTA_AT)[0] + 1
            self.bytes += length + _PREFIX_BYTES
            at += length + _PREFIX_BYTES

    def _receive(self, size: int) -> memoryview:
        got = 0
        while got < size:
            part = self.connection.socket.recv_into(self.buffer[got:size], 0, socket.MSG_WAITALL)
            if not part:
                raise OSError("the server closed the connection")
            got += part
        return self.buffer[:size]


def main() -> None:
    options = task()
    sign = threading.Event()
    lanes = [Lane(options, number, sign) for number in range(options["readers"])]
    for lane in lanes:
        # The wait for a timeout of a socket would be a second system call for each that receives.
        lane.connection.socket.settimeout(None)
        lane.start()
    wait_for_sign()

    start = time.perf_counter()
    sign.set()
    for lane in lanes:
        lane.join()
    seconds = time.perf_counter() - start
    failures = [lane.failure for lane in lanes if lane.failure]
    if failures:
        raise SystemExit(f"{len(failures)} partitions failed: {failures[0]}")
    finish(seconds=seconds, bytes=sum(lane.bytes for lane in lanes))


if __name__ == "__main__":
    main()
