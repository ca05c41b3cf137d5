"""A client that is a process of its own: it takes one JSON object a line and answers one.

The answer has "value", or "code" with Kafka's number and "message" when the client or the broker refused.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.clients.client import WAIT_S_MAX, ClientFailed


class ProgramDriver:
    """One process of a client; `errors` is the file that its standard error goes to."""

    def __init__(self, command: Sequence[str], errors: Path) -> None:
        self._errors = errors.open("w+")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def ask(self, do: str, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self._process.stdin.flush()
        patience = threading.Timer(3 * WAIT_S_MAX, self._process.kill)
        patience.start()
        line = self._process.stdout.readline()
        patience.cancel()
        if not line:
            self._errors.seek(0)
            raise AssertionError(f"the program of the client is gone, asked for {do}: {self._errors.read()[-4000:]}")
        answer = json.loads(line)
        if "code" in answer:
            raise ClientFailed(answer["code"], answer["message"])
        return answer["value"]

    def pause(self) -> None:
        """Stop the process where it is; its connections stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process with SIGKILL; a second call does nothing."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        try:
            self._process.communicate(timeout=WAIT_S_MAX)
        finally:
            self.kill()
            self._errors.close()
