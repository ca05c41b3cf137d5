"""How a node becomes part of its cluster, and how it leaves.

A node takes part in the quorum first. Its broker registers with the active controller, reads the metadata up to its own
registration, opens its partitions, accepts clients, and asks to be unfenced; then it is ready. A quorum of one
registers itself while it starts, and is ready when `start` returns.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from strandline.broker.environment import Environment
from strandline.broker.kraft.controller_channel import ControllerChannel, ControllerChannels
from strandline.broker.kraft.controller_driver import ControllerDriver, token_check_s
from strandline.broker.kraft.controller_registration import ControllerRegistration, registration_request
from strandline.broker.kraft.lifecycle import Identity, Lifecycle, Timing
from strandline.broker.kraft.metadata_quorum import MetadataQuorum
from strandline.broker.lazy import Lazy
from strandline.quorum.controller.features import SUPPORTED_FEATURES

if TYPE_CHECKING:
    from strandline.broker.dynamic_config import DynamicConfig
    from strandline.broker.kraft.liveness_probe import LivenessProbes
    from strandline.broker.network.socket_server import SocketServer
    from strandline.broker.replicas.replicas import Replicas
    from strandline.log.log_directory import LogDirectory
    from strandline.quorum.controller.controller import Controller

log = logging.getLogger("strandline.node")

HAND_OVER_S_MAX: Final = 2.0
HAND_OVER_LOOK_S: Final = 0.01


class Membership:
    """How a node joins its cluster, follows its metadata, and leaves it."""

    def __init__(
        self,
        environment: Environment,
        directory: LogDirectory,
        *,
        directory_id: uuid.UUID,
        incarnation_id: uuid.UUID,
        metadata: MetadataQuorum,
        controller: Controller,
        channels: ControllerChannels,
        control: ControllerChannel,
        replicas: Replicas,
        dynamic_config: DynamicConfig,
        clients: SocketServer,
        controllers: SocketServer,
        on_ready: Callable[[], object],
        on_failed: Callable[[str], object],
    ) -> None:
        """`on_ready` is called when the node is part of its cluster, `on_failed` with the reason if it cannot go on."""
        self._environment = environment
        self._directory = directory
        self._directory_id = directory_id
        self._incarnation_id = incarnation_id
        self._metadata = metadata
        self._controller = controller
        self._channels = channels
        self._control = control
        self._replicas = replicas
        self._dynamic_config = dynamic_config
        self._clients = clients
        self._controllers = controllers
        self._on_ready = on_ready
        self._on_failed = on_failed
        runtime = environment.runtime
        self.driver = ControllerDriver(runtime, controller, metadata.write, token_check_s(environment.config()))
        self.lifecycle = Lifecycle(
            runtime,
            channels.open("heartbeat"),
            Identity(
                broker_id=environment.node_id,
                cluster_id=environment.cluster_id,
                incarnation_id=incarnation_id,
                endpoints=self._clients.endpoints(),
                features=SUPPORTED_FEATURES,
                log_dirs=[directory_id],
                rack=environment.config().broker_rack,
                previous_broker_epoch=directory.clean_broker_epoch,
            ),
            timing=Timing.of(environment.config()),
            metadata_offset=lambda: metadata.image.applied_offset,
            offline_dirs=replicas.offline_dirs,
            has_company=self._has_company,
            confirmed_at=lambda: metadata.raft.confirmed_at(runtime.monotonic()),
            is_late=lambda: metadata.is_late,
        )
        self._registration: ControllerRegistration | None = None
        self._probes = Lazy(self._make_probes)
        """Loaded when the first broker is missed."""
        self.on_death: Callable[[int, int], object] = lambda broker_id, broker_epoch: None
        """Called with the id and the epoch of a broker that this node, the active controller, takes for dead."""
        self.on_metadata: Callable[[], object] = lambda: None
        """Called after each change of the image, and before a broker serves clients."""
        self._is_starting = False
        self._is_open = False
        self._wire()

    def _wire(self) -> None:
        metadata, lifecycle, controller = self._metadata, self.lifecycle, self._controller
        metadata.on_leading = self._on_leading
        metadata.on_not_leading = self.driver.end
        metadata.on_failed = lambda pending: controller.revert(metadata.image, pending)
        metadata.on_applied = self._on_metadata
        metadata.on_image_replaced = self._on_image_replaced
        metadata.on_stop = self._on_failed
        self.driver.on_look = self._probe_the_silent
        metadata.wait_for_news(self._channels.on_leader_changed)
        lifecycle.on_registered = lambda epoch: self._maybe_open()
        lifecycle.on_running = self._on_ready
        lifecycle.on_refused = self._on_failed

    def _has_company(self) -> bool:
        brokers = self._metadata.image.brokers
        return any(each.is_active for broker_id, each in brokers.items() if broker_id != self._environment.node_id)

    # Joining

    def start(self) -> None:
        environment, metadata = self._environment, self._metadata
        self._is_starting = True
        metadata.start()
        self._is_starting = False
        self._controllers.open()
        if metadata.is_leader:
            self._start_alone()
        elif environment.config().is_broker:
            self.lifecycle.start()
        else:
            self._on_ready()
        self._register_controller()

    def _start_alone(self) -> None:
        """Write what a node would ask a larger quorum for, before anything else runs."""
        environment, metadata = self._environment, self._metadata
        if first := self._first_records():
            metadata.write_now(first)
        if not environment.config().is_broker:
            self._on_ready()
            return
        records = self._controller.register_broker(
            environment.node_id,
            epoch=metadata.next_offset,
            incarnation_id=self._incarnation_id,
            endpoints=self._clients.endpoints(),
            log_dirs=[self._directory_id],
            rack=environment.config().broker_rack,
            previous_epoch=self._directory.clean_broker_epoch,
            now=environment.runtime.monotonic(),
        )
        metadata.write_now(records)
        # What the former life left may come before the registration, whose offset is the epoch.
        self.lifecycle.adopt(metadata.image.brokers[environment.node_id].epoch)
        self._open(self._on_ready, at_once=True)

    def _register_controller(self) -> None:
        environment = self._environment
        endpoints = self._controllers.endpoints()
        if not endpoints:
            return
        request = registration_request(
            environment.node_id,
            self._incarnation_id,
            endpoints=endpoints,
            features=SUPPORTED_FEATURES,
        )
        self._registration = ControllerRegistration(
            environment.runtime, self._control, request, known=self._registered_controller
        )
        self._registration.start()

    def _registered_controller(self) -> uuid.UUID | None:
        record = self._metadata.image.kept.by_identity.get(("controller", self._environment.node_id))
        return None if record is None else record.incarnation_id

    def _maybe_open(self) -> None:
        """Open the partitions, once the metadata has been read up to our own registration."""
        lifecycle = self.lifecycle
        if self._is_open or not 0 <= lifecycle.broker_epoch <= self._metadata.image.applied_offset:
            return
        self._open(lifecycle.be_ready, at_once=False)

    def _open(self, then: Callable[[], object], *, at_once: bool) -> None:
        def accept_clients() -> None:
            if not self._clients.limits.is_stopping:
                self._replicas.checkpoints.write_all()
                self._clients.open()
                then()

        self._is_open = True
        self._dynamic_config.apply()
        self.on_metadata()
        self._replicas.open_all(accept_clients, at_once=at_once)

    # What the quorum says

    def _on_leading(self, epoch: int) -> None:
        log.info("active controller in epoch %d", epoch)
        metadata = self._metadata
        heard_leader = metadata.raft.heard_leader(self._environment.runtime.monotonic())
        self.driver.begin(metadata.image, heard_leader=heard_leader)
        if not self._is_starting and (first := self._first_records()):
            metadata.write(first, lambda error: None)

    def _first_records(self) -> list[Any]:
        """Return what must be in the log before any broker registers: the beginning of a new one, or nothing."""
        if not self._metadata.image.features:
            return self._controller.bootstrap(self._metadata.bootstrap_records)
        return self._controller.adoption()

    def _probe_the_silent(self, now: float) -> None:
        for watched in self._controller.probes_due(now):
            self._probes.get().probe(watched)

    def _make_probes(self) -> LivenessProbes:
        from strandline.broker.kraft.liveness_probe import LivenessProbes

        probes = LivenessProbes(self._environment, self._controller)
        probes.on_death = self._on_death
        return probes

    def _on_death(self, broker_id: int, broker_epoch: int) -> None:
        self.on_death(broker_id, broker_epoch)
        self.driver.look_now()

    def _on_metadata(self, records: list[Any], then: Callable[[], object]) -> None:
        self.on_metadata()
        if self._is_open:
            self._replicas.on_metadata(records, then)
        else:
            then()
            self._maybe_open()
        self.lifecycle.on_metadata()

    def _on_image_replaced(self) -> None:
        self.on_metadata()
        if self._is_open:
            self._replicas.on_image_replaced()
        else:
            self._maybe_open()
        if self._registration is not None:
            self._registration.on_metadata()
        self.lifecycle.on_metadata()

    # Leaving

    def leave(self, on_left: Callable[[], object]) -> None:
        """Have leaderships moved elsewhere, if there is an elsewhere; then hand over the quorum."""
        config = self._environment.config()
        is_alone = not config.is_broker or self._metadata.image.brokers.keys() <= {self._environment.node_id}
        if is_alone or not config.controlled_shutdown_enable:
            self._hand_over(on_left)
        else:
            self.lifecycle.begin_shutdown(lambda: self._hand_over(on_left))

    def _hand_over(self, on_left: Callable[[], object]) -> None:
        """Resign as leader of the quorum, and stay until the others have a new one: they may need this vote."""
        if not self._metadata.is_leader or len(self._metadata.raft.voters) == 1:
            on_left()
            return
        self._metadata.resign()
        self._await_successor(self._environment.runtime.monotonic() + HAND_OVER_S_MAX, on_left)

    def _await_successor(self, deadline: float, on_left: Callable[[], object]) -> None:
        runtime = self._environment.runtime
        if self._metadata.leader_id in (None, self._environment.node_id) and runtime.monotonic() < deadline:
            runtime.call_later(HAND_OVER_LOOK_S, self._await_successor, deadline, on_left)
        else:
            on_left()

    def close(self) -> None:
        self._replicas.close()
        self._metadata.stop_waiting(self._channels.on_leader_changed)
        self.driver.close()
        if self._probes.loaded is not None:
            self._probes.loaded.close()
        self.lifecycle.close()
        if self._registration is not None:
            self._registration.close()
        self._channels.close()
