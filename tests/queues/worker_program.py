"""A worker for tests that end it: `python worker_program.py BOOTSTRAP GROUP TOPIC`.

It prints a line when it begins a task and when it has done one. Tasks called `stuck` are never done, `slow` ones take a
second.
"""

from __future__ import annotations

import os
import sys
import time

from strandline import queue


def say(words: str) -> None:
    # In one piece, because handlers run in several threads.
    os.write(1, f"{words}\n".encode())


def handle(task: queue.QueueTask) -> None:
    say(f"began {task.offset}")
    if task.value == b"stuck":
        time.sleep(600)
    if task.value == b"slow":
        time.sleep(1)
    say(f"done {task.offset}")


def main(bootstrap: str, group: str, topic: str) -> None:
    queue.worker(
        bootstrap, group, topic, handle, concurrency=2, group_settings={"share.auto.offset.reset": "earliest"}
    ).run()
    say("stopped")


if __name__ == "__main__":
    main(*sys.argv[1:])
