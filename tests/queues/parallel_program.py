"""A program that works in parallel, for tests that kill it: `python parallel_program.py BOOTSTRAP GROUP TOPIC`.

It prints a line for each record that it has done. Records whose value begins with `stuck` are never done.
"""

from __future__ import annotations

import sys
import threading
import time

import strandline
from strandline import queue


def main(bootstrap: str, group: str, topic: str) -> None:
    lock = threading.Lock()

    def handle(task: queue.QueueTask) -> None:
        if (task.value or b"").startswith(b"stuck"):
            time.sleep(600)
        with lock:
            print(f"done {task.partition} {task.offset}", flush=True)

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 3000,
        "heartbeat.interval.ms": 300,
    }
    strandline.parallel(settings, topic, handle, workers=8).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
