"""Relays for tests: in a thread, or in a process that is killed at a fault point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from strandline.outbox.relay import OutboxRelay, RelaySettings
from strandline.runtime import fault_points

WAIT_S = 60.0


def wait_until(is_so: Callable[[], object], what: str) -> None:
    until = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until, f"it did not happen within {WAIT_S:g} s: {what}"
        time.sleep(0.01)


@contextmanager
def relaying(database: str, bootstrap: str, **settings: Any) -> Iterator[OutboxRelay]:
    """Run a relay in a thread. What ends it is raised at the end of the block."""
    relay = OutboxRelay(database, bootstrap, RelaySettings(**settings))
    failures: list[BaseException] = []

    def run() -> None:
        try:
            relay.run()
        except BaseException as error:  # raised again below
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield relay
    finally:
        relay.stop()
        thread.join(WAIT_S)
    if failures:
        raise failures[0]


def values_of(bootstrap: str, topic: str, partitions: int = 1) -> list[str]:
    """Return the values of all records of a topic that are committed now."""
    return [message.value().decode() for message in messages_of(bootstrap, topic, partitions)]


def messages_of(bootstrap: str, topic: str, partitions: int = 1) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    found, at_end = [], set()
    until = time.monotonic() + WAIT_S
    try:
        while len(at_end) < partitions:
            assert time.monotonic() < until
            for message in consumer.consume(1000, 0.1):
                if message.error() is None:
                    found.append(message)
                else:
                    at_end.add(message.partition())
    finally:
        consumer.close()
    return found


def by_key(values: list[str]) -> Mapping[str, list[int]]:
    """Return the numbers of values like `k3:17`, by key."""
    found: dict[str, list[int]] = defaultdict(list)
    for each in values:
        key, _, number = each.partition(":")
        found[key].append(int(number))
    return found


class RelayProcess:
    """A relay in a process. With a fault point it kills itself there, once."""

    def __init__(self, database: str, bootstrap: str, fault: str = "", mark: Path | None = None) -> None:
        environ = dict(os.environ)
        if fault:
            environ[fault_points.VARIABLE] = f"{fault}:kill:{mark}"
        self.process = subprocess.Popen([sys.executable, "-m", "tests.outbox.relays", database, bootstrap], env=environ)

    def wait_killed(self) -> None:
        assert self.process.wait(WAIT_S) == -signal.SIGKILL

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def main(database: str, bootstrap: str) -> None:
    OutboxRelay(database, bootstrap, RelaySettings(batch_rows=50)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
