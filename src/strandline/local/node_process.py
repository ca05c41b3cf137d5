"""A node in a child process: started, stopped, killed, paused, and started again on the same ports and directory."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from strandline.errors import WorldError

READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
LINE_BYTES_MAX = 1024
STDERR_SHOWN_BYTES_MAX = 16 * 1024


class BrokerFailed(WorldError):
    """The child did not become ready, died by itself, or left with a status other than 0."""


class NodeProcess:
    """One process of `module` with `arguments`; the module runs a node and does not outlive us.

    `start`, `stop`, `kill` and `restart` are for one thread; the attributes may be read from any.
    """

    module = "strandline.local.bound_child"
    has_own_session = False
    """Whether Ctrl-C on the terminal does not reach the process; then we stop it with SIGTERM, once."""

    def __init__(
        self, *, stderr: BinaryIO | None, environ: Mapping[str, str] | None = None, called: str = "the broker"
    ) -> None:
        self.environ = dict(environ or {})
        self.called = called
        self.host = "127.0.0.1"
        self.port = 0
        self._stderr = stderr
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def arguments(self) -> Sequence[str]:
        """Return the arguments of the module."""
        raise NotImplementedError

    @property
    def bootstrap(self) -> str:
        """The `bootstrap.servers` for clients; it stays the same over `kill` and `restart`."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """The status of a process that ended by itself; None while it runs, and after `stop` or `kill`."""
        return self._process.poll() if self._process is not None else None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BrokerFailed(f"{self.called} is not running")
        return self._process

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the broker, and return when it answers clients."""
        self.spawn()
        self.wait_ready(timeout_s=timeout_s)

    def spawn(self) -> None:
        """Start the process and do not wait, so that a test can kill a broker in the middle of its recovery."""
        if self._process is not None:
            raise BrokerFailed(f"{self.called} already runs as process {self._process.pid}")
        self._unread = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module, *self.arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=os.environ | self.environ,
            bufsize=0,
            start_new_session=self.has_own_session,
        )

    def wait_ready(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait for the line `ready HOST:PORT`, the first that a broker prints."""
        line = self.read_line(timeout_s=timeout_s, before="it was ready")
        word, _, address = line.strip().partition(" ")
        host, _, port = address.rpartition(":")
        if word != "ready" or not host or not port.isdecimal():
            self.kill()
            raise BrokerFailed(self._with_stderr(f"{self.called} printed {line!r} instead of 'ready HOST:PORT'"))
        # The child chose a free port; a restart asks for the same, because clients only know this one.
        self.port = int(port)

    def read_line(self, *, timeout_s: float, before: str) -> str:
        """Return the next line of the child. One that ends, or prints nothing in time, has failed and is killed."""
        process = self._running()
        try:
            line = self._next_line(process, timeout_s)
        except TimeoutError:
            self.kill()
            raise BrokerFailed(
                self._with_stderr(
                    f"{self.called} said nothing in time: the patience of its parent was over before {before}"
                )
            ) from None
        if not line:
            status = self._reap(process, timeout_s=STOP_TIMEOUT_S)
            raise BrokerFailed(self._with_stderr(f"{self.called} ended with status {status} before {before}"))
        return line

    def command(self, line: str, *, answer: str, timeout_s: float, before: str) -> None:
        """Write a line to the child's standard input, and wait for its answer."""
        stdin = self._running().stdin
        assert stdin is not None
        # A child that has died is reported by `read_line`, with its status.
        with contextlib.suppress(BrokenPipeError):
            stdin.write(f"{line}\n".encode())
        said = self.read_line(timeout_s=timeout_s, before=before).strip()
        if said != answer:
            raise BrokerFailed(f"{self.called} said {said!r} instead of {answer!r}")

    def _next_line(self, process: subprocess.Popen[bytes], timeout_s: float) -> str:
        """Return the child's next line; empty if it closed its output before that."""
        assert process.stdout is not None
        deadline_s = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread and len(self._unread) < LINE_BYTES_MAX:
                if not selector.select(max(0.0, deadline_s - time.monotonic())):
                    raise TimeoutError
                piece = os.read(process.stdout.fileno(), LINE_BYTES_MAX)
                if not piece:
                    return ""
                self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace")

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End the broker as an operator would (SIGTERM); a status other than 0 is an error. Idempotent."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        self.wait_stopped(timeout_s=timeout_s)

    def wait_stopped(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Wait for the end of a broker that has got SIGTERM, as `stop` does."""
        process = self._process
        if process is None:
            return
        try:
            status = self._reap(process, timeout_s=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(self._with_stderr(f"{self.called} did not stop within {timeout_s:g} s")) from None
        if status != 0:
            raise BrokerFailed(self._with_stderr(f"{self.called} left with status {status}"))

    def kill(self) -> None:
        """End the broker with SIGKILL: nothing of it runs any more when this returns. Idempotent."""
        process = self._process
        if process is not None:
            process.kill()
            self._reap(process, timeout_s=STOP_TIMEOUT_S)

    def pause(self) -> None:
        """Pause the broker (SIGSTOP), as a machine that hangs would; `kill` or `resume` ends that.

        Return when every thread stands still, so a system call that was under way has come to its end.
        """
        os.kill(self.pid, signal.SIGSTOP)
        # WNOWAIT: should the broker have died instead, its status is left for `kill` and `stop` to take.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a paused broker go on."""
        os.kill(self.pid, signal.SIGCONT)

    def signal(self, number: int) -> None:
        """Send a signal and do not wait; a process that has just ended by itself gets none."""
        self._running().send_signal(number)

    def restart(self) -> None:
        """Start the broker again on the same directory and port; one that still runs is stopped first."""
        self.stop()
        self.start()

    def stderr_text(self) -> str:
        """Return the end of what the broker wrote to standard error, over all restarts; empty if that is our own."""
        if self._stderr is None:
            return ""
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
        if self._stderr is None:
            return f"{message}; its reasons stand above"
        text = self.stderr_text().strip()
        return (
            f"{message}; its standard error:\n{text}" if text else f"{message}, and it wrote nothing to standard error"
        )


def wait_all_ready(nodes: Sequence[NodeProcess], *, timeout_s: float = READY_TIMEOUT_S) -> None:
    """Wait for all, whichever is ready first; the first that fails ends the wait, and those that are ready stay.

    One after the other would be wrong: a node of a cluster may wait in vain for another that has failed.
    """
    deadline_s = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        for node in nodes:
            stdout = node._running().stdout
            assert stdout is not None
            selector.register(stdout, selectors.EVENT_READ, node)
        while waiting := selector.get_map():
            spoke = selector.select(max(0.0, deadline_s - time.monotonic()))
            for key, _ in spoke or [(each, 0) for each in waiting.values()][:1]:
                # It has said something, or is silent for good; either way this does not wait.
                selector.unregister(key.fileobj)
                node = key.data
                node.wait_ready(timeout_s=max(0.0, deadline_s - time.monotonic()))
