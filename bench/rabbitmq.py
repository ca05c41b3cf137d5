"""RabbitMQ as a process of the bench: its own directory, ports and port mapper, never the service of the machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import START_TIMEOUT_S, STOP_TIMEOUT_S
from bench.measure import cpu_seconds
from strandline.local.free_ports import free_port

RABBITMQ = "rabbitmq"
_DEBIAN = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""What Debian's package runs as its own user; the command on PATH asks for that user."""


class RabbitUnavailable(Exception):
    """The server is not installed, or did not start."""


@dataclass
class Rabbit:
    """One running node. Its processes are those of the Erlang VM; the port mapper only serves names."""

    name: str
    root: Path
    port: int
    process: subprocess.Popen[bytes]
    port_mapper: subprocess.Popen[bytes]
    command: Sequence[str]

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    def discard(self) -> None:
        """Stop the node and remove its data."""
        for process in (self.process, self.port_mapper):
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.root, ignore_errors=True)


def start_rabbitmq(root: Path) -> Rabbit:
    """Start a node with stock settings in an empty directory, and wait until it accepts connections."""
    server = str(_DEBIAN) if _DEBIAN.exists() else shutil.which("rabbitmq-server")
    mapper = shutil.which("epmd")
    if server is None or mapper is None:
        raise RabbitUnavailable("RabbitMQ is not installed; Debian's package is `rabbitmq-server`")
    root.mkdir(parents=True)
    port = free_port()
    (root / "plugins").write_text("[].\n")
    (root / "environment").touch()
    environment = {
        **os.environ,
        "HOME": str(root),
        "RABBITMQ_NODENAME": f"bench-{port}@localhost",
        "RABBITMQ_MNESIA_BASE": str(root / "data"),
        "RABBITMQ_LOG_BASE": str(root / "log"),
        "RABBITMQ_CONFIG_FILE": str(root / "none"),
        "RABBITMQ_CONF_ENV_FILE": str(root / "environment"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(root / "plugins"),
        "RABBITMQ_PID_FILE": str(root / "pid"),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(free_port()),
    }
    with (root / "console.log").open("wb") as output:
        port_mapper = subprocess.Popen([mapper], env=environment, stdout=output, stderr=output)
        _wait_for(int(environment["ERL_EPMD_PORT"]), port_mapper)
        process = subprocess.Popen([server], cwd=root, env=environment, stdout=output, stderr=output)
    rabbit = Rabbit(RABBITMQ, root, port, process, port_mapper, [server])
    if not _wait_for(port, process):
        said = (root / "console.log").read_text(errors="replace")[-1_000:]
        rabbit.discard()
        raise RabbitUnavailable(f"RabbitMQ did not start: {said}")
    return rabbit


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> bool:
    deadline = time.perf_counter() + START_TIMEOUT_S
    while time.perf_counter() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except OSError:
            time.sleep(0.1)
    return False
