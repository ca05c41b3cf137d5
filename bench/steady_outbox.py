"""Adds events to an outbox at a steady rate, each in a transaction of its own.

The arguments are the connection, the topic, the events of a second and the seconds. The value of an event is its
number. The program prints when each was committed, in nanoseconds since 1970: the time just before the commit was
called, so that the commit counts as a part of the delay.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Final

import psycopg

from strandline import outbox

CONNECTIONS: Final = 4
"""Several, so that one slow commit does not hold up the rate."""


def write(dsn: str, topic: str, numbers: range, began_s: float, rate: int, commits_ns: list[int]) -> None:
    """Add the events of one connection when they are due; note their commits."""
    with psycopg.connect(dsn) as connection:
        for number in numbers:
            time.sleep(max(0.0, began_s + number / rate - time.monotonic()))
            outbox.add(connection, topic, f"key-{number % 1000}", str(number))
            commits_ns[number] = time.time_ns()
            connection.commit()


def main() -> None:
    dsn, topic, rate, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    commits_ns = [0] * (rate * seconds)
    began_s = time.monotonic() + 0.5
    threads = [
        threading.Thread(
            target=write, args=(dsn, topic, range(each, rate * seconds, CONNECTIONS), began_s, rate, commits_ns)
        )
        for each in range(CONNECTIONS)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert all(commits_ns), "a connection failed"
    print(json.dumps(commits_ns))


if __name__ == "__main__":
    main()
