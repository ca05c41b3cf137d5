"""How a node becomes part of its cluster, and how it leaves.

A node takes part in the quorum first. Its broker registers with the active controller, reads the metadata up to its own
registration, opens its partitions, opens its door, and asks to be unfenced; then it is ready. A quorum of one need ask
nobody: it registers itself while it starts, and is ready when `start` returns.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from strandline.broker.kraft.controller_channel import ControllerChannel, LocalController
from strandline.broker.kraft.controller_driver import ControllerDriver
from strandline.broker.kraft.controller_registration import ControllerRegistration, registration_request
from strandline.broker.kraft.lifecycle import Identity, Lifecycle, Timing
from strandline.broker.kraft.metadata_quorum import MetadataQuorum, QuorumSettings
from strandline.broker.network.channel import Channel
from strandline.quorum.controller.features import SUPPORTED_FEATURES

if TYPE_CHECKING:
    from strandline.broker.kraft.liveness_probe import DeathKnocks
    from strandline.broker.node import Node

log = logging.getLogger("strandline.node")

HAND_OVER_S_MAX: Final = 2.0
HAND_OVER_LOOK_S: Final = 0.01


class Membership:
    def __init__(self, node: Node, *, incarnation_id: uuid.UUID) -> None:
        self._node = node
        self._incarnation_id = incarnation_id
        config, runtime = node.config, node.runtime
        self.metadata = MetadataQuorum(
            node.directory,
            runtime,
            node.flusher,
            settings=QuorumSettings.of(
                config,
                node_id=node.node_id,
                directory_id=node.directory_id,
                cluster_id=node.cluster_id,
                listener_address=node.advertised_controller(),
            ),
            connect=lambda host, port: Channel(runtime, node.network, host, port, client_id=f"quorum-{node.node_id}"),
        )
        self.driver = ControllerDriver(runtime, node.controller, self.metadata.write)
        self._channels: list[ControllerChannel] = []
        self.lifecycle = Lifecycle(
            runtime,
            self.channel("heartbeat"),
            Identity(
                broker_id=node.node_id,
                cluster_id=node.cluster_id,
                incarnation_id=incarnation_id,
                endpoints=self._endpoints(),
                features=SUPPORTED_FEATURES,
                log_dirs=[node.directory_id],
                rack=config.broker_rack,
                previous_broker_epoch=node.directory.clean_broker_epoch,
            ),
            timing=Timing.of(config),
            metadata_offset=lambda: self.metadata.image.applied_offset,
            offline_dirs=self._offline_dirs,
            has_company=self._has_company,
            confirmed_at=lambda: self.metadata.raft.confirmed_at(runtime.monotonic()),
            is_late=lambda: self.metadata.is_late,
        )
        self._registration: ControllerRegistration | None = None
        self.on_death: Callable[[int, int], object] = lambda broker_id, broker_epoch: None
        """Told the id and epoch of a broker that this node, the active controller, holds for dead."""
        self._is_starting = False
        self._is_open = False
        self._wire()

    def _wire(self) -> None:
        metadata, lifecycle, node = self.metadata, self.lifecycle, self._node
        metadata.on_leading = self._on_leading
        metadata.on_not_leading = self.driver.end
        metadata.on_failed = lambda pending: node.controller.revert(metadata.image, pending)
        metadata.on_applied = self._on_metadata
        metadata.on_image_replaced = self._on_image_replaced
        metadata.on_stop = node.fail
        self.driver.on_look = self._knock_at_the_silent
        metadata.wait_for_news(self._on_quorum_news)
        lifecycle.on_registered = lambda epoch: self._maybe_open()
        lifecycle.on_running = node.be_ready
        lifecycle.on_refused = node.fail

    def channel(self, purpose: str) -> ControllerChannel:
        """To the active controller. A server answers a connection in order: what may take long has its own."""
        node = self._node
        client_id = f"broker-{node.node_id}-{purpose}"
        channel = ControllerChannel(
            node.runtime,
            node.network,
            local=LocalController(node, node.controller_door.routes, client_id=client_id),  # type: ignore[arg-type]
            where=lambda: self.metadata.leader_address(),
            client_id=client_id,
        )
        self._channels.append(channel)
        return channel

    def _offline_dirs(self) -> Sequence[uuid.UUID]:
        return self._node.replicas.offline_dirs()

    def _has_company(self) -> bool:
        brokers = self.metadata.image.brokers
        return any(each.is_active for broker_id, each in brokers.items() if broker_id != self._node.node_id)

    def _endpoints(self) -> list[tuple[str, str, int]]:
        node = self._node
        return [(listener.name, *node.advertised()) for listener in node.config.client_listeners()[:1]]

    # Joining

    def start(self) -> None:
        node, metadata = self._node, self.metadata
        self._is_starting = True
        metadata.start()
        self._is_starting = False
        node.controller_door.open()
        if metadata.is_leader:
            self._start_alone()
        elif node.config.is_broker:
            self.lifecycle.start()
        else:
            node.be_ready()
        self._register_controller()

    def _start_alone(self) -> None:
        """A quorum of one has nobody to wait for: what it would ask for is written before anything else runs."""
        node, metadata = self._node, self.metadata
        if not metadata.image.features:
            metadata.write_now(node.controller.bootstrap(metadata.bootstrap_records))
        if not node.config.is_broker:
            node.be_ready()
            return
        records = node.controller.register_broker(
            node.node_id,
            epoch=metadata.next_offset,
            incarnation_id=self._incarnation_id,
            endpoints=self._endpoints(),
            log_dirs=[node.directory_id],
            rack=node.config.broker_rack,
            previous_epoch=node.directory.clean_broker_epoch,
            now=node.runtime.monotonic(),
        )
        metadata.write_now(records)
        # What the former life left may come before the registration, whose offset is the epoch.
        self.lifecycle.adopt(metadata.image.brokers[node.node_id].epoch)
        self._open(node.be_ready, at_once=True)

    def _register_controller(self) -> None:
        node = self._node
        address = node.advertised_controller()
        if address is None:
            return
        endpoints = [(listener.name, *address) for listener in node.config.controller_listeners()[:1]]
        request = registration_request(
            node.node_id, self._incarnation_id, endpoints=endpoints, features=SUPPORTED_FEATURES
        )
        self._registration = ControllerRegistration(
            node.runtime, node.controller_channel, request, known=self._registered_controller
        )
        self._registration.start()

    def _registered_controller(self) -> uuid.UUID | None:
        record = self.metadata.image.kept.by_identity.get(("controller", self._node.node_id))
        return None if record is None else record.incarnation_id

    def _maybe_open(self) -> None:
        """Open the partitions, once the metadata has been read up to our own registration."""
        lifecycle = self.lifecycle
        if self._is_open or not 0 <= lifecycle.broker_epoch <= self.metadata.image.applied_offset:
            return
        self._open(lifecycle.be_ready, at_once=False)

    def _open(self, then: Callable[[], object], *, at_once: bool) -> None:
        node = self._node

        def open_door() -> None:
            if not node.dispatcher.is_stopping:
                node.checkpoints.write_all()
                node.client_door.open()
                then()

        self._is_open = True
        node.dynamic_config.apply()
        node.replicas.open_all(open_door, at_once=at_once)

    # What the quorum says

    def _on_leading(self, epoch: int) -> None:
        log.info("active controller in epoch %d", epoch)
        metadata = self.metadata
        heard_leader = metadata.raft.heard_leader(self._node.runtime.monotonic())
        self.driver.begin(metadata.image, heard_leader=heard_leader)
        if not metadata.image.features and not self._is_starting:
            metadata.write(self._node.controller.bootstrap(metadata.bootstrap_records), lambda error: None)

    def _knock_at_the_silent(self, now: float) -> None:
        for watched in self._node.controller.probes_due(now):
            self.knocks.knock(watched)

    @cached_property
    def knocks(self) -> DeathKnocks:
        """Loaded when the first broker is missed."""
        from strandline.broker.kraft.liveness_probe import DeathKnocks

        knocks = DeathKnocks(self._node)
        knocks.on_death = self._on_death
        return knocks

    def _on_death(self, broker_id: int, broker_epoch: int) -> None:
        self.on_death(broker_id, broker_epoch)
        self.driver.look_now()

    def _on_metadata(self, records: list[Any], then: Callable[[], object]) -> None:
        if self._is_open:
            self._node.replicas.on_metadata(records, then)
        else:
            then()
            self._maybe_open()
        self.lifecycle.on_metadata()

    def _on_image_replaced(self) -> None:
        if self._is_open:
            self._node.replicas.on_image_replaced()
        else:
            self._maybe_open()
        if self._registration is not None:
            self._registration.on_metadata()
        self.lifecycle.on_metadata()

    def _on_quorum_news(self) -> None:
        for channel in self._channels:
            channel.on_leader_changed()

    # Leaving

    def leave(self, on_left: Callable[[], object]) -> None:
        """Have leaderships moved elsewhere, if there is an elsewhere; then hand over the quorum."""
        config = self._node.config
        is_alone = not config.is_broker or self.metadata.image.brokers.keys() <= {self._node.node_id}
        if is_alone or not config.controlled_shutdown_enable:
            self._hand_over(on_left)
        else:
            self.lifecycle.begin_shutdown(lambda: self._hand_over(on_left))

    def _hand_over(self, on_left: Callable[[], object]) -> None:
        """A leader of the quorum resigns, and stays until the others have another, for they need its vote perhaps."""
        if not self.metadata.is_leader or len(self.metadata.raft.voters) == 1:
            on_left()
            return
        self.metadata.resign()
        self._await_successor(self._node.runtime.monotonic() + HAND_OVER_S_MAX, on_left)

    def _await_successor(self, deadline: float, on_left: Callable[[], object]) -> None:
        runtime = self._node.runtime
        if self.metadata.leader_id in (None, self._node.node_id) and runtime.monotonic() < deadline:
            runtime.call_later(HAND_OVER_LOOK_S, self._await_successor, deadline, on_left)
        else:
            on_left()

    def close(self) -> None:
        self._node.replicas.close()
        self.metadata.stop_waiting(self._on_quorum_news)
        self.driver.close()
        if "knocks" in self.__dict__:
            self.knocks.close()
        self.lifecycle.close()
        if self._registration is not None:
            self._registration.close()
        for channel in self._channels:
            channel.close()
