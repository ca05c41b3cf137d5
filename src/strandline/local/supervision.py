"""Runs the nodes of one machine as child processes: starts them, watches over them, stops them all.

The children do not outlive us, however we end: each holds the other end of a pipe that closes when we are gone.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from strandline.local.node_process import BrokerFailed, NodeProcess, wait_all_ready

NODES_MAX = 32
LOOK_EVERY_S = 0.2
READY_TIMEOUT_S = 120.0
"""Nodes of a cluster wait for one another, and each for its own recovery."""
STOP_TIMEOUT_S = 30.0
RESTART_AFTER_S = 1.0
RESTART_AFTER_S_MAX = 30.0
STEADY_AFTER_S = 60.0
"""A node that ran for so long died of something new: it is started again at once."""


class SupervisedNode(NodeProcess):
    """One node with these properties. Its standard error goes to a file, or with ours."""

    has_own_session = True

    def __init__(
        self, node_id: int, properties: Mapping[str, str], *, stderr: BinaryIO | None, config: Path | None = None
    ) -> None:
        """`config` is a file with more properties: those with secrets, because arguments are seen in `ps`."""
        super().__init__(stderr=stderr, called=f"node {node_id}")
        self.node_id = node_id
        self.properties = dict(properties)
        self._config = config

    def arguments(self) -> Sequence[str]:
        words = ["strandline.broker"]
        if self._config is not None:
            words += ["--config", str(self._config)]
        for name, value in self.properties.items():
            words += ["-X", f"{name}={value}"]
        return words


@dataclass
class _Watched:
    node: SupervisedNode
    started_at: float
    is_dead: bool = False
    start_at: float | None = None
    pause_s: float = 0.0


def start_all(nodes: Sequence[SupervisedNode]) -> None:
    """Start them together, because a cluster forms when a majority is there, and return when all are ready."""
    for node in nodes:
        node.spawn()
    wait_all_ready(nodes, timeout_s=READY_TIMEOUT_S)


def stop_all(nodes: Sequence[SupervisedNode]) -> list[str]:
    """Stop them together; what went wrong with it, in sentences. Nothing of them runs any more afterwards."""
    for node in nodes:
        if node.running:
            # A process that was stopped with SIGSTOP would not handle the other signal.
            node.resume()
            node.signal(signal.SIGTERM)
    failures = []
    for node in nodes:
        if node.status is not None:
            # It ended by itself, and that was reported.
            node.kill()
            continue
        try:
            node.wait_stopped(timeout_s=STOP_TIMEOUT_S)
        except BrokerFailed as failure:
            failures.append(str(failure))
    return failures


def watch_over(
    nodes: Sequence[SupervisedNode],
    *,
    restart: bool,
    tell: Callable[[SupervisedNode, str], object],
    asked_for: Callable[[], Container[int]] = tuple,
) -> None:
    """Say when a node dies, and start it again if that is wanted. Returns when none runs any more and none will.

    `asked_for` has the nodes that a user wants to be started again now.
    """
    watched = [_Watched(node, time.monotonic()) for node in nodes]
    while any(not each.is_dead or each.start_at is not None for each in watched):
        now = time.monotonic()
        wanted = asked_for()
        for each in watched:
            if each.node.node_id in wanted:
                stop_all([each.node])
                each.is_dead, each.start_at = True, now
            if not each.is_dead and each.node.status is not None:
                _on_death(each, now, restart=restart, tell=tell)
            elif each.start_at is not None and now >= each.start_at:
                each.start_at, each.started_at, each.is_dead = None, now, False
                each.node.spawn()
                tell(each.node, "is started again")
        time.sleep(LOOK_EVERY_S)


def _on_death(each: _Watched, now: float, *, restart: bool, tell: Callable[[SupervisedNode, str], object]) -> None:
    status = each.node.status
    assert status is not None
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    each.node.kill()
    each.is_dead = True
    if not restart:
        tell(each.node, f"{how}, and stays dead")
        return
    is_steady = now - each.started_at > STEADY_AFTER_S
    each.pause_s = RESTART_AFTER_S if is_steady else min(RESTART_AFTER_S_MAX, max(RESTART_AFTER_S, 2 * each.pause_s))
    each.start_at = now + each.pause_s
    tell(each.node, f"{how}; it is started again in {each.pause_s:g} s")
