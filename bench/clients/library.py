"""Exercises `strandline.Log` in a process of its own, beside a plain write-and-fdatasync loop and beside the TCP log.

The appends are durable each way. The reads go over single-record batches, and every value is compared with the written
one.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import uvloop

from bench.clients.turn import finish, task, wait_for_sign
from bench.tcp_log import APPEND, FETCH
from strandline import Log

VALUE_BYTES = 100
BUILDERS = 4_096
"""Callers that append at once while the log to be read is built: one flush then serves thousands of appends."""


def value_of(offset: int) -> bytes:
    return b"%-*d" % (VALUE_BYTES, offset)


def plain_appends_per_s(directory: Path, count: int) -> float:
    """What the disk allows a single writer: write, fdatasync, next."""
    descriptor = os.open(directory / "plain.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        start = time.perf_counter()
        for offset in range(count):
            os.write(descriptor, value_of(offset))
            os.fdatasync(descriptor)
        return count / (time.perf_counter() - start)
    finally:
        os.close(descriptor)


async def log_appends_per_s(directory: Path, count: int, *, callers: int) -> float:
    async with Log(directory / f"callers-{callers}") as log:

        async def caller(appends: int) -> None:
            for offset in range(appends):
                await log.append(value_of(offset))

        start = time.perf_counter()
        await asyncio.gather(*(caller(count // callers) for _ in range(callers)))
        return count // callers * callers / (time.perf_counter() - start)


def tcp_log_per_s(directory: Path, count: int) -> tuple[float, float]:
    """Appends and fetches per second of the TCP log with its one client."""
    command = [sys.executable, "-m", "bench.tcp_log", str(directory / "tcp.log")]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        port = int(server.stdout.readline())
        # The file object holds the connection too: the server leaves only when both are closed.
        with socket.create_connection(("127.0.0.1", port)) as client, client.makefile("rb") as answers:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            start = time.perf_counter()
            for offset in range(count):
                client.sendall(struct.pack(">BI", APPEND, VALUE_BYTES) + value_of(offset))
                assert struct.unpack(">Q", answers.read(8)) == (offset,)
            appends_per_s = count / (time.perf_counter() - start)
            offsets = random.Random(1).choices(range(count), k=max(count, 20_000))
            start = time.perf_counter()
            for offset in offsets:
                client.sendall(struct.pack(">BQ", FETCH, offset))
                (length,) = struct.unpack(">I", answers.read(4))
                assert answers.read(length) == value_of(offset)
            return appends_per_s, len(offsets) / (time.perf_counter() - start)
    finally:
        server.wait(10)
        server.stdout.close()


async def reads_per_s(directory: Path, batches: int, reads: int, rounds: int) -> list[dict[str, float]]:
    """Build the log once and read it in every round."""
    async with Log(directory / "reads") as log:
        numbers = iter(range(batches))

        async def builder() -> None:
            for number in numbers:
                # The log hands offsets out in the order of the calls, so the number becomes the offset.
                await log.append(value_of(number))

        await asyncio.gather(*(builder() for _ in range(BUILDERS)))

        expected = [value_of(offset) for offset in range(batches)]
        offsets = random.Random(1).choices(range(batches), k=reads)
        return [
            {
                "sequential_per_s": await _sequential_per_s(log, expected),
                "random_per_s": await _random_per_s(log, offsets, expected),
                "random_nowait_per_s": _random_nowait_per_s(log, offsets, expected),
            }
            for _ in range(rounds)
        ]


async def _sequential_per_s(log: Log, expected: list[bytes]) -> float:
    start = time.perf_counter()
    offset = 0
    async for record in log.scan(0):
        if record.value != expected[offset]:
            raise SystemExit(f"offset {offset} holds {record.value!r}")
        offset += 1
    if offset != len(expected):
        raise SystemExit(f"the scan ended after {offset} of {len(expected)} records")
    return offset / (time.perf_counter() - start)


async def _random_per_s(log: Log, offsets: list[int], expected: list[bytes]) -> float:
    start = time.perf_counter()
    for offset in offsets:
        record = await log.read(offset)
        if record.value != expected[offset]:
            raise SystemExit(f"offset {offset} holds {record.value!r}")
    return len(offsets) / (time.perf_counter() - start)


def _random_nowait_per_s(log: Log, offsets: list[int], expected: list[bytes]) -> float:
    start = time.perf_counter()
    for offset in offsets:
        record = log.read_nowait(offset)
        if record is None or record.value != expected[offset]:
            raise SystemExit(f"offset {offset} holds {record!r}")
    return len(offsets) / (time.perf_counter() - start)


def main() -> None:
    options = task()
    directory = Path(options["directory"])
    directory.mkdir(parents=True)
    wait_for_sign()
    if options["part"] == "reads":
        reads = reads_per_s(directory, options["batches"], options["reads"], options["rounds"])
        finish(rounds=uvloop.run(reads))
        return
    count = options["appends"]
    tcp_appends, tcp_fetches = tcp_log_per_s(directory, count)
    measured = {
        "tcp_appends": tcp_appends,
        "tcp_fetches": tcp_fetches,
        "plain": plain_appends_per_s(directory, count),
        "one": uvloop.run(log_appends_per_s(directory, count, callers=1)),
        # Enough that 64 callers take about as long as the loop does.
        "many": uvloop.run(log_appends_per_s(directory, count * 16, callers=64)),
    }
    finish(rounds=[measured])


if __name__ == "__main__":
    main()
