"""The schema registry that `strandline dev` runs beside its nodes: a process of its own, which ends with them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from strandline.cli.common.output import Output
from strandline.local.free_ports import free_port

PORT_DEFAULT: Final = 8081
STOP_TIMEOUT_S: Final = 10.0
_NEEDED: Final = ("starlette", "uvicorn")
_NOT_PASSED_ON: Final = ("STRANDLINE_BOOTSTRAP", "STRANDLINE_COMMAND_CONFIG")
"""They are about the clusters of the user, and the registry belongs to this one."""


def is_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in _NEEDED)


class DevRegistry:
    """A registry that starts while its address is printed: `dev` does not wait for it."""

    def __init__(self, output: Output, bootstrap: str, *, any_port: bool, command_config: Path | None = None) -> None:
        port = _port(any_port=any_port)
        self.url = f"http://127.0.0.1:{port}"
        self._output = output
        self._is_stopping = False
        # Bound to us: if we are killed, our end of its stdin closes and it stops.
        command = [sys.executable, "-m", "strandline.local.bound_child", "strandline", "registry", "serve"]
        command += ["--bootstrap-server", bootstrap, "--listen", f"127.0.0.1:{port}"]
        if command_config is not None:
            # Its clients are users of the cluster, which a password in a file proves to the registry alone.
            command += ["--command-config", str(command_config), "-X", "http.authentication=basic"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON},
            # A session of its own: Ctrl-C reaches us alone, and we stop it with SIGTERM, once.
            start_new_session=True,
        )
        threading.Thread(target=self._watch, name="dev-registry", daemon=True).start()

    def stop(self) -> None:
        self._is_stopping = True
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _watch(self) -> None:
        status = self._process.wait()
        if not self._is_stopping:
            self._output.talk(f"the registry ended with status {status}; its reasons stand above, and the nodes go on")


StartRegistry = Callable[..., DevRegistry]
"""Takes the bootstrap servers, and starts a registry beside them."""


def _port(*, any_port: bool) -> int:
    """Return the port of Confluent's registry if it may be taken and is free, else one that is."""
    if not any_port:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", PORT_DEFAULT))
            return PORT_DEFAULT
    return free_port()


def registry_row(registry: DevRegistry | None) -> str:
    """Return the line about the registry among what `dev` prints."""
    if registry is not None:
        return f"  registry   {registry.url} (schemas; it answers in a moment)"
    if is_installed():
        return "  registry   none (--no-registry)"
    return "  registry   none: pip install 'strandline[registry]'"
