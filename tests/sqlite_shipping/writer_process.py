"""A program that runs SQL from stdin, one JSON list of statements per line, and answers each line with a JSON value.

It is another process because POSIX locks belong to processes.
"""

from __future__ import annotations

import json
import sqlite3
import sys


def main(path: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    for line in sys.stdin:
        try:
            rows: list[object] = []
            for statement in json.loads(line):
                rows = connection.execute(statement).fetchall()
            answer: object = rows
        except sqlite3.Error as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
