"""What is done to a node, and how it is undone. Each fault knows what it needs of the ground.

`soft` faults cannot lose what a disk or a page cache holds, so two of them may come at the same time; a power cut takes
what was not flushed, so it comes alone, while every replica is in sync.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from bench.brokers import BrokerFailed
from bench.cluster_node import ClusterNode
from tests.chaos.ground import Ground

CLOCK_JUMPS_S = (-7200, -600, 600, 7200)


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    inflict: Callable[[Ground, ClusterNode, random.Random], None]
    heal: Callable[[Ground, ClusterNode], None]
    weight: int = 1
    beyond_session: bool = False
    """Lasts longer than a broker's session, so that the controller fences the node."""
    soft: bool = True
    needs: str = ""
    """`network`, `disks`, `clocks` or nothing."""


def start(ground: Ground, node: ClusterNode) -> None:
    """Starts the node if it does not run; it need not answer yet."""
    if not node.is_running:
        node.spawn()


def _kill(ground: Ground, node: ClusterNode, rng: random.Random) -> None:
    node.kill()


def _stop(ground: Ground, node: ClusterNode, rng: random.Random) -> None:
    node.stop()


def _pause(ground: Ground, node: ClusterNode, rng: random.Random) -> None:
    if node.is_running:
        node.pause()


def _resume(ground: Ground, node: ClusterNode) -> None:
    if node.is_running:
        node.resume()


def _cut_off_from_brokers(ground: Ground, node: ClusterNode, rng: random.Random) -> None:
    _wires(ground).cut_off(node.node_id, from_clients=False)


def _cut_off(ground: Ground, node: ClusterNode, rng: random.Random) -> None:
    _wires(ground).cut_off(node.node_id, from_clients=True)


def _cut_one_link(ground: Ground, node: ClusterNode, rng: random.Random) -> None:
    wires = _wires(ground)
    wires.cut_between(node.node_id, rng.choice([other for other in wires.node_ids if other != node.node_id]))


def _deafen(ground: Ground, node: ClusterNode, rng: random.Random) -> None:
    _wires(ground).deafen(node.node_id)


def _mute(ground: Ground, node: ClusterNode, rng: random.Random) -> None:
    _wires(ground).mute(node.node_id)


def _reconnect(ground: Ground, node: ClusterNode) -> None:
    _wires(ground).heal()


def _wires(ground: Ground):  # type: ignore[no-untyped-def]
    assert ground.network is not None
    return ground.network


def _fill(ground: Ground, node: ClusterNode, rng: random.Random) -> None:
    ground.disks[node.node_id].fill()


def _make_room(ground: Ground, node: ClusterNode) -> None:
    ground.disks[node.node_id].empty()
    # A node whose only directory failed may have left; an operator starts it again once there is room.
    start(ground, node)


def _cut_power(ground: Ground, node: ClusterNode, rng: random.Random) -> None:
    """The process and its disk end in one moment, as they do without power; see tests/crash/test_power_cut.py."""
    _pause(ground, node, rng)
    ground.disks[node.node_id].cut_power()
    node.kill()


def _power_on(ground: Ground, node: ClusterNode) -> None:
    ground.disks[node.node_id].power_on()
    node.spawn()


def _move_clock(ground: Ground, node: ClusterNode, rng: random.Random) -> None:
    ground.clocks[node.node_id].put(rng.choice(CLOCK_JUMPS_S))


def _set_clock(ground: Ground, node: ClusterNode) -> None:
    ground.clocks[node.node_id].put(0)


FAULTS = (
    Fault("kill -9", _kill, start, weight=4),
    Fault("clean restart", _stop, start),
    Fault("pause", _pause, _resume, weight=3, beyond_session=True),
    Fault("short pause", _pause, _resume),
    Fault("cut off from brokers", _cut_off_from_brokers, _reconnect, weight=2, beyond_session=True, needs="network"),
    Fault("cut off from all", _cut_off, _reconnect, weight=2, beyond_session=True, needs="network"),
    Fault("one link cut", _cut_one_link, _reconnect, beyond_session=True, needs="network"),
    Fault("hears nobody", _deafen, _reconnect, beyond_session=True, needs="network"),
    Fault("heard by nobody", _mute, _reconnect, beyond_session=True, needs="network"),
    Fault("disk full", _fill, _make_room, soft=False, needs="disks"),
    Fault("power cut", _cut_power, _power_on, weight=2, soft=False, needs="disks"),
    Fault("clock jump", _move_clock, _set_clock, needs="clocks"),
)


def possible(ground: Ground, only: list[str] | None = None) -> list[Fault]:
    """The faults that this ground allows; BrokerFailed if none of those wanted is among them."""
    has = {"": True, "network": ground.network is not None, "disks": bool(ground.disks), "clocks": bool(ground.clocks)}
    found = [fault for fault in FAULTS if has[fault.needs] and (not only or fault.kind in only)]
    if not found:
        raise BrokerFailed(f"none of {only} can be done here; there are {[fault.kind for fault in FAULTS]}")
    return found
