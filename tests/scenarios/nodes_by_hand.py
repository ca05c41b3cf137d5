"""Nodes of a cluster as a person makes them: a file each, `strandline format`, `strandline serve --config`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from strandline.local.free_ports import free_port
from strandline.local.node_process import NodeProcess

FORMAT_TIMEOUT_S = 60
# Sooner than by default, because a test waits for them.
QUICK = {
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.election.backoff.max.ms": "200",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "http.listener": "off",
}


class NodeByHand(NodeProcess):
    """A node that `strandline serve --config` runs, and its file."""

    def __init__(self, root: Path, node_id: int, port: int, controller_port: int, *, stderr: BinaryIO) -> None:
        super().__init__(stderr=stderr, called=f"node {node_id}")
        self.node_id = node_id
        self.port = port
        self.controller_port = controller_port
        self.data = root / f"data-{node_id}"
        self.config = root / f"node-{node_id}.properties"

    def arguments(self) -> Sequence[str]:
        return ["strandline", "serve", "--config", str(self.config)]

    @property
    def controller_address(self) -> str:
        return f"127.0.0.1:{self.controller_port}"

    def configure(self, roles: str, more: Mapping[str, str]) -> None:
        listeners = f"PLAINTEXT://127.0.0.1:{self.port}"
        if "controller" in roles:
            listeners += f",CONTROLLER://{self.controller_address}"
        properties = QUICK | {
            "node.id": str(self.node_id),
            "process.roles": roles,
            "log.dirs": str(self.data),
            "listeners": listeners,
            "controller.listener.names": "CONTROLLER",
        }
        lines = [f"{name}={value}\n" for name, value in (properties | dict(more)).items()]
        self.config.write_text("".join(lines))

    def format(self, cluster_id: str, *more: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "strandline",
            "format",
            "--cluster-id",
            cluster_id,
            "--config",
            str(self.config),
        ]
        return subprocess.run([*command, *more], capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False)


@contextmanager
def nodes_by_hand(root: Path, count: int) -> Iterator[list[NodeByHand]]:
    """Places for nodes 1, 2, ... on free ports, neither configured nor started; whatever runs is killed at the end."""
    with ExitStack() as stack:
        nodes = []
        for node_id in range(1, count + 1):
            stderr = stack.enter_context((root / f"node-{node_id}.log").open("ab+"))
            nodes.append(NodeByHand(root, node_id, free_port(), free_port(), stderr=stderr))
            stack.callback(nodes[-1].kill)
        yield nodes
