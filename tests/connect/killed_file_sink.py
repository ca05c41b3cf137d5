"""Writes 20 records to a file in processes that are killed: after 0 bytes, 5 bytes, 10 bytes, and so on.

Each file is then written to its end by another process. Argument: a directory for the files.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.connect.sink_records import PLACE, batch, opened, record

from strandline.connect.sinks.files import FileSink

BYTES = sum(len(f"line {offset}\n") for offset in range(20))
STEP = 5
"""Lines have 7 and 8 bytes, so the kills fall on each part of a line."""


def write_all(file: str, bytes_max: int) -> None:
    sink = opened(FileSink, {"file": file})
    left, pwrite = bytes_max, os.pwrite

    def killed_within(descriptor: int, data: Any, position: int) -> int:
        nonlocal left
        if left < len(data):
            pwrite(descriptor, data[:left], position)
            os.kill(os.getpid(), signal.SIGKILL)
        left -= len(data)
        return pwrite(descriptor, data, position)

    os.pwrite = killed_within
    start = sink.resume([PLACE]).get(PLACE, 0)
    for offset in range(start, 20, 2):
        sink.write(batch(record(offset, f"line {offset}"), record(offset + 1, f"line {offset + 1}")))
        if offset % 4 == 0:
            sink.flush()
    sink.flush()
    sink.close()


def in_process(file: str, bytes_max: int) -> int:
    """Return the exit code of a process that writes; it is negative if the process was killed."""
    child = os.fork()
    if not child:
        write_all(file, bytes_max)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(directory: Path) -> None:
    for bytes_max in range(0, BYTES, STEP):
        file = str(directory / f"{bytes_max}.txt")
        assert in_process(file, bytes_max) == -signal.SIGKILL
        assert in_process(file, 2 * BYTES) == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
