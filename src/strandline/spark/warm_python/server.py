"""The warm process: has imported what Spark's Python processes need, and forks one for each client that asks.

It has one thread, at least when it forks, and ends with the process that started it: its standard input closes then. A
client that is killed takes its child with it, as if it had been the child.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import time
from typing import Final

CONTENT_BYTES_MAX: Final = 4 * 1024 * 1024
"""Arguments and environment of one process: the system allows two."""
ASK_S_MAX: Final = 5.0
"""A client that says that it will ask, and does not, must not keep the others waiting."""
END_S_MAX: Final = 2.0
"""How long a process may take to end when it is asked to."""
HASH_SEED: Final = "0"
"""As PySpark sets it for its workers: all of them must agree on the hash of a text."""

WARM: Final = (
    "pyspark.worker",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.daemon",
    "pandas",
    "pyarrow.compute",
    "pyspark_strandline",
    "pyspark_strandline_delta",
    "pyspark_strandline_iceberg",
    "strandline.spark.data_source",
    # What these import when they are first used, which is in each child.
    "strandline.spark.source.batch",
    "strandline.spark.source.options",
    "strandline.spark.source.stream",
    "strandline.spark.sink.writers",
    "strandline.spark.sink.task_writer",
    "strandline.spark.sink.driver",
    "strandline.codec.schema.decoder",
    "strandline.codec.schema.encoder",
    "encodings.idna",
    "pyarrow.pandas_compat",
)


class Child:
    """A process that was forked, and the client that waits for its end."""

    def __init__(self, pid: int, client: socket.socket) -> None:
        self.pid = pid
        self.client = client
        self.ended = os.pidfd_open(pid)
        self.abandoned_at: float | None = None
        """When its client went away, and it was asked to end."""


def main(directory: str, door_number: int) -> None:
    """Serve those who knock at the socket that was opened under this number, in this directory."""
    # As PySpark does for Java and all that it starts: Ctrl-C is for the driver, which ends the rest in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    door = socket.socket(fileno=door_number)
    door.set_inheritable(False)
    for name in WARM:
        with contextlib.suppress(ImportError):  # Of another version of PySpark, perhaps; then it is not warm.
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    try:
        serve(door)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def serve(door: socket.socket) -> None:
    """Until standard input closes."""
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(door, selectors.EVENT_READ)
    abandoned: list[Child] = []
    while True:
        for key, _ in selector.select(END_S_MAX if abandoned else None):
            child = key.data
            if key.fileobj == 0:
                if not os.read(0, 4096):
                    return
            elif key.fileobj is door:
                child = _answer(door, selector)
                if child is not None:
                    selector.register(child.ended, selectors.EVENT_READ, child)
                    selector.register(child.client, selectors.EVENT_READ, child)
            elif key.fd == child.ended:
                _reap(child, selector)
            elif child.ended >= 0 and child.abandoned_at is None:  # Else both went away within one look.
                _abandon(child, selector)
                abandoned.append(child)
        abandoned = [child for child in abandoned if child.ended >= 0 and not _is_killed(child)]


def _reap(child: Child, selector: selectors.BaseSelector) -> None:
    """It has ended; its client ends likewise."""
    selector.unregister(child.ended)
    os.close(child.ended)
    child.ended = -1
    _, status = os.waitpid(child.pid, 0)
    if child.abandoned_at is None:
        selector.unregister(child.client)
        with contextlib.suppress(OSError):
            child.client.sendall(bytes((_exit_code(status),)))
        child.client.close()


def _abandon(child: Child, selector: selectors.BaseSelector) -> None:
    """Its client was killed: so is it. PySpark's daemon wants to tell its own children, and is asked first."""
    child.abandoned_at = time.monotonic()
    selector.unregister(child.client)
    child.client.close()
    os.kill(child.pid, signal.SIGTERM)


def _is_killed(child: Child) -> bool:
    assert child.abandoned_at is not None
    if time.monotonic() < child.abandoned_at + END_S_MAX:
        return False
    os.kill(child.pid, signal.SIGKILL)
    return True


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code & 0xFF if code >= 0 else 128 - code


def _answer(door: socket.socket, selector: selectors.BaseSelector) -> Child | None:
    """Fork a child for the next client; None if it cannot be."""
    client, _ = door.accept()
    client.settimeout(ASK_S_MAX)
    streams: list[int] = []
    try:
        directory, arguments, environment = _read(client, streams)
        if environment.get("PYTHONHASHSEED", HASH_SEED) != HASH_SEED:
            raise OSError("a hash seed is chosen when Python starts")
        pid = os.fork()
        if pid == 0:
            _become(client, door, selector, streams, directory, arguments, environment)
        client.sendall(b"+")
    except (OSError, ValueError):
        client.close()
        return None
    finally:
        for stream in streams:
            os.close(stream)
    return Child(pid, client)


def _read(client: socket.socket, streams: list[int]) -> tuple[str, list[str], dict[str, str]]:
    size = array.array("i").itemsize
    head, parts, _, _ = client.recvmsg(4, socket.CMSG_SPACE(3 * size))
    for _level, _kind, content in parts:
        streams.extend(array.array("i", content[: len(content) - len(content) % size]))
    left = int.from_bytes(head, "big")
    if len(streams) != 3 or len(head) < 4 or left > CONTENT_BYTES_MAX:
        raise ValueError("no client of ours")
    received = bytearray()
    while left > len(received):
        piece = client.recv(left - len(received))
        if not piece:
            raise ValueError("the client went away")
        received += piece
    fields = [os.fsdecode(field) for field in bytes(received).split(b"\0")]
    count = int(fields[1])
    environment = dict(field.partition("=")[::2] for field in fields[2 + count :])
    return fields[0], fields[2 : 2 + count], environment


def _become(
    client: socket.socket,
    door: socket.socket,
    selector: selectors.BaseSelector,
    streams: list[int],
    directory: str,
    arguments: list[str],
    environment: dict[str, str],
) -> None:
    """In the child: be the process that was asked for, and never return."""
    code = 1
    try:
        for key in list(selector.get_map().values()):
            # Those of its siblings too: a client learns of an end when all who hold its socket have closed it.
            if key.fd > 2 and key.fd != door.fileno():
                os.close(key.fd)
        selector.close()
        door.close()
        client.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        code = _run(arguments, environment)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _run(arguments: list[str], environment: dict[str, str]) -> int:
    at = arguments.index("-m")
    module = arguments[at + 1]
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = [path for path in ("", *paths) if path not in sys.path]
    sys.argv = [module, *arguments[at + 2 :]]
    # It runs as the main module: what was imported of it was for the sake of what it imports.
    sys.modules.pop(module, None)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None:
            return 0
        if isinstance(end.code, int):
            return end.code & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
