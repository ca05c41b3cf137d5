"""A node of thousands of partitions in this process, and what its loop has to do for retention.

The logs are written and the node is started again, so that it knows of their segments what files know. Then it looks
twice: when nothing is to go, and, after the clock has moved on by two hours, when two segments of every partition are.
Loop time is what the loop's thread computed from the beginning of the look until all is deleted, less what it computes
when nothing happens; a stall is how much later than asked a timer of 5 ms came.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.clients.turn import finish, task, wait_for_sign
from bench.wire import Connection
from strandline.broker.main import node_on, spare_the_collector, stop
from strandline.broker.node import Node
from strandline.codec.columns import Record, encode_batch
from strandline.config.node_config import BrokerConfig

TOPIC = "many"
HOUR_MS = 3_600_000
BEAT_S = 0.005
SEGMENT_BYTES = 400
SETTINGS = {
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "retention.ms": str(HOUR_MS),
    "file.delete.delay.ms": "0",
    "message.timestamp.after.max.ms": str(24 * HOUR_MS),
    "flush.mode": "async",
}
VALUE = b"v" * 200
GOING, STAYING = 2, 2
"""Segments of each partition that are past retention after the two hours, and others; one batch each."""


class Beat:
    """A timer that comes again and again, and how late it was at worst."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.longest_s = 0.0
        self._due = 0.0
        self._next()

    def _next(self) -> None:
        self._due = self._loop.time() + BEAT_S
        self._timer = self._loop.call_at(self._due, self._beat)

    def stop(self) -> float:
        """The longest it was late, in ms."""
        self._timer.cancel()
        return self.longest_s * 1000

    def _beat(self) -> None:
        self.longest_s = max(self.longest_s, self._loop.time() - self._due)
        self._next()


async def until(condition: Callable[[], object]) -> None:
    # Seldom, for it is the measured loop that looks.
    while not condition():  # noqa: ASYNC110  # nobody tells when a thread has renamed the last file
        await asyncio.sleep(0.05)


def started(loop: asyncio.AbstractEventLoop, data: Path) -> Node:
    given = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "http.listener": "off",
        "log.retention.check.interval.ms": str(HOUR_MS),
    }
    return node_on(loop, data, BrokerConfig.load("", given))


async def fill(node: Node, partitions: int, clock: dict[str, int]) -> None:
    """A batch a segment: the first ones of now, the others of three hours later."""
    port = node.start()[1]
    loop = asyncio.get_running_loop()

    def create() -> None:
        with Connection("127.0.0.1", port, timeout_s=300) as connection:
            connection.create_topic(TOPIC, partitions, SETTINGS)

    await loop.run_in_executor(None, create)
    await until(lambda: all(node.partition(TOPIC, index) is not None for index in range(partitions)))
    now_ms = clock["start"]
    for index in range(partitions):
        partition = node.partition(TOPIC, index)
        assert partition is not None
        for number in range(GOING + STAYING):
            time_ms = now_ms if number < GOING else now_ms + 3 * HOUR_MS
            batch = bytearray(encode_batch([Record(timestamp_ms=time_ms, value=VALUE)]))
            partition.append(batch, now_ms)
        if index % 20 == 0:
            await asyncio.sleep(0)
    await until(lambda: node.flusher.is_idle)
    spare_the_collector()  # As a node does when it has started, and opened all of that.


async def look(node: Node, is_done: Callable[[], object], *, idle_share: float) -> dict[str, float]:
    beat = Beat(asyncio.get_running_loop())
    began, computed = time.perf_counter(), time.thread_time()
    looks = node.late.retention.get().looks
    node.late.retention.get().look()
    await until(lambda: node.late.retention.get().looks > looks and is_done())
    computed, took = time.thread_time() - computed, time.perf_counter() - began
    return {"loop_s": max(0.0, computed - idle_share * took), "stall_ms": beat.stop(), "wall_s": took}


async def idle(seconds: float) -> dict[str, float]:
    beat = Beat(asyncio.get_running_loop())
    computed = time.thread_time()
    await asyncio.sleep(seconds)
    return {"loop_s": time.thread_time() - computed, "stall_ms": beat.stop(), "wall_s": seconds}


async def run(work: dict[str, Any]) -> dict[str, Any]:
    data, partitions = Path(work["directory"]), work["partitions"]
    loop = asyncio.get_running_loop()
    clock = {"start": time.time_ns() // 1_000_000, "ahead": 0}
    node = started(loop, data)
    await fill(node, partitions, clock)
    await stop(node)
    node = started(loop, data)
    runtime: Any = node.runtime
    runtime.now_ms = lambda: time.time_ns() // 1_000_000 + clock["ahead"]
    node.start()
    await until(lambda: node.late.retention.loaded is not None and node.is_ready)
    await asyncio.sleep(1.0)
    wait_for_sign()

    def is_read() -> bool:
        logs = [partition.log for partition in node.replicas.all() if partition.topic == TOPIC]
        return all(log.segments[0].newest_read is not None for log in logs)

    measured = {"idle": await idle(2.0)}
    idle_share = measured["idle"]["loop_s"] / measured["idle"]["wall_s"]
    measured["nothing to do"] = await look(node, is_read, idle_share=idle_share)
    clock["ahead"] = 2 * HOUR_MS
    wanted = GOING * partitions

    def is_deleted() -> bool:
        return node.late.retention.get().deleted_segments >= wanted and not any(
            partition.log.leaving for partition in node.replicas.all()
        )

    measured["two segments of each"] = await look(node, is_deleted, idle_share=idle_share)
    left = sum(1 for partition in node.replicas.all() if partition.topic == TOPIC for _ in partition.log.segments)
    await stop(node)
    return {"measured": measured, "segments_left": left}


def main() -> None:
    work = task()
    finish(**asyncio.run(run(work)))


if __name__ == "__main__":
    main()
