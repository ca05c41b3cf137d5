"""A node: every part, wired. Reads from top to bottom as a start-up does."""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from strandline.broker.dynamic_config import DynamicConfig
from strandline.broker.environment import Environment, OpenStore
from strandline.broker.identity import identify
from strandline.broker.kraft.controller_channel import ControllerChannels
from strandline.broker.kraft.membership import Membership
from strandline.broker.kraft.metadata_quorum import Done, MetadataQuorum, QuorumSettings
from strandline.broker.kraft.producer_id_blocks import producer_id_blocks
from strandline.broker.late_parts import LateParts
from strandline.broker.lazy import Lazy
from strandline.broker.maintenance.storage import LogStorage
from strandline.broker.metrics.watchdog import Watchdog
from strandline.broker.network.channel import Channel
from strandline.broker.network.descriptors import descriptors_max, share_out
from strandline.broker.network.dispatch import Dispatcher, Forward
from strandline.broker.network.forwarding import Forwarding
from strandline.broker.network.routes import TELEMETRY_APIS
from strandline.broker.network.socket_server import client_server, controller_server
from strandline.broker.network.throttling import Throttling
from strandline.broker.network.transport import Network
from strandline.broker.preloading import import_rest
from strandline.broker.replicas.replicas import Replicas
from strandline.broker.secured_peers import authenticate_clients, is_peer, logins, networks
from strandline.config.node_config import BrokerConfig
from strandline.errors import DamagedRecords, StrandlineError
from strandline.handlers.support.context import MutationQuota, PendingProduce
from strandline.ids import TopicPartition
from strandline.log.disk import Disk, RealDisk
from strandline.log.flusher import Flusher
from strandline.log.log_directory import LogDirectory
from strandline.partition.fetch_session import FetchSessions
from strandline.partition.partition import Partition
from strandline.partition.reencoding import Reencoder
from strandline.quorum.controller.controller import Controller
from strandline.quorum.controller.producer_ids import ProducerIds
from strandline.quorum.image.cluster_image import ClusterImage
from strandline.runtime.process import GcPauses
from strandline.runtime.runtime import Runtime, TimerHandle
from strandline.security.principal import Session

if TYPE_CHECKING:
    from strandline.broker.audit.audit_topic import AuditTopic
    from strandline.broker.audit.node_audit import NodeAudit
    from strandline.broker.coordinating.group_driver import GroupDriver
    from strandline.broker.coordinating.lag_sampler import LagSampler
    from strandline.broker.coordinating.persister import Persister
    from strandline.broker.coordinating.share_delivery import ShareDelivery
    from strandline.broker.coordinating.share_driver import ShareDriver
    from strandline.broker.coordinating.share_offsets import ShareOffsets
    from strandline.broker.coordinating.transaction_driver import TransactionDriver
    from strandline.broker.maintenance.log_cleaner import LogCleaner
    from strandline.broker.maintenance.scrubber import Scrubber
    from strandline.broker.maintenance.storage_worker import StorageWorkers
    from strandline.broker.metrics.history import MetricsHistory
    from strandline.broker.metrics.telemetry import Telemetry
    from strandline.security.acl.authorizer import Authorizer

log = logging.getLogger("strandline.node")

TICK_S: Final = 1.0
CATCH_UP_S: Final = 10.0
"""How long the loop is given, after it stood still, to handle the requests that arrived meanwhile."""
LOAD_REST_S: Final = 0.05


class Node:
    dispatcher: Dispatcher
    metadata: MetadataQuorum

    def __init__(
        self,
        data: Path,
        config: BrokerConfig,
        runtime: Runtime,
        network: Network,
        *,
        disk: Disk | None = None,
        takes_telemetry: bool = True,
        open_store: OpenStore | None = None,
    ) -> None:
        self.config = config
        self.runtime = runtime
        self.flusher = Flusher(runtime)
        self.reencoder = Reencoder(runtime)
        self.started_ms = runtime.now_ms()
        self.watchdog = Watchdog(runtime)
        self.watchdog.explain, self.watchdog.on_look = self._explain_stall, self._next_window
        self.gc_pauses = GcPauses()
        self.tls, network, controller_network = networks(config, runtime, network)
        disk = disk or RealDisk()
        self.directory = LogDirectory(data, disk=disk, open_files_max=_open_files_max(config))
        meta = identify(self.directory, config, self._new_uuid)
        self.node_id, self.cluster_id, self.directory_id = meta.node_id, meta.cluster_id, meta.directory_id
        environment = self.environment = Environment(
            runtime,
            network,
            disk,
            self.node_id,
            self.cluster_id,
            lambda: self.config,
            lambda: self.metadata.image,
            open_store=open_store,
            **logins(config, runtime),
        )
        secured = {} if self.tls is None else self.tls.by_listener
        self.client_server = client_server(environment, self, is_active=self._is_active, tls=secured)
        self.controller_server = controller_server(environment, self, is_active=self._is_active, tls=secured)
        authenticate_clients(environment, self.client_server, self.controller_server)
        self.dispatcher, self.listener = self.client_server.dispatcher, self.client_server.listener
        self.routes = self.client_server.routes
        if not takes_telemetry:
            # As in Kafka, a broker without a receiver of client metrics does not offer to take them.
            for api_key in TELEMETRY_APIS:
                self.routes[api_key].is_advertised = False
        self.sessions = FetchSessions(runtime.random, sessions_max=config.max_incremental_fetch_session_cache_slots)
        self.produce_waits: deque[PendingProduce] = deque()
        self.controller = Controller(None, config=config, rng=runtime.random)
        incarnation_id = self._new_uuid()
        self.metadata = MetadataQuorum(
            self.directory,
            runtime,
            self.flusher,
            settings=QuorumSettings.of(
                config,
                node_id=self.node_id,
                directory_id=self.directory_id,
                cluster_id=self.cluster_id,
                listener_address=self._controller_address(),
            ),
            connect=lambda host, port: Channel(
                runtime,
                controller_network,
                host,
                port,
                client_id=f"quorum-{self.node_id}",
                login=environment.controller_login,
            ),
        )
        self.authorizer = self._make_authorizer()
        channels = ControllerChannels(
            environment, controller_network, self, self.controller_server.routes, self.metadata.leader_address
        )
        self.controller_channel = channels.open("control")
        forward: Forward = Forwarding(channels.open("forwarding")).forward
        if self.tls is not None:
            forward = self.tls.checked(forward, self.node_id)
        for dispatcher in self.client_server.dispatchers:
            dispatcher.forward = forward
        self.dynamic_config = DynamicConfig(environment)
        self.dynamic_config.subscribe(self._configure)
        self.dynamic_config.subscribe(self.controller.configure)
        self.dynamic_config.subscribe(self.client_server.configure)
        if self.tls is not None:
            self.dynamic_config.subscribe(self.tls.configure)
        self.dynamic_config.apply()
        workers = Lazy(self._make_storage_workers)
        self.replicas = Replicas(
            environment,
            self.directory,
            directory_id=self.directory_id,
            flusher=self.flusher,
            reencoder=self.reencoder,
            metadata=self.metadata,
            dynamic_config=self.dynamic_config,
            controller=self.controller_channel,
            broker_epoch=self._broker_epoch,
            workers=workers,
        )
        self.replicas.on_led = self._on_led
        self.replicas.on_configured = self._on_configured
        self.replicas.on_damaged = self._on_damaged
        self.checkpoints = self.replicas.checkpoints
        self.topics, self.partition = self.replicas.topics, self.replicas.partition
        self.storage = LogStorage(environment, self.directory, self.flusher, self.replicas, self.checkpoints, workers)
        self.late = LateParts(
            self.storage, self, self.controller_channel, self.dynamic_config, self._broker_epoch, self._fail
        )
        self.late.listen_to(self.replicas)
        self.tier_report = self.late.tier_report
        self.membership = Membership(
            environment,
            self.directory,
            directory_id=self.directory_id,
            incarnation_id=incarnation_id,
            metadata=self.metadata,
            controller=self.controller,
            channels=channels,
            control=self.controller_channel,
            replicas=self.replicas,
            dynamic_config=self.dynamic_config,
            clients=self.client_server,
            controllers=self.controller_server,
            on_ready=self._be_ready,
            on_failed=self._fail,
        )
        self.audit = self._make_audit()
        self.events = None if self.audit is None else self.audit.events
        self.lifecycle = self.membership.lifecycle
        self.throttling = Throttling(environment, lambda: self.client_server.dispatchers)
        self.membership.on_metadata = self.throttling.renew
        self.producer_ids = ProducerIds(
            producer_id_blocks(self.controller_channel, broker_id=self.node_id, broker_epoch=self._broker_epoch)
        )
        self._configured_early: list[Partition] = []
        """Partitions whose settings changed before retention was loaded."""
        self._ticking: TimerHandle | None = None
        self._producers_expired_at = self.runtime.monotonic()
        self._ticked_ms = self.runtime.now_ms()
        self._stalled_at = -CATCH_UP_S
        """When a tick came late: the process had stood still."""
        self._metadata_failed_at: float | None = None
        self.is_ready = False
        """Whether the node has joined its cluster and clients are served."""
        self.on_ready: Callable[[], object] = lambda: None
        self.has_failed = False
        self.on_failed: Callable[[], object] = lambda: None
        """Called when the node cannot go on and should be stopped."""

    def _new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self.runtime.random.getrandbits(128), version=4)

    def _is_active(self) -> bool:
        return self.metadata.is_leader

    def _broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch

    def _configure(self, config: BrokerConfig) -> None:
        self.config = config
        self.directory.open_files.open_files_max = _open_files_max(config)

    def _make_authorizer(self) -> Authorizer | None:
        if not self.config.authorizer_class_name:
            return None
        from strandline.broker.access_control import loaded_authorizer

        return loaded_authorizer(self.config, self.metadata, self.runtime.monotonic)

    def _make_audit(self) -> NodeAudit | None:
        if not self.config.is_audited():
            return None
        from strandline.broker.audit.node_audit import NodeAudit

        audit = NodeAudit(self.environment, self, self.audit_topic)
        audit.watch(self.client_server, self.controller_server, tls=self.tls)
        return audit

    # Starting

    def start(self) -> tuple[str, int]:
        """Take part in the quorum, recover, register and serve; return the address that was bound.

        In a quorum of one all of that is done when this returns. Otherwise `on_ready` is called when it is.
        """
        self.late.open_tier()
        self._ticking = self.runtime.call_later(TICK_S, self._tick)
        self.membership.start()
        self.watchdog.start()
        self.gc_pauses.start()
        self._rest = import_rest([*self.routes.values(), *self.controller_server.routes.values()])
        self.runtime.call_later(LOAD_REST_S, self._load_the_rest)
        return self.client_server.bound or self.controller_server.bound or ("", 0)

    def _be_ready(self) -> None:
        if not self.is_ready:
            self.is_ready = True
            self.on_ready()

    def _fail(self, reason: str) -> None:
        if not self.has_failed:
            log.critical("stopping: %s", reason)
            self.has_failed = True
            self.on_failed()

    def _make_storage_workers(self) -> StorageWorkers:
        from strandline.broker.maintenance.storage_worker import storage_workers

        return storage_workers(self.runtime, self.directory.disk)

    def _on_led(self, partition: Partition) -> None:
        self.late.on_led(partition, is_ready=self.is_ready)

    def _on_damaged(self, partition: Partition, error: DamagedRecords) -> None:
        # When the scrubber starts, it looks at what readers found before.
        if self.late.scrubber.loaded is not None:
            self.late.scrubber.loaded.on_damaged(partition, error)

    def _on_configured(self, partition: Partition) -> None:
        self.late.on_configured(partition)
        if self.late.retention.loaded is not None:
            self.late.retention.loaded.look_soon(partition)
        else:
            self._configured_early.append(partition)

    def _load_the_rest(self) -> None:
        """Import what the first requests of each kind would wait for, one module per turn of the loop."""
        if self.dispatcher.limits.is_stopping:
            return
        if next(self._rest, None) is not None:
            self.runtime.call_soon(self._load_the_rest)
        else:
            self.late.groups.get()
            self.transactions.load_led()
            self.late.start_upkeep(self._configured_early)
            self._configured_early.clear()

    # What handlers use. An attribute that is cached costs a request no call.

    @cached_property
    def groups(self) -> GroupDriver:
        """The groups that this broker coordinates."""
        return self.late.groups.get()

    @cached_property
    def transactions(self) -> TransactionDriver:
        """The transactions that this broker coordinates."""
        return self.late.transactions.get()

    @cached_property
    def share_coordinator(self) -> ShareDriver:
        """The share partitions whose state this broker keeps."""
        return self.late.share_coordinator.get()

    @cached_property
    def persister(self) -> Persister:
        """The state of share partitions, wherever it is kept."""
        return self.late.persister.get()

    @cached_property
    def share_offsets(self) -> ShareOffsets:
        """Where share groups are in their partitions."""
        return self.late.share_offsets.get()

    @cached_property
    def share_delivery(self) -> ShareDelivery:
        """The share partitions whose data this broker leads."""
        return self.late.share_delivery.get()

    @cached_property
    def lag(self) -> LagSampler:
        """How far the groups that this broker coordinates are behind."""
        return self.late.lag.get()

    @cached_property
    def cleaner(self) -> LogCleaner:
        """What compacts logs."""
        return self.late.cleaner.get()

    @cached_property
    def scrubber(self) -> Scrubber:
        """What finds damage on the disk and has it repaired."""
        return self.late.scrubber.get()

    @cached_property
    def telemetry(self) -> Telemetry:
        """The metrics that clients push."""
        return self.late.telemetry.get()

    @cached_property
    def metrics_history(self) -> MetricsHistory:
        """What this broker measured in the last day."""
        return self.late.metrics_history.get()

    @cached_property
    def audit_topic(self) -> AuditTopic:
        """What appends to the audit topic where this broker leads it."""
        return self.late.audit_topic.get()

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    def mutation_quota(self, user: str, client_id: str, *, is_strict: bool) -> MutationQuota:
        return self.throttling.mutation_quota(user, client_id, is_strict=is_strict)

    def is_peer(self, listener_name: str, session: Session) -> bool:
        return is_peer(self.environment, listener_name, session)

    def write_start_offsets(self, on_done: Done) -> None:
        self.checkpoints.write_start_offsets(on_done)

    def log_failure(self, topic: str, index: int) -> StrandlineError | None:
        return self.replicas.offline.get(TopicPartition(topic, index))

    def recovery_of(self, topic: str, index: int) -> str | None:
        recovery = self.replicas.recovery
        return recovery.progress if recovery.is_under_way(TopicPartition(topic, index)) else None

    def hurry_recovery(self, topic: str, index: int) -> None:
        self.replicas.recovery.hurry(TopicPartition(topic, index))

    @property
    def may_be_replaced(self) -> bool:
        return self.lifecycle.may_be_replaced

    @property
    def is_serving(self) -> bool:
        """Whether clients are taken: the start is over, and no stop has begun."""
        return self._ticking is not None and not self.dispatcher.limits.is_stopping

    def count_error(self, api_key: int, code: int) -> None:
        meter = self.routes[api_key].meter
        if meter is not None:
            meter.count_error(code)

    def advertised(self, listener_name: str) -> tuple[str, int] | None:
        return self.client_server.advertised(listener_name)

    def _controller_address(self) -> tuple[str, int] | None:
        """Return where voters reach this controller."""
        for _, host, port, _ in self.controller_server.endpoints():
            return host, port
        return None

    def _next_window(self) -> None:
        for dispatcher in self.client_server.dispatchers:
            dispatcher.next_window()

    def _explain_stall(self, stalled_s: float) -> str:
        """Return what kept the loop, as far as it was measured."""
        slow = None
        for dispatcher in self.client_server.dispatchers:
            slow, dispatcher.slow = dispatcher.slow or slow, None
        gc_s, self.gc_pauses.unread_longest_s = self.gc_pauses.unread_longest_s, 0.0
        if gc_s > stalled_s / 2:
            return f"Python's garbage collector ran for {gc_s * 1000:.0f} ms"
        if slow is None:
            return ""
        took_ns, api, host, client_id = slow
        return f"{api} of {host} (client id {client_id!r}) took {took_ns / 1e6:.0f} ms"

    # Every second

    def _tick(self) -> None:
        self._ticking = self.runtime.call_later(TICK_S, self._tick)
        now = self.runtime.monotonic()
        waits = self.produce_waits
        while waits and (waits[0].done or waits[0].deadline <= now):
            wait = waits.popleft()
            if not wait.done:
                wait.expire()
        self.replicas.timed_flushes.flush_due(now)
        self.directory.open_files.trim()
        self.checkpoints.write_due(now)
        for server in (self.client_server, self.controller_server):
            server.tick(idle_s=self.config.connections_max_idle_ms / 1000)
        if self.tls is not None:
            self.tls.tick()
        self._maybe_expire_producers(now)
        if self.metadata.log.failure is not None:
            self._on_metadata_failed(now)

    def _maybe_expire_producers(self, now: float) -> None:
        """Forget silent producers if that is due, but not right after the process stood still.

        Retries may have arrived in time and wait in their sockets: they must find their producers. The time that passed
        is measured by the clock that producers expire by. It also moves while the machine is suspended.
        """
        now_ms = self.runtime.now_ms()
        if now_ms - self._ticked_ms > 2000 * TICK_S:
            self._stalled_at = now
        self._ticked_ms = now_ms
        is_due = (now - self._producers_expired_at) * 1000 >= self.config.producer_id_expiration_check_interval_ms
        if is_due and now - self._stalled_at >= CATCH_UP_S:
            self._producers_expired_at = now
            self.replicas.expire_producers()

    def _on_metadata_failed(self, now: float) -> None:
        """Stop the node some time after its metadata log failed; meanwhile it serves clients but can change nothing."""
        if self._metadata_failed_at is None:
            self._metadata_failed_at = now
        elif not self.has_failed and (now - self._metadata_failed_at) * 1000 >= self.config.log_dir_failure_timeout_ms:
            self._fail(f"{self.metadata.log.failure} (log.dir.failure.timeout.ms is over)")

    # Stopping

    def stop(self, on_stopped: Callable[[], object]) -> None:
        """Hand over what is led here, finish what was begun, leave a clean directory; then call back."""
        from strandline.broker.shutdown import Shutdown

        Shutdown(self, on_stopped).begin()

    def stop_ticking(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()


def _open_files_max(config: BrokerConfig) -> int:
    return share_out(descriptors_max(), open_files_max=config.open_files_max).open_files_max
