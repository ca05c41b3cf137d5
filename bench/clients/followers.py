"""`groups` librdkafka consumers in this process, each the only member of a group of its own, until the sign to stop."""

from __future__ import annotations

import sys
import threading
import time

from confluent_kafka import Consumer

from bench.clients.turn import finish, task, wait_for_sign

JOIN_TIMEOUT_S = 60.0


class Follower(threading.Thread):
    """Reads what comes. One thread each: a consumer waits outside the interpreter's lock."""

    def __init__(self, consumer: Consumer, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.consumer, self.stop_sign = consumer, stop
        self.has_joined = threading.Event()
        self.bytes = 0
        self.failure = ""

    def run(self) -> None:
        while not self.stop_sign.is_set() and not self.failure:
            for message in self.consumer.consume(100, timeout=0.05):
                if message.error() is not None:
                    self.failure = str(message.error())
                else:
                    self.bytes += len(message)
            if not self.has_joined.is_set() and self.consumer.assignment():
                self.has_joined.set()


def main() -> None:
    options = task()
    stop = threading.Event()
    followers = []
    for number in range(options["groups"]):
        config = {
            "bootstrap.servers": options["bootstrap"],
            "group.id": f"{options['group']}-{number}",
            "auto.offset.reset": "latest",
        }
        follower = Follower(Consumer(config), stop)
        follower.consumer.subscribe([options["topic"]])
        follower.start()
        followers.append(follower)
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    for follower in followers:
        if not follower.has_joined.wait(deadline - time.monotonic()):
            raise SystemExit(f"a group got no partitions within {JOIN_TIMEOUT_S:g} s: {follower.failure}")
    wait_for_sign()
    before = sum(follower.bytes for follower in followers)
    sys.stdin.readline()
    received = sum(follower.bytes for follower in followers) - before
    stop.set()
    for follower in followers:
        follower.join()
    failures = [follower.failure for follower in followers if follower.failure]
    if failures:
        raise SystemExit(f"{len(failures)} consumers failed: {failures[0]}")
    finish(bytes=received)


if __name__ == "__main__":
    main()
