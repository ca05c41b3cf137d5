"""What `strandline dev` runs beside its nodes: a schema registry and the web console, processes that end with them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from strandline.cli.common.output import Output
from strandline.local.free_ports import free_port

REGISTRY_PORT: Final = 8081
CONSOLE_PORT: Final = 8080
STOP_TIMEOUT_S: Final = 10.0
_REGISTRY_NEEDS: Final = ("starlette", "uvicorn")
_CONSOLE_NEEDS: Final = ("jinja2", "starlette", "uvicorn")
_NOT_PASSED_ON: Final = ("STRANDLINE_BOOTSTRAP", "STRANDLINE_COMMAND_CONFIG")
"""They are about the clusters of the user, and these services belong to this one."""


class DevService:
    """A service that starts while its address is printed: `dev` does not wait for it."""

    def __init__(self, output: Output, name: str, words: Sequence[str], port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._output = output
        self._name = name
        self._is_stopping = False
        # Bound to us: if we are killed, our end of its stdin closes and it stops.
        command = [sys.executable, "-m", "strandline.local.bound_child", "strandline", *words]
        self._process = subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{port}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON},
            # A session of its own: Ctrl-C reaches us alone, and we stop it with SIGTERM, once.
            start_new_session=True,
        )
        threading.Thread(target=self._watch, name=f"dev-{name}", daemon=True).start()

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
            words = f"the {self._name} ended with status {status}; its reasons stand above, and the nodes go on"
            self._output.talk(words)


class DevServices:
    """The services of one cluster: those that are wanted and installed."""

    def __init__(self, output: Output, *, any_port: bool, registry: bool, console: bool) -> None:
        self._output = output
        self._any_port = any_port
        self._wants_registry = registry
        self._wants_console = console
        self._running: dict[str, DevService] = {}

    def start(self, bootstrap: str, command_config: Path | None) -> None:
        """Start them beside these nodes; `command_config` has the administrator of secured ones."""
        secured = [] if command_config is None else ["--command-config", str(command_config)]
        if self._wants_registry and _are_installed(_REGISTRY_NEEDS):
            words = ["registry", "serve", "--bootstrap-server", bootstrap, *secured]
            # Its clients are users of the cluster, which a password in a file proves to the registry alone.
            words += [] if command_config is None else ["-X", "http.authentication=basic"]
            self._start("registry", words, REGISTRY_PORT)
        if self._wants_console and _are_installed(_CONSOLE_NEEDS):
            words = ["console", "serve", "--cluster", f"dev={bootstrap}", *secured]
            registry = self._running.get("registry")
            words += [] if registry is None else ["--registry", registry.url]
            self._start("console", words, CONSOLE_PORT)

    def urls(self) -> dict[str, str]:
        """Return the addresses by name, for `--json`."""
        return {name: service.url for name, service in self._running.items()}

    def rows(self) -> str:
        """Return the lines about them among what `dev` prints."""
        return "\n".join(
            (
                self._row("console", "pages about all of this", _CONSOLE_NEEDS),
                self._row("registry", "schemas", _REGISTRY_NEEDS),
            )
        )

    def stop(self) -> None:
        """Stop them before the nodes, because the registry leaves its group. Twice is once."""
        for name in reversed(list(self._running)):
            self._running.pop(name).stop()

    def _start(self, name: str, words: Sequence[str], port_default: int) -> None:
        self._running[name] = DevService(self._output, name, words, _port(port_default, any_port=self._any_port))

    def _row(self, name: str, what: str, needs: Sequence[str]) -> str:
        running = self._running.get(name)
        if running is not None:
            return f"  {name:9}  {running.url} ({what}; it answers in a moment)"
        if _are_installed(needs):
            return f"  {name:9}  none (--no-{name})"
        return f"  {name:9}  none: pip install 'strandline[{name}]'"


def _are_installed(names: Sequence[str]) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in names)


def _port(wanted: int, *, any_port: bool) -> int:
    """Return the usual port if it may be taken and is free, else one that is."""
    if not any_port:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", wanted))
            return wanted
    return free_port()
