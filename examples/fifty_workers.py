"""Fifty workers share the tasks of two partitions: more workers than partitions, each task acknowledged by itself.

    python examples/fifty_workers.py                             # on a log of its own, for as long as it runs
    python examples/fifty_workers.py --bootstrap localhost:9092

Each worker is a member of the share group `thumbnails`. Some tasks fail the first time and are tried again by another
worker. One can never be done: its handler rejects it, and no other task waits for it.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import Counter
from contextlib import ExitStack

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import strandline
from strandline import queue

TOPIC = "pictures"
GROUP = "thumbnails"
POISON = b"not a picture"


class Studio:
    """The work, and who did it."""

    def __init__(self) -> None:
        self.done: Counter[bytes] = Counter()
        self.rejected: list[bytes] = []
        self.attempts = 0
        self.workers: set[int] = set()
        self._lock = threading.Lock()

    def handle(self, task: queue.QueueTask) -> None:
        picture = task.value or b""
        with self._lock:
            self.attempts += 1
            self.workers.add(threading.get_ident())
        if picture == POISON:
            with self._lock:
                self.rejected.append(picture)
            raise queue.Reject("no worker can draw this one")
        if picture.endswith(b"7") and task.attempt == 1:
            raise queue.Retry("the first try of every tenth picture fails")
        time.sleep(0.01)
        with self._lock:
            self.done[picture] += 1


def run(bootstrap: str, *, pictures: int = 1000, workers: int = 50) -> Studio:
    """Write the tasks, have them worked, and return when all are done."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if TOPIC not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(TOPIC, num_partitions=2)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(pictures):
        producer.produce(TOPIC, b"picture %d" % number, key=b"%d" % number)
    producer.produce(TOPIC, POISON)
    producer.flush(30)

    studio = Studio()
    began = []
    for number in range(workers):
        # One of them says where a new group begins.
        settings = None if number else {"share.auto.offset.reset": "earliest"}
        worker = queue.worker(bootstrap, GROUP, TOPIC, studio.handle, concurrency=1, group_settings=settings)
        began.append(worker.start())
    while len(studio.done) < pictures or not studio.rejected:
        time.sleep(0.05)
    for worker in began:
        worker.stop(wait=False)
    for worker in began:
        worker.stop()
    return studio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", help="a cluster that runs; without it, a node is started")
    parser.add_argument("--pictures", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=50)
    options = parser.parse_args()
    with ExitStack() as stack:
        bootstrap = options.bootstrap
        if bootstrap is None:
            bootstrap = stack.enter_context(strandline.embedded()).bootstrap
        began = time.monotonic()
        studio = run(bootstrap, pictures=options.pictures, workers=options.workers)
        print(
            f"{len(studio.done):,} pictures drawn by {options.workers} workers on two partitions, in "
            f"{time.monotonic() - began:.1f} s and {studio.attempts:,} attempts; {len(studio.rejected)} rejected"
        )


if __name__ == "__main__":
    main()
