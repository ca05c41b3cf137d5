"""A real broker in a child process, for tests, notebooks and demos.

    with strandline.embedded() as log:
        producer = confluent_kafka.Producer({"bootstrap.servers": log.bootstrap})

It is a process of its own, not a thread, because one interpreter lock cannot serve a broker's loop and a busy test; so
it can also be killed as a power cut would end it, and started again on the same port and directory.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from strandline.errors import WorldError

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
READY_LINE_BYTES_MAX = 1024
STDERR_SHOWN_BYTES_MAX = 16 * 1024


class BrokerFailed(WorldError):
    """The child did not become ready, died by itself, or left with a status other than 0."""


class EmbeddedBroker:
    """One broker process, and the data directory and port that stay when it is killed and started again.

    `start`, `stop`, `kill` and `restart` are for one thread; the attributes may be read from any.
    """

    def __init__(
        self,
        data: Path,
        *,
        port: int = 0,
        properties: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        stderr: BinaryIO,
    ) -> None:
        self.data = data
        self.host = "127.0.0.1"
        self.port = port
        self.properties = dict(properties or {})
        self.environ = dict(environ or {})
        self._stderr = stderr
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`; it stays the same over `kill` and `restart`."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BrokerFailed("the broker is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Starts the broker and returns when it answers clients."""
        self.spawn()
        self.wait_ready(timeout_s=timeout_s)

    def spawn(self) -> None:
        """Starts the process and does not wait, so that a test can kill a broker in the middle of its recovery."""
        if self._process is not None:
            raise BrokerFailed(f"the broker already runs as process {self._process.pid}")
        command = [sys.executable, "-m", "strandline.testing.bound_child", "strandline.broker"]
        command += ["--data", str(self.data), "--listen", self.bootstrap]
        for name, value in ({"http.listener": "off"} | self.properties).items():
            command += ["-X", f"{name}={value}"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=os.environ | self.environ,
            bufsize=0,
        )

    def wait_ready(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Waits for the line `ready HOST:PORT`, the only one that a broker prints."""
        process = self._process
        if process is None:
            raise BrokerFailed("the broker is not running")
        try:
            line = _read_line(process, timeout_s)
        except TimeoutError:
            self.kill()
            raise BrokerFailed(self._with_stderr(f"the broker was not ready within {timeout_s:g} s")) from None
        if not line:
            status = self._reap(process, timeout_s=STOP_TIMEOUT_S)
            raise BrokerFailed(self._with_stderr(f"the broker ended with status {status} before it was ready"))
        word, _, address = line.strip().partition(" ")
        host, _, port = address.rpartition(":")
        if word != "ready" or not host or not port.isdecimal():
            self.kill()
            raise BrokerFailed(self._with_stderr(f"the broker printed {line!r} instead of 'ready HOST:PORT'"))
        # The child chose a free port; a restart asks for the same, because clients only know this one.
        self.port = int(port)

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ends the broker as an operator would (SIGTERM); a status other than 0 is an error. Idempotent."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            status = self._reap(process, timeout_s=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(self._with_stderr(f"the broker did not stop within {timeout_s:g} s")) from None
        if status != 0:
            raise BrokerFailed(self._with_stderr(f"the broker left with status {status}"))

    def kill(self) -> None:
        """Ends the broker with SIGKILL: nothing of it runs any more when this returns. Idempotent."""
        process = self._process
        if process is not None:
            process.kill()
            self._reap(process, timeout_s=STOP_TIMEOUT_S)

    def pause(self) -> None:
        """Stops the broker in its tracks (SIGSTOP), as a hung machine does; `kill` or `resume` ends that.

        Returns when every thread stands still, so a system call that was under way has come to its end.
        """
        os.kill(self.pid, signal.SIGSTOP)
        # WNOWAIT: should the broker have died instead, its status is left for `kill` and `stop` to take.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Lets a paused broker go on."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Starts the broker again on the same directory and port; one that still runs is stopped first."""
        self.stop()
        self.start()

    def create_topic(self, name: str, partitions: int = 1, **configs: str | int) -> None:
        """Creates a topic. Configs are Kafka's with underscores for dots: `segment_bytes=65536`."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin.create_topics([topic])[name].result()

    def stderr_text(self) -> str:
        """The end of what the broker wrote to standard error, over all its restarts."""
        # The child shares our file position, so the file is read without moving it.
        descriptor = self._stderr.fileno()
        size_bytes = os.fstat(descriptor).st_size
        start = max(0, size_bytes - STDERR_SHOWN_BYTES_MAX)
        return os.pread(descriptor, STDERR_SHOWN_BYTES_MAX, start).decode(errors="replace")

    def _reap(self, process: subprocess.Popen[bytes], *, timeout_s: float) -> int:
        status = process.wait(timeout_s)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None
        return status

    def _with_stderr(self, message: str) -> str:
        text = self.stderr_text().strip()
        return (
            f"{message}; its standard error:\n{text}" if text else f"{message}, and it wrote nothing to standard error"
        )


def _read_line(process: subprocess.Popen[bytes], timeout_s: float) -> str:
    """The child's first line; empty when it closed its output before that."""
    assert process.stdout is not None
    deadline_s = time.monotonic() + timeout_s
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n") and len(line) < READY_LINE_BYTES_MAX:
            if not selector.select(max(0.0, deadline_s - time.monotonic())):
                raise TimeoutError
            # One byte at a time would be slow for a stream; this is one short line.
            piece = os.read(process.stdout.fileno(), READY_LINE_BYTES_MAX)
            if not piece:
                return ""
            line += piece
    return line.decode(errors="replace")


@contextlib.contextmanager
def embedded(
    *,
    data: str | os.PathLike[str] | None = None,
    port: int = 0,
    properties: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Iterator[EmbeddedBroker]:
    """A real broker for the length of a `with` block, by default on a free port and in a directory that is removed.

    `data` keeps the log in a directory of yours; `properties` are Kafka's broker properties; `environ` is added to the
    child's environment. If the block raises, the exception gets the end of the broker's standard error as a note.
    """
    with contextlib.ExitStack() as stack:
        if data is None:
            data = stack.enter_context(tempfile.TemporaryDirectory(prefix="strandline-"))
        stderr = stack.enter_context(tempfile.TemporaryFile())
        broker = EmbeddedBroker(Path(data), port=port, properties=properties, environ=environ, stderr=stderr)
        stack.callback(broker.kill)
        broker.start()
        try:
            yield broker
        except BaseException as error:
            text = broker.stderr_text().strip()
            if text:
                error.add_note(f"standard error of the embedded broker:\n{text}")
            raise
        broker.stop()
