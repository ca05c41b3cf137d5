"""A cluster of real nodes on simulated machines: started, killed, stopped, cut off, unplugged and brought back.

A node is `broker.node.Node`, the one that serves clients, on a runtime, network and disk of the simulation. Everything
it does follows from the seed, so it must take nothing from anywhere else: no clock, thread, socket, file or chance that
is not given to it, and no order that depends on where objects lie in memory.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.simulator.world.bucket import SimBucket
from tests.simulator.world.disk import SimDisk
from tests.simulator.world.loop import SimLoop
from tests.simulator.world.network import SimNetwork
from tests.simulator.world.runtime import SimHost, SimRuntime
from tests.tiers.store.faulty_store import StoreFaults

from strandline.broker.node import Node
from strandline.config.node_config import BrokerConfig
from strandline.errors import StrandlineError
from strandline.quorum.raft.state_files import MetaProperties, uuid_text

CLIENT_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
DATA: Final = Path("data")
BUSY_SHARE: Final = 0.5
"""Of the lives of a node, how many open and make one log in each turn of the loop: time stands still within a turn, so
otherwise all would be done in one, and nothing ever come in between."""
UPLOAD_S: Final = 20.0
"""What the upload of a segment may take, with all attempts."""
STALE_COPY_S: Final = UPLOAD_S + 40.0
"""Longer than that, and than its record may take."""
CACHE_BYTES: Final = 20_000
"""Of the object store, in memory: a few segments, so that readers that go back ask the store again."""
RESTART_S: Final = 1.0
"""After how long a process that ended by itself is started again."""

# Expensive for a simulated node, and of no use: metrics read the clock, and no test reads metrics.
_QUIET: Final = {"metrics.enable": "false"}


class SimNode:
    """One machine of the cluster, with the node that runs on it, if one does."""

    def __init__(self, cluster: SimCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.name = f"node-{node_id}"
        self.host = SimHost(cluster.loop, self.name)
        self.disk = SimDisk(cluster.loop.derive(f"disk {self.name}"))
        self.store_faults = StoreFaults()
        """Of its way to the object store, in all its lives."""
        self.lives = 0
        self.runtime: SimRuntime | None = None
        self.node: Node | None = None
        self.is_stopping = False
        """Whether the node that runs was told to stop. A node that ended, in whatever way, is not stopping."""
        self.failure: str = ""
        """Why the node could not start."""
        self.given_up = 0
        """How often the node said that it cannot go on."""

    @property
    def is_up(self) -> bool:
        return self.node is not None

    @property
    def is_paused(self) -> bool:
        return self.runtime is not None and self.runtime.actor.is_paused

    def format(self, cluster_id: str) -> None:
        """What `strandline format` leaves behind."""
        self.disk.make_directory(DATA)
        directory_id = uuid.UUID(int=self.host.random.getrandbits(128), version=4)
        meta = MetaProperties(cluster_id, self.node_id, directory_id)
        self.disk.write_whole(DATA / "meta.properties", meta.text().encode())
        self.disk.sync_all()

    def replace_disk(self) -> None:
        """Put an empty disk in, formatted for this node and cluster, as docs/cluster.md says."""
        assert self.node is None
        self.disk.wipe()
        self.format(self.cluster.cluster_id)

    # Life and death

    def start(self) -> None:
        assert self.node is None
        self.lives += 1
        self.failure = ""
        if self.disk.has_sync_failed:
            # After a failed sync the page cache shows what the platter never got, and a new process would believe it:
            # so the machine is booted.
            self.disk.power_cut()
        runtime = self.runtime = SimRuntime(self.host, self.lives)
        self.disk.now_ms = runtime.now_ms
        network = self.cluster.network.of(runtime)
        try:
            node = Node(
                DATA,
                self.cluster.config_of(self.node_id),
                runtime,
                network,
                disk=self.disk,
                takes_telemetry=False,
                open_store=self.cluster.bucket.opener(self, self.lives),
            )
            # Neither is part of what a node promises, and both look at real clocks.
            node.watchdog.start = node.gc_pauses.start = _nothing  # type: ignore[method-assign]
            node.directory.new_hex = lambda: f"{runtime.random.getrandbits(128):032x}"
            node.on_failed = self._on_failed
            if self.cluster.loop.derive(f"work {self.name} {self.lives}").random() < BUSY_SHARE:
                node.replicas.work_s_max = -1.0
            self.node = node
            node.start()
            tiering = node.late.tiering.loaded
            if tiering is not None:
                # A copy whose node is gone is deleted when no upload can last so long: here, within a run.
                tiering.copier.upload_s_max, tiering.stale_copy_s = UPLOAD_S, STALE_COPY_S
                tiering.cache.size_bytes_max = CACHE_BYTES
        except (StrandlineError, OSError) as error:
            self.failure = f"{type(error).__name__}: {error}"
            self._end()
            self.disk.process_died()
            return
        self.cluster.on_started(self)

    def _on_failed(self) -> None:
        """End the process of a node that cannot go on; its supervisor starts another."""
        self.given_up += 1
        self.cluster.loop.call_in(0.0, self._replace, self.lives)

    def _replace(self, life: int) -> None:
        if life == self.lives and self.node is not None:
            self.kill()
            self.cluster.loop.call_in(RESTART_S, self._start_again, life)

    def _start_again(self, life: int) -> None:
        if life == self.lives and self.node is None:
            self.start()

    def stop(self, on_stopped: Callable[[], object] | None = None) -> None:
        """SIGTERM: an orderly end."""
        node, runtime = self.node, self.runtime
        if node is None or runtime is None or self.is_stopping:
            return
        self.is_stopping = True
        life = self.lives

        def stopped() -> None:
            if self.node is node and life == self.lives:
                self._end()
                self.disk.process_died()
                if on_stopped is not None:
                    on_stopped()

        runtime.call_soon(node.stop, stopped)

    def kill(self) -> None:
        """SIGKILL: the page cache and the kernel live on."""
        if self.node is not None:
            self._end()
            self.disk.process_died()

    def power_cut(self, *, reordered: bool = False) -> None:
        """The machine is dark; what was not synced is lost, or some of it."""
        if self.runtime is not None and self.node is not None:
            self.runtime.actor.kill()
            self.cluster.network.power_cut(self.runtime)
            self._forget()
        self.disk.power_cut(reordered=reordered)

    def _end(self) -> None:
        assert self.runtime is not None
        self.runtime.actor.kill()
        self.cluster.network.process_died(self.runtime)
        self._forget()

    def _forget(self) -> None:
        """Note that the node has ended, so that it can be started again."""
        self.node = None
        self.is_stopping = False
        self.cluster.on_ended(self)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.runtime is not None:
            self.runtime.actor.pause()

    def resume(self) -> None:
        if self.runtime is not None:
            self.runtime.actor.resume()


class SimCluster:
    def __init__(
        self,
        loop: SimLoop,
        *,
        nodes: int = 3,
        controllers: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.loop = loop
        self.network = SimNetwork(loop)
        self.bucket = SimBucket(loop)
        self.settings = {**_QUIET, **(settings or {})}
        self.cluster_id = uuid_text(uuid.UUID(int=loop.derive("cluster id").getrandbits(128), version=4))
        self.nodes = {node_id: SimNode(self, node_id) for node_id in range(1, nodes + 1)}
        self.controllers = list(self.nodes)[: controllers or nodes]
        self.on_started: Callable[[SimNode], object] = _nothing
        """Told of each node that starts and of each that ends, however it does."""
        self.on_ended: Callable[[SimNode], object] = _nothing
        for node in self.nodes.values():
            node.format(self.cluster_id)

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        return [(node.name, CLIENT_PORT) for node in self.nodes.values()]

    def config_of(self, node_id: int) -> BrokerConfig:
        name = self.nodes[node_id].name
        is_controller = node_id in self.controllers
        listeners = f"PLAINTEXT://{name}:{CLIENT_PORT}"
        given = {"node.id": str(node_id), "log.dirs": str(DATA), "http.listener": "off"}
        if len(self.nodes) > 1:
            if is_controller:
                listeners += f",CONTROLLER://{name}:{CONTROLLER_PORT}"
            given["controller.listener.names"] = "CONTROLLER"
            given["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
            given["process.roles"] = "broker,controller" if is_controller else "broker"
            given["controller.quorum.voters"] = ",".join(
                f"{voter}@{self.nodes[voter].name}:{CONTROLLER_PORT}" for voter in self.controllers
            )
        given["listeners"] = listeners
        return BrokerConfig.load("", {**given, **self.settings}, {}, file_name="simulated.properties")

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def host(self, name: str) -> SimHost:
        """Return a machine beside the cluster, for a client."""
        return SimHost(self.loop, name)

    def up(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.is_up]

    def stop(self) -> None:
        """The end of the run: nothing of it happens any more."""
        for node in self.nodes.values():
            node.kill()


def _nothing(*_: Any) -> None:
    pass
