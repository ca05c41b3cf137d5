"""A network namespace for each node on one bridge, and packets that are dropped between them on command.

Every name begins with a prefix of our own, so that a run can clear away what an earlier one left when it was killed.

    this machine, 10.213.77.254 -- bridge -- veth -- namespace 1: 10.213.77.1
                                         \\- veth -- namespace 2: 10.213.77.2 ...
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

PREFIX = "slchaos"
_BRIDGE = f"{PREFIX}0"
_SUBNET = "10.213.77"
GATEWAY = f"{_SUBNET}.254"


class NetworkFailed(Exception):
    """The kernel or its tools refused."""


def why_not() -> str:
    """Empty if namespaces can be made here; else the reason, in words."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "nsenter", "iptables") if shutil.which(tool) is None]
    if missing:
        return f"network partitions need {', '.join(missing)}"
    probe = f"{PREFIX}-probe"
    _quietly("ip", "netns", "del", probe)
    try:
        _run("ip", "netns", "add", probe)
        _run("nsenter", f"--net=/run/netns/{probe}", "iptables", "-w", "-L", "INPUT", "-n")
    except NetworkFailed as reason:
        return f"network namespaces do not work here: {reason}"
    finally:
        _quietly("ip", "netns", "del", probe)
    return ""


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NetworkFailed(f"`{' '.join(command)}`: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _quietly(*command: str) -> None:
    """For what may not be there."""
    subprocess.run(command, capture_output=True, check=False)


def host_of(node_id: int) -> str:
    return f"{_SUBNET}.{node_id}"


def _namespace(node_id: int) -> str:
    return f"{PREFIX}-{node_id}"


def inside(node_id: int) -> list[str]:
    """What stands before a command that is to run in the node's namespace; the process id stays the command's."""
    return ["nsenter", f"--net=/run/netns/{_namespace(node_id)}"]


class Network:
    def __init__(self, node_ids: Sequence[int]) -> None:
        self.node_ids = tuple(node_ids)

    def create(self) -> None:
        _run("ip", "link", "add", _BRIDGE, "type", "bridge")
        _run("ip", "addr", "add", f"{GATEWAY}/24", "dev", _BRIDGE)
        _run("ip", "link", "set", _BRIDGE, "up")
        for node_id in self.node_ids:
            namespace, cable = _namespace(node_id), f"{PREFIX}v{node_id}"
            _run("ip", "netns", "add", namespace)
            _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _run("ip", "link", "set", cable, "master", _BRIDGE, "up")
            for command in (
                ("ip", "link", "set", "lo", "up"),
                ("ip", "addr", "add", f"{host_of(node_id)}/24", "dev", "eth0"),
                ("ip", "link", "set", "eth0", "up"),
            ):
                _run(*inside(node_id), *command)

    def drop(self, *, at: int, coming_from: str) -> None:
        """From now on the node hears nothing from that host; what it says itself still leaves."""
        _run(*inside(at), "iptables", "-w", "-A", "INPUT", "-s", coming_from, "-j", "DROP")

    def cut_between(self, one: int, other: int) -> None:
        self.drop(at=one, coming_from=host_of(other))
        self.drop(at=other, coming_from=host_of(one))

    def cut_off(self, node_id: int, *, from_clients: bool) -> None:
        """The node and all others hear nothing of each other."""
        for other in self.node_ids:
            if other != node_id:
                self.cut_between(node_id, other)
        if from_clients:
            self.drop(at=node_id, coming_from=GATEWAY)

    def deafen(self, node_id: int) -> None:
        """One way: the node no longer hears the others, and they still hear it."""
        for other in self.node_ids:
            if other != node_id:
                self.drop(at=node_id, coming_from=host_of(other))

    def mute(self, node_id: int) -> None:
        """The other way: the others no longer hear the node, and it still hears them."""
        for other in self.node_ids:
            if other != node_id:
                self.drop(at=other, coming_from=host_of(node_id))

    def heal(self) -> None:
        for node_id in self.node_ids:
            _run(*inside(node_id), "iptables", "-w", "-F", "INPUT")


def remove_all() -> list[int]:
    """Take away every namespace and link with our prefix; the processes that still lived in them, now killed."""
    killed = []
    for line in subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=False
    ).stdout.splitlines():
        namespace = line.split()[0] if line.split() else ""
        if not namespace.startswith(f"{PREFIX}-"):
            continue
        living = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False).stdout
        for pid in map(int, living.split()):
            # A process that ended in between is no reason to stop clearing up.
            try:
                os.kill(pid, 9)
                killed.append(pid)
            except ProcessLookupError:
                continue
        _quietly("ip", "netns", "del", namespace)
    _quietly("ip", "link", "del", _BRIDGE)
    return killed
