"""Inserts rows at a steady rate, each in a transaction of its own, with the time at which it was committed.

The arguments are the connection, the rows of a second and the seconds.
"""

from __future__ import annotations

import sys
import time

import psycopg

INSERT = (
    "insert into orders (customer, product, units, price, placed, note)"
    " values (%s, 'steady', 1, 9.99, '2026-01-02 03:04:05+00', null)"
)


def main() -> None:
    dsn, rate, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    with psycopg.connect(dsn, autocommit=True) as connection:
        began_s = time.monotonic()
        for number in range(int(rate * seconds)):
            wait_s = began_s + number / rate - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
            connection.execute(INSERT, (str(time.time_ns()),))
        print(number + 1, time.monotonic() - began_s)


if __name__ == "__main__":
    main()
