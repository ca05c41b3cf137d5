"""Several real brokers in child processes that form a cluster, with faults for users' own tests.

    with strandline.embedded(nodes=3) as cluster:
        cluster.create_topic("orders", partitions=3)
        cluster.kill(1)                 # as kill -9 does
        cluster.start(1)
        cluster.pause(2)                # hangs, and keeps its connections
        cluster.resume(2)
        cluster.partition(3)            # 3 cannot reach 1 and 2, nor they it; clients reach all
        cluster.heal()

Nodes have the ids 1, 2, 3; the first three are controllers, too. A partition is made inside the nodes (see
`cuttable_node`), so it needs no rights on the machine: it holds up what nodes send to one another and loses it, as a
switch that fails does, and leaves clients alone. Sessions and elections are quicker than by default, because a test
waits for them; set the properties `broker.session.timeout.ms` and so on to change that.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from strandline.local.local_cluster import LocalCluster, NodePlace, lay_out
from strandline.local.node_process import READY_TIMEOUT_S, STOP_TIMEOUT_S, BrokerFailed, NodeProcess, wait_all_ready

if TYPE_CHECKING:
    from strandline.local.security_kit import SecurityKit

QUICK: Final = {
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.fetch.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
}
"""Failures are noticed within seconds, and a busy machine is still not taken for a dead one."""
SECURED: Final = {
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "500",
    "controller.quorum.fetch.timeout.ms": "2000",
}
"""In a secured cluster a vote may have to wait for a handshake and a login, which take longer on a busy machine."""
CUT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 30.0
LOOK_EVERY_S = 0.05


class ClusterNode(NodeProcess):
    """One node of an embedded cluster."""

    module = "strandline.local.cuttable_node"

    def __init__(
        self,
        cluster: LocalCluster,
        place: NodePlace,
        properties: Mapping[str, str],
        *,
        environ: Mapping[str, str] | None,
        stderr: BinaryIO,
    ) -> None:
        super().__init__(stderr=stderr, environ=environ, called=f"node {place.node_id}")
        self.place = place
        self.node_id = place.node_id
        self.data = place.directory
        self.port = place.port
        self._kit = cluster.kit
        quick = QUICK if self._kit is None else QUICK | SECURED
        self.properties = {**quick, **properties, **cluster.properties(place)}
        self.cut: list[str] = []
        """Addresses that this node cannot reach."""

    def arguments(self) -> Sequence[str]:
        words = ["--cut", ",".join(self.cut)]
        if self._kit is not None:
            # In a file, because arguments are seen in `ps`.
            words += ["--config", str(self._kit.server_properties)]
        for name, value in self.properties.items():
            words += ["-X", f"{name}={value}"]
        return words

    def cut_off(self, addresses: Sequence[str]) -> None:
        """Cut the connections that this node makes to these addresses; with none, heal all."""
        self.cut = list(addresses)
        if not self.running:
            return
        self.command(f"cut {' '.join(addresses)}", answer="cut", timeout_s=CUT_TIMEOUT_S, before="it had cut its links")


class EmbeddedCluster:
    """The nodes of one cluster. `start`, `kill` and the like are for one thread."""

    def __init__(
        self,
        data: Path,
        nodes: int,
        *,
        port: int = 0,
        properties: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        files: contextlib.ExitStack,
        kit: SecurityKit | None = None,
    ) -> None:
        self.data = data
        self.layout = lay_out(data, nodes, port=port, properties=properties, kit=kit)
        self.nodes: dict[int, ClusterNode] = {}
        for place in self.layout.places:
            stderr = files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # the caller's stack closes it
            self.nodes[place.node_id] = ClusterNode(
                self.layout, place, properties or {}, environ=environ, stderr=stderr
            )
        self._apart: frozenset[int] = frozenset()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, for clients; they stay the same over `kill` and `start`."""
        return self.layout.bootstrap_servers

    bootstrap = bootstrap_servers
    """As a single embedded broker calls it."""

    @property
    def client_config(self) -> dict[str, str]:
        """The settings of a client of librdkafka that may do everything."""
        kit = self.layout.kit
        return {"bootstrap.servers": self.bootstrap_servers} | ({} if kit is None else kit.librdkafka_settings())

    @property
    def command_config(self) -> str | None:
        """The file for `--command-config` and Kafka's tools; None if the cluster is not secured."""
        return None if self.layout.kit is None else str(self.layout.kit.command_config)

    # All of them

    def start_all(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the nodes that do not run, and return when each answers clients."""
        fresh = [node for node in self.nodes.values() if not node.running]
        for node in fresh:
            node.spawn()
        wait_all_ready(fresh, timeout_s=timeout_s)

    def stop_all(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End all nodes at the same time, each as an operator would (SIGTERM)."""
        self.heal()
        running = [node for node in self.nodes.values() if node.running]
        for node in running:
            # A paused node would not handle the signal.
            node.resume()
        # Without the others a node cannot hand over its leaderships, and need not: no node is left to lead.
        for node in running:
            node.signal(signal.SIGTERM)
        for node in running:
            node.wait_stopped(timeout_s=timeout_s)

    def kill_all(self) -> None:
        for node in self.nodes.values():
            node.kill()

    # One of them

    def kill(self, node_id: int) -> None:
        """End a node as kill -9 does; nothing of it runs any more when this returns."""
        self.nodes[node_id].kill()

    def stop(self, node_id: int) -> None:
        """End a node as an operator would; it hands over its leaderships first."""
        self.nodes[node_id].stop()

    def start(self, node_id: int) -> None:
        """Start a node that was killed or stopped, on the same directory and port, and wait until it serves.

        A node that is cut off from the quorum cannot: start it with `spawn`, and heal.
        """
        self.nodes[node_id].start()

    def spawn(self, node_id: int) -> None:
        """Start a node and do not wait."""
        self.nodes[node_id].spawn()

    def restart(self, node_id: int) -> None:
        self.stop(node_id)
        self.start(node_id)

    def pause(self, node_id: int) -> None:
        """Pause a node, as a machine that hangs would; its connections stay."""
        self.nodes[node_id].pause()

    def resume(self, node_id: int) -> None:
        self.nodes[node_id].resume()

    # Between them

    def partition(self, *node_ids: int) -> None:
        """Separate these nodes from the others; among themselves they reach each other. It replaces the last one."""
        unknown = set(node_ids) - self.nodes.keys()
        if unknown:
            raise ValueError(f"there is no node {min(unknown)}")
        self._apart = frozenset(node_ids)
        for node in self.nodes.values():
            self._cut(node)

    def heal(self) -> None:
        """Let every node reach every other again. Connections that were cut break, and nodes connect again."""
        if self._apart:
            self.partition()

    def _cut(self, node: ClusterNode) -> None:
        others = [each for each in self.layout.places if (each.node_id in self._apart) != (node.node_id in self._apart)]
        addresses = [each.address for each in others]
        addresses += [each.controller_address for each in others if each.controller_port is not None]
        node.cut_off(addresses if self._apart else [])

    # Looking

    def create_topic(
        self, name: str, partitions: int = 1, *, replication_factor: int = -1, **configs: str | int
    ) -> None:
        """Create a topic, by default of three replicas, and wait until all of them are in sync."""
        from strandline.local.embedded_broker import create_topic

        create_topic(self.client_config, name, partitions, replication_factor, configs)
        self.wait_in_sync(name)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the node that leads a partition now; wait for one while there is none."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            for each in self.partitions(topic):
                if each.id == partition and each.leader in self.nodes:
                    return int(each.leader)
            if time.monotonic() > deadline:
                raise BrokerFailed(f"{topic}-{partition} has no leader after {ANSWER_TIMEOUT_S:g} s")
            time.sleep(LOOK_EVERY_S)

    def wait_in_sync(self, topic: str, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Wait until every replica of every partition is in sync."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.partitions(topic)
            if found and all(each.leader >= 0 and set(each.isrs) == set(each.replicas) for each in found):
                return
            if time.monotonic() > deadline:
                raise BrokerFailed(f"{topic} is not in sync after {timeout_s:g} s: {found}")
            time.sleep(LOOK_EVERY_S)

    def partitions(self, topic: str) -> list[Any]:
        """Return librdkafka's metadata of the topic's partitions, from whichever node answers; empty if none does."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({**self.client_config, "log_level": 0})
        try:
            described = admin.list_topics(topic, timeout=5).topics.get(topic)
        except KafkaException:
            # No node answered in time; the callers that wait ask again.
            return []
        return sorted(described.partitions.values(), key=lambda each: each.id) if described is not None else []

    def stderr_texts(self) -> dict[int, str]:
        """Return the end of what each node wrote to standard error."""
        texts = {node_id: node.stderr_text().strip() for node_id, node in self.nodes.items()}
        return {node_id: text for node_id, text in texts.items() if text}
