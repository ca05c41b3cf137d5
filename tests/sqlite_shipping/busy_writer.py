"""A program that commits numbered rows until it is ended, and prints how many it has committed."""

from __future__ import annotations

import sqlite3
import sys


def main(path: str, pause: str) -> None:
    import time

    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("CREATE TABLE IF NOT EXISTS busy (n INTEGER PRIMARY KEY, filling BLOB)")
    number = connection.execute("SELECT coalesce(max(n), 0) FROM busy").fetchone()[0]
    while True:
        number += 1
        connection.execute("INSERT INTO busy VALUES (?, randomblob(700))", (number,))
        print(number, flush=True)
        time.sleep(float(pause))


if __name__ == "__main__":
    main(*sys.argv[1:])
