"""The layout of a cluster whose nodes are processes of one machine: ids, ports, roles and directories.

    <root>/cluster.json      cluster id, and the ports of each node
    <root>/node-<id>/        the data directory of a node, formatted

The first three nodes are controllers too (the first alone where there are fewer than three): a majority of three
survives the loss of one, and more voters would only make every change slower. Nodes that are added later are brokers.
Controllers keep their ports from start to start, unless another process took one.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from strandline.broker.formatting import format_directory
from strandline.config.node_config import BrokerConfig
from strandline.errors import InvalidConfig
from strandline.local.free_ports import bound_socket
from strandline.log.disk import RealDisk
from strandline.quorum.raft.state_files import uuid_text

if TYPE_CHECKING:
    from strandline.local.security_kit import SecurityKit

LAYOUT: Final = "cluster.json"
CONTROLLERS: Final = 3
HOST: Final = "127.0.0.1"


@dataclasses.dataclass(frozen=True, slots=True)
class NodePlace:
    node_id: int
    host: str
    port: int
    controller_port: int | None
    """None for a node that is a broker only."""
    directory: Path

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def controller_address(self) -> str:
        return f"{HOST}:{self.controller_port}"


@dataclasses.dataclass(frozen=True, slots=True)
class LocalCluster:
    root: Path
    cluster_id: str
    places: tuple[NodePlace, ...]
    kit: SecurityKit | None = None
    """What secures all connections; None for a cluster that speaks plain text."""

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(place.address for place in self.places)

    def properties(self, place: NodePlace) -> dict[str, str]:
        """Return the properties that make a process this node of this cluster."""
        voters = [each for each in self.places if each.controller_port is not None]
        listeners = f"{'PLAINTEXT' if self.kit is None else 'SASL_SSL'}://{place.address}"
        if place.controller_port is not None:
            listeners += f",CONTROLLER://{place.controller_address}"
        return {
            "node.id": str(place.node_id),
            "process.roles": "broker" if place.controller_port is None else "broker,controller",
            "log.dirs": str(place.directory),
            "listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{each.node_id}@{each.controller_address}" for each in voters),
            "http.listener": "off",
        }


def lay_out(
    root: Path,
    nodes: int,
    *,
    port: int = 0,
    host: str = HOST,
    properties: Mapping[str, str] | None = None,
    kit: SecurityKit | None = None,
) -> LocalCluster:
    """Return the cluster in `root`, made and formatted if it is not there yet; InvalidConfig if it does not fit.

    Brokers listen at `port` and the ports after it, or with 0 at free ones. A `kit` secures them; it has a user.
    """
    root.mkdir(parents=True, exist_ok=True)
    remembered = _remembered(root)
    known: list[dict[str, Any]] = remembered.get("nodes", [])
    if len(known) > nodes:
        raise InvalidConfig(f"{root} holds a cluster of {len(known)} nodes; expected at least so many, not {nodes}")
    voters = sum(each["controller_port"] is not None for each in known) or (CONTROLLERS if nodes >= CONTROLLERS else 1)
    controller_ports = [each["controller_port"] for each in known[:voters]]
    with ExitStack() as taken:
        client_ports = list(range(port, port + nodes)) if port else [_free_port(taken, host) for _ in range(nodes)]
        if not controller_ports or not all(_is_free(each, taken) for each in controller_ports):
            controller_ports = [_free_port(taken, HOST) for _ in range(voters)]
    places = tuple(
        NodePlace(number, host, client_port, controller_port, root / f"node-{number}")
        for number, client_port, controller_port in zip(
            range(1, nodes + 1), client_ports, _padded(controller_ports), strict=False
        )
    )
    cluster = LocalCluster(root, remembered.get("cluster_id") or uuid_text(uuid.uuid4()), places, kit)
    _remember(cluster)
    content = "" if kit is None else kit.server_properties.read_text()
    credentials = [] if kit is None else [kit.administrator()]
    for place in places:
        config = BrokerConfig.load(content, {**(properties or {}), **cluster.properties(place)})
        format_directory(
            config,
            cluster.cluster_id,
            (),
            disk=RealDisk(),
            now_ms=int(time.time() * 1000),
            new_uuid=uuid.uuid4,
            ignore_formatted=True,
            credentials=credentials,
        )
    return cluster


def _padded(ports: Iterable[int]) -> Iterator[int | None]:
    yield from ports
    while True:
        yield None


def _remembered(root: Path) -> dict[str, Any]:
    path = root / LAYOUT
    if not path.exists():
        if (root / "meta.properties").exists():
            raise InvalidConfig(f"{root} holds a single node, not a cluster: choose another directory")
        return {}
    try:
        layout = json.loads(path.read_text())
        assert isinstance(layout["cluster_id"], str)
        for each in layout["nodes"]:
            assert each["controller_port"] is None or isinstance(each["controller_port"], int)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise InvalidConfig(f"{path} is not what was written there: {error!r}") from None
    return dict(layout)


def _remember(cluster: LocalCluster) -> None:
    nodes = [
        {"id": each.node_id, "port": each.port, "controller_port": each.controller_port} for each in cluster.places
    ]
    content = json.dumps({"cluster_id": cluster.cluster_id, "nodes": nodes}, indent=2) + "\n"
    RealDisk().write_whole(cluster.root / LAYOUT, content.encode(), sync=False)


def _free_port(taken: ExitStack, host: str) -> int:
    """Choose a free port. It is held until all are chosen, so that none is chosen twice."""
    return int(taken.enter_context(bound_socket(host)).getsockname()[1])


def _is_free(port: int, taken: ExitStack) -> bool:
    probe = taken.enter_context(socket.socket())
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((HOST, port))
    except OSError:
        return False
    return True
