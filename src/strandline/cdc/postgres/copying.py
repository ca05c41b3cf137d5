"""Rows of a query by COPY in text format: pages of rows, read without blocking a stop."""

from __future__ import annotations

import re
import select
import threading
from collections.abc import Iterator
from typing import Any, Final

import psycopg
from psycopg.pq import ExecStatus

from strandline.cdc.postgres.connection import LOOK_EVERY_MS, Stopped

PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
_ESCAPES: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_NULL: Final = b"\\N"


def copied_rows(
    connection: psycopg.Connection[Any], query: str, stopping: threading.Event, page_rows_max: int
) -> Iterator[list[list[bytes | None]]]:
    """Yield the rows of a query, in pages. Raise Stopped if the task is to stop."""
    pgconn = connection.pgconn
    result = pgconn.exec_(f"COPY ({query}) TO STDOUT".encode())
    if result.status != ExecStatus.COPY_OUT:
        raise psycopg.errors.error_from_result(result)
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    page: list[list[bytes | None]] = []
    size = 0
    while True:
        length, data = pgconn.get_copy_data(1)
        if length > 0:
            page.append(fields_of(bytes(data)))
            size += length
            if len(page) >= page_rows_max or size >= PAGE_BYTES_MAX:
                yield page
                page, size = [], 0
        elif length == 0:
            if stopping.is_set():
                raise Stopped("the task stops before the snapshot is finished; its rows are read again")
            poll.poll(LOOK_EVERY_MS)
            pgconn.consume_input()
        else:
            break
    while (ended := pgconn.get_result()) is not None:
        if ended.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(ended)
    yield page


def fields_of(line: bytes) -> list[bytes | None]:
    """Return the fields of a line of COPY; None for NULL."""
    if b"\\" not in line:
        # `[:-1]`: the line feed.
        return line[:-1].split(b"\t")  # type: ignore[return-value]
    return [
        each if b"\\" not in each else None if each == _NULL else _ESCAPED.sub(_unescaped, each)
        for each in line[:-1].split(b"\t")
    ]


def _unescaped(found: re.Match[bytes]) -> bytes:
    return _ESCAPES.get(found[1], found[1])
