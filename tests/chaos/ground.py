"""Where the nodes of a chaos run live, and with that what can be done to them.

With root each node has a network namespace and a filesystem of its own. Without, all three share this machine's
loopback and directory, and can only be killed, stopped and paused.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.cluster_node import ClusterNode, System
from bench.clusters import NODES, Cluster
from tests.chaos import network as namespaces
from tests.chaos.clocks import NodeClock, faketime_library
from tests.chaos.disks import NodeDisk, unmount_below
from tests.crash.filesystems import why_not_mountable

from strandline.local.free_ports import free_port

HOME = Path(os.environ.get("STRANDLINE_CHAOS_HOME") or Path(__file__).resolve().parents[2] / ".cache" / "chaos")
"""The nodes' disks lie here. On a machine whose disk stands still for a minute now and then, name a place in memory."""
BROKER_PORT, CONTROLLER_PORT = 9092, 9093
_LOCK = Path(tempfile.gettempdir()) / f"{namespaces.PREFIX}.lock"


class GroundFailed(Exception):
    """There is no place to run."""


@dataclass
class Ground:
    cluster: Cluster
    root: Path
    network: namespaces.Network | None = None
    disks: dict[int, NodeDisk] = field(default_factory=dict)
    clocks: dict[int, NodeClock] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """What cannot be done here and why, in sentences."""


@contextlib.contextmanager
def ground(system: System, *, settings: Mapping[str, str], plain: bool = False) -> Iterator[Ground]:
    """A formatted cluster of three, not yet started; all of it is gone when the block ends."""
    missing = [] if plain else [reason for reason in (namespaces.why_not(), why_not_mountable(loop=True)) if reason]
    with _plain_ground(system, settings) if plain or missing else _rooted_ground(system, settings) as made:
        made.missing += [f"No partitions, power cuts or full disks: {reason}." for reason in missing]
        if system.name == "strandline":
            _give_clocks(made)
        yield made


@contextlib.contextmanager
def _plain_ground(system: System, settings: Mapping[str, str]) -> Iterator[Ground]:
    HOME.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="plain-", dir=HOME))
    nodes = [
        ClusterNode(
            system, number, "127.0.0.1", free_port(), free_port(), root / f"node-{number}", root / f"node-{number}/data"
        )
        for number in range(1, NODES + 1)
    ]
    cluster = Cluster(system.name, nodes, root)
    try:
        _format(cluster, settings)
        yield Ground(cluster, root)
    finally:
        cluster.discard()


@contextlib.contextmanager
def _rooted_ground(system: System, settings: Mapping[str, str]) -> Iterator[Ground]:
    root = HOME / "run"
    with machine_wide_lock():
        clear_away(root)
        node_ids = range(1, NODES + 1)
        wires = namespaces.Network(node_ids)
        disks: dict[int, NodeDisk] = {}
        nodes: list[ClusterNode] = []
        try:
            wires.create()
            for number in node_ids:
                home = root / f"node-{number}"
                disks[number] = NodeDisk.create(home)
                node = ClusterNode(
                    system,
                    number,
                    namespaces.host_of(number),
                    BROKER_PORT,
                    CONTROLLER_PORT,
                    home,
                    disks[number].mount_point / "data",
                    prefix=namespaces.inside(number),
                )
                nodes.append(node)
            cluster = Cluster(system.name, nodes, root)
            _format(cluster, settings)
            yield Ground(cluster, root, wires, disks)
        finally:
            for node in nodes:
                node.kill()
            clear_away(root)


def _format(cluster: Cluster, settings: Mapping[str, str]) -> None:
    for node in cluster.nodes:
        node.configure(cluster.nodes, settings)
        node.format()


def _give_clocks(made: Ground) -> None:
    library = faketime_library()
    if library is None:
        made.missing.append("No clock jumps: libfaketime is not installed.")
        return
    for node in made.cluster.nodes:
        made.clocks[node.node_id] = clock = NodeClock(library, node.root / "clock")
        node.environ = clock.environ


def clear_away(root: Path) -> None:
    """What an earlier run left because it was killed itself: processes, mounts, namespaces, files."""
    namespaces.remove_all()
    unmount_below(root)
    shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def machine_wide_lock() -> Iterator[None]:
    """Namespaces and addresses are the machine's, so there is one run at a time."""
    descriptor = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GroundFailed("another chaos run is under way on this machine") from None
        yield
    finally:
        os.close(descriptor)
