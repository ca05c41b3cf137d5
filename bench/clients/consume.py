"""`consumers` librdkafka consumers in this process, each reading the whole topic from its beginning."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, TopicPartition

from bench.clients.turn import finish, task, wait_for_sign

SILENCE_MAX_S = 60.0


class Reader(threading.Thread):
    """Reads until it has seen `count` records. One thread each: a consumer waits outside the interpreter's lock."""

    def __init__(self, consumer: Consumer, count: int, start: threading.Event) -> None:
        super().__init__(daemon=True)
        self.consumer, self.count, self.start_sign = consumer, count, start
        self.assignment: list[TopicPartition] = []
        self.records = self.bytes = 0
        self.failure = ""

    def run(self) -> None:
        self.start_sign.wait()
        self.consumer.assign(self.assignment)
        heard = time.perf_counter()
        while self.records < self.count and not self.failure:
            messages = self.consumer.consume(10_000, timeout=0.05)
            for message in messages:
                if message.error() is not None:
                    self.failure = str(message.error())
                else:
                    self.records += 1
                    self.bytes += len(message)
            if messages:
                heard = time.perf_counter()
            elif time.perf_counter() - heard > SILENCE_MAX_S:
                self.failure = f"silence after {self.records} of {self.count} records"


def main() -> None:
    options = task()
    config = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": "bench",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        **options.get("config", {}),
    }
    sign = threading.Event()
    readers = [Reader(Consumer(config), options["count"], sign) for _ in range(options.get("consumers", 1))]
    for reader in readers:
        partitions = reader.consumer.list_topics(options["topic"], timeout=60).topics[options["topic"]].partitions
        # Offset 0 and not "the beginning": looking that up is a request per partition, and the first Fetch would then
        # go out for one partition alone and might wait half a second for data that lies in another.
        reader.assignment = [TopicPartition(options["topic"], number, 0) for number in partitions]
        reader.start()
    wait_for_sign()

    start = time.perf_counter()
    sign.set()
    for reader in readers:
        reader.join()
    seconds = time.perf_counter() - start
    failures = [reader.failure for reader in readers if reader.failure]
    if failures:
        raise SystemExit(f"{len(failures)} consumers failed: {failures[0]}")
    finish(
        seconds=seconds,
        records=sum(reader.records for reader in readers),
        bytes=sum(reader.bytes for reader in readers),
    )


if __name__ == "__main__":
    main()
