"""1,000 topics created with one request and deleted with one, while a bystander asks for the API versions.

What the bystander waits for at most is how long the broker was not there for others. "There" means served: after the
answer ListOffsets must know every topic, which on Kafka may take a while longer.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.brokers import CREATE_TIMEOUT_S, Broker, BrokerFailed
from bench.figures import Figure, at_most
from bench.stage import Stage, beside_kafka
from bench.wire import CREATE_TOPICS, DELETE_TOPICS, Connection, ServerRefused, frame, string

NAME = "topics-1000"
SUMMARY = "1,000 topics in one CreateTopics, then in one DeleteTopics, beside a bystander"
TOPICS = 1_000
WALL_S_MAX = 5.0
STALL_MS_MAX = 50.0
_TIMEOUT_MS = int(CREATE_TIMEOUT_S * 1000)


def run(stage: Stage) -> list[Figure]:
    topics = stage.scaled(TOPICS, 100)
    with stage.fresh_pair() as brokers:
        rounds: dict[str, int] = {}

        def work(broker: Broker) -> dict[str, float]:
            rounds[broker.name] = rounds.get(broker.name, 0) + 1
            return come_and_go(broker, [f"{NAME}-{rounds[broker.name]}-{number}" for number in range(topics)])

        samples = stage.take_turns(brokers, work)
    bystander = "longest wait of a bystander"
    return [
        beside_kafka(samples, "create_s", f"create {topics:,} topics, until each is served", "s", at_most(WALL_S_MAX)),
        beside_kafka(samples, "delete_s", f"delete {topics:,} topics", "s", at_most(WALL_S_MAX)),
        beside_kafka(samples, "create_stall_ms", f"{bystander}, while creating", "ms", at_most(STALL_MS_MAX)),
        beside_kafka(samples, "delete_stall_ms", f"{bystander}, while deleting", "ms", at_most(STALL_MS_MAX)),
        beside_kafka(samples, "cpu_s", "broker CPU for both", "s", None),
    ]


def come_and_go(broker: Broker, names: list[str]) -> dict[str, float]:
    cpu = broker.cpu_seconds()
    with broker.connect(timeout_s=CREATE_TIMEOUT_S) as connection:
        with bystander(broker) as creating:
            start = time.perf_counter()
            create(connection, names)
            wait_until_served(connection, names)
            create_s = time.perf_counter() - start
        with bystander(broker) as deleting:
            start = time.perf_counter()
            delete(connection, names)
            delete_s = time.perf_counter() - start
    return {
        "create_s": create_s,
        "delete_s": delete_s,
        "create_stall_ms": creating.longest_s * 1e3,
        "delete_stall_ms": deleting.longest_s * 1e3,
        "cpu_s": broker.cpu_seconds() - cpu,
    }


@dataclass
class Waited:
    longest_s: float = 0.0


@contextmanager
def bystander(broker: Broker) -> Iterator[Waited]:
    """Somebody with a connection of its own asks one small thing after the other."""
    waited, is_over = Waited(), threading.Event()

    def ask() -> None:
        with broker.connect(timeout_s=CREATE_TIMEOUT_S) as connection:
            while not is_over.wait(0.001):
                start = time.perf_counter()
                connection.api_versions()
                waited.longest_s = max(waited.longest_s, time.perf_counter() - start)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield waited
    finally:
        is_over.set()
        thread.join()


def create(connection: Connection, names: list[str]) -> None:
    topics = b"".join(string(name) + struct.pack(">ihii", 1, 1, 0, 0) for name in names)
    body = struct.pack(">i", len(names)) + topics + struct.pack(">ib", _TIMEOUT_MS, 0)
    answer = connection.exchange(frame(CREATE_TOPICS, 4, body))
    # Behind size, correlation id, throttle time and count: name, error code, message of each topic.
    at = 16
    for _ in names:
        at += 2 + int(struct.unpack_from(">h", answer, at)[0])
        error, message_size = struct.unpack_from(">hh", answer, at)
        if error:
            raise ServerRefused(f"CreateTopics: error code {error}")
        at += 4 + max(0, message_size)


def delete(connection: Connection, names: list[str]) -> None:
    body = struct.pack(">i", len(names)) + b"".join(map(string, names)) + struct.pack(">i", _TIMEOUT_MS)
    answer = connection.exchange(frame(DELETE_TOPICS, 3, body))
    at = 16
    for _ in names:
        at += 2 + int(struct.unpack_from(">h", answer, at)[0])
        (error,) = struct.unpack_from(">h", answer, at)
        if error:
            raise ServerRefused(f"DeleteTopics: error code {error}")
        at += 2


def wait_until_served(connection: Connection, names: list[str]) -> None:
    deadline = time.perf_counter() + CREATE_TIMEOUT_S
    for name in names:
        while connection.serving_partitions(name, 1) < 1:
            if time.perf_counter() > deadline:
                raise BrokerFailed(f"{name} was created and is not served")
            time.sleep(0.005)
