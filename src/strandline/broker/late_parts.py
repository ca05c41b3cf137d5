"""Parts whose code is imported after the broker is ready, or when they are first needed."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from strandline.broker.lazy import Lazy
from strandline.quorum.controller.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from strandline.broker.audit.audit_topic import AuditTopic
    from strandline.broker.coordinating.dead_letters.dead_letter_writer import DeadLetters
    from strandline.broker.coordinating.group_driver import GroupDriver
    from strandline.broker.coordinating.lag_sampler import LagSampler
    from strandline.broker.coordinating.persister import Persister
    from strandline.broker.coordinating.share_delivery import ShareDelivery
    from strandline.broker.coordinating.share_driver import ShareDriver
    from strandline.broker.coordinating.share_offsets import ShareOffsets
    from strandline.broker.coordinating.transaction_driver import TransactionDriver
    from strandline.broker.dynamic_config import DynamicConfig
    from strandline.broker.kraft.controller_channel import ControllerChannel
    from strandline.broker.maintenance.log_cleaner import LogCleaner
    from strandline.broker.maintenance.retention import LogRetention
    from strandline.broker.maintenance.scrubber import Scrubber
    from strandline.broker.maintenance.storage import LogStorage
    from strandline.broker.metrics.history import MetricsHistory
    from strandline.broker.metrics.telemetry import Telemetry
    from strandline.broker.replicas.replicas import Replicas
    from strandline.broker.tiering.objects.object_topics import ObjectTopics
    from strandline.broker.tiering.tiered_storage import TieredStorage
    from strandline.broker.validation.schema_validation import SchemaValidation
    from strandline.handlers.support.context import BrokerServices
    from strandline.handlers.support.services import TierReport
    from strandline.partition.partition import Partition
    from strandline.partition.tier import OnBeginning


class LateParts:
    """The coordinators of a broker, the upkeep of its logs, and the metrics that clients push."""

    def __init__(
        self,
        storage: LogStorage,
        services: BrokerServices,
        controller: ControllerChannel,
        dynamic_config: DynamicConfig,
        broker_epoch: Callable[[], int],
        fail: Callable[[str], object],
    ) -> None:
        self._storage = storage
        self._environment = storage.environment
        self._services = services
        self._controller = controller
        self._dynamic_config = dynamic_config
        self._broker_epoch = broker_epoch
        self._fail = fail
        self.groups = Lazy(self._make_groups)
        self.transactions = Lazy(self._make_transactions)
        self.share_coordinator = Lazy(self._make_share_coordinator)
        self.persister = Lazy(self._make_persister)
        self.share_offsets = Lazy(self._make_share_offsets)
        self.share_delivery = Lazy(self._make_share_delivery)
        self.dead_letters = Lazy(self._make_dead_letters)
        self.lag = Lazy(self._make_lag)
        self.retention = Lazy(self._make_retention)
        self.cleaner = Lazy(self._make_cleaner)
        self.scrubber = Lazy(self._make_scrubber)
        self.telemetry = Lazy(self._make_telemetry)
        self.metrics_history = Lazy(self._make_metrics_history)
        self.audit_topic = Lazy(self._make_audit_topic)
        self.schema_validation = Lazy(self._make_schema_validation)
        self.tiering = Lazy(self._make_tiering)
        self.object_topics = Lazy(self._make_object_topics)

    def close(self) -> None:
        """Stop the parts that were loaded."""
        upkeep = (
            self.metrics_history,
            # Object topics close the store when they have written what clients wait for.
            self.tiering if self.object_topics.loaded is None else self.object_topics,
            self.lag,
            self.share_offsets,
            self.retention,
            self.cleaner,
            self.scrubber,
            self._storage.workers,
        )
        shares = (self.share_delivery, self.dead_letters, self.persister, self.share_coordinator)
        for part in (*upkeep, *shares, self.groups, self.transactions, self.schema_validation):
            if part.loaded is not None:
                part.loaded.close()

    def listen_to(self, replicas: Replicas) -> None:
        replicas.on_opened = self.on_opened
        replicas.on_unled = self.on_unled
        replicas.on_topics_changed = self.on_topics_changed
        replicas.on_topic_deleted = self.on_topic_deleted
        if self._environment.config().remote_log_storage_system_enable:
            replicas.fetchers.begin_in_tier = self._begin_in_tier
            replicas.take_object_role = lambda partition, image: self.object_topics.get().take_role(partition, image)

    def _begin_in_tier(self, partition: Partition, then: OnBeginning) -> None:
        self.tiering.get().beginnings.find(partition, then)

    # Tiered topics

    def open_tier(self) -> None:
        """Open the object store, if there is one. Raises StrandlineError, in a sentence, if it cannot be opened."""
        if self._environment.config().remote_log_storage_system_enable:
            self.tiering.get()

    def tier_report(self) -> TierReport | None:
        """Return what this node knows of its object store; None if it has none."""
        return None if self.tiering.loaded is None else self.tiering.loaded.report()

    def start_upkeep(self, configured: list[Partition]) -> None:
        """Start what looks at logs and groups from time to time; first at the logs that were configured meanwhile."""
        self.lag.get().start()
        retention = self.retention.get()
        retention.start()
        self.start_tier()
        self.cleaner.get().start()
        self.scrubber.get().start()
        for partition in configured:
            retention.look_soon(partition)
        if self._environment.config().metrics_enable:
            self.metrics_history.get().start()

    def start_tier(self) -> None:
        if self.tiering.loaded is not None:
            self.tiering.loaded.on_copied = self.retention.get().look_soon
            self.tiering.loaded.start()

    def on_opened(self, partition: Partition) -> None:
        """Give a partition of a tiered topic its tier, or take it away after a change of settings."""
        if self.tiering.loaded is not None:
            self.tiering.loaded.attach(partition)
            if partition.config.storage == "object":
                self.object_topics.get().attach(partition)
        elif partition.config.is_tiered:
            self._fail(
                f"topic {partition.topic} is tiered, and remote.log.storage.system.enable is false; set it to true, "
                "with strandline.remote.store.url"
            )

    # Called by the replicas

    def on_configured(self, partition: Partition) -> None:
        self.set_validation(partition)
        self.on_opened(partition)

    def on_led(self, partition: Partition, *, is_ready: bool) -> None:
        """Load what is coordinated here from now on: members may be gone, and transactions wait for their end."""
        index = partition.index
        self.set_validation(partition)
        if partition.tier is not None:
            self.tiering.get().begin_leading(partition)
        if partition.topic == CONSUMER_OFFSETS and (is_ready or self.groups.loaded is not None):
            groups = self.groups.get()
            groups.stop_leading(index)
            groups.load(index)
        elif partition.topic == TRANSACTION_STATE and (is_ready or self.transactions.loaded is not None):
            self.transactions.get().begin_leading(index)
        elif partition.topic == SHARE_GROUP_STATE and (is_ready or self.share_coordinator.loaded is not None):
            self.share_coordinator.get().begin_leading(index)

    def on_unled(self, partition: Partition) -> None:
        """Stop what was coordinated here."""
        partition.validation = None
        groups, transactions, shares = self.groups.loaded, self.transactions.loaded, self.share_coordinator.loaded
        for topic, part in (CONSUMER_OFFSETS, groups), (TRANSACTION_STATE, transactions), (SHARE_GROUP_STATE, shares):
            if partition.topic == topic and part is not None:
                part.stop_leading(partition.index)

    def on_topics_changed(self, names: tuple[str, ...]) -> None:
        """Let groups that subscribe to these topics assign their partitions."""
        if self.groups.loaded is not None:
            self.groups.loaded.on_topics_changed(names)

    def on_topic_deleted(self, name: str, topic_id: uuid.UUID) -> None:
        """Forget what groups and share groups stored for a topic."""
        self.groups.get().on_topic_deleted(name, topic_id)
        if self.tiering.loaded is not None:
            self.tiering.loaded.on_topic_deleted(topic_id)
        if self.object_topics.loaded is not None:
            self.object_topics.loaded.on_topic_deleted(topic_id)
        if self.share_coordinator.loaded is not None:
            self.share_coordinator.loaded.on_topic_deleted(name, topic_id)

    def set_validation(self, partition: Partition) -> None:
        """Have the records of a partition that this broker leads validated, if its topic asks for it."""
        config, validation = partition.config, None
        if config.validates_schemas and partition.is_leader:
            # Before the old one is dropped, because it may be the same.
            validation = self.schema_validation.get().of_topic(partition.topic, config)
        partition.validation = validation

    # Making each part

    def _make_groups(self) -> GroupDriver:
        from strandline.broker.coordinating.group_driver import groups_of_node

        groups = groups_of_node(self._environment, self._services, self.persister.get)
        self._dynamic_config.subscribe(groups.configure)
        return groups

    def _make_transactions(self) -> TransactionDriver:
        from strandline.broker.coordinating.transaction_driver import transactions_of_node

        transactions = transactions_of_node(self._environment, self._services)
        self._dynamic_config.subscribe(transactions.configure)
        return transactions

    def _make_share_coordinator(self) -> ShareDriver:
        from strandline.broker.coordinating.share_driver import ShareDriver

        return ShareDriver(self._environment, self._services.partition)

    def _make_persister(self) -> Persister:
        from strandline.broker.coordinating.persister import Persister

        return Persister(self._environment, self._services)

    def _make_share_offsets(self) -> ShareOffsets:
        from strandline.broker.coordinating.share_offsets import ShareOffsets

        return ShareOffsets(self._environment, self._storage.replicas.partition, self.persister.get)

    def _make_share_delivery(self) -> ShareDelivery:
        from strandline.broker.coordinating.share_delivery import ShareDelivery

        return ShareDelivery(self._environment, self.persister.get(), self.dead_letters.get)

    def _make_dead_letters(self) -> DeadLetters:
        from strandline.broker.coordinating.dead_letters.dead_letter_writer import DeadLetters

        return DeadLetters(self._environment, self._services)

    def _make_lag(self) -> LagSampler:
        from strandline.broker.coordinating.lag_sampler import LagSampler

        return LagSampler(self._environment, self._storage.replicas.partition, self.groups)

    def _make_retention(self) -> LogRetention:
        from strandline.broker.maintenance.retention import LogRetention

        return LogRetention(self._storage)

    def _make_cleaner(self) -> LogCleaner:
        from strandline.broker.maintenance.log_cleaner import LogCleaner

        cleaner = LogCleaner(self._storage)
        self._dynamic_config.subscribe(cleaner.configure)
        # What the cleaner cannot read is damaged, most likely: the scrubber finds where, and a replica is repaired.
        cleaner.on_unreadable = lambda partition: self.scrubber.get().scrub_now([partition], lambda _: None)
        return cleaner

    def _make_scrubber(self) -> Scrubber:
        from strandline.broker.maintenance.repairs import resign
        from strandline.broker.maintenance.scrubber import Scrubber

        ask_to_resign = partial(resign, self._environment, self._controller, self._broker_epoch)
        return Scrubber(self._storage, self.cleaner, ask_to_resign)

    def _make_audit_topic(self) -> AuditTopic:
        from strandline.broker.audit.audit_topic import AuditTopic

        return AuditTopic(self._services)

    def _make_schema_validation(self) -> SchemaValidation:
        from strandline.broker.validation.schema_validation import SchemaValidation

        return SchemaValidation(self._environment)

    def _make_tiering(self) -> TieredStorage:
        from strandline.broker.tiering.tiered_storage import TieredStorage

        return TieredStorage(self._storage, self._services)

    def _make_object_topics(self) -> ObjectTopics:
        from strandline.broker.tiering.objects.object_topics import ObjectTopics

        return ObjectTopics(self._storage, self._services, self.tiering.get(), self._broker_epoch)

    def _make_telemetry(self) -> Telemetry:
        from strandline.broker.metrics.telemetry import Telemetry

        return Telemetry(self._environment.runtime)

    def _make_metrics_history(self) -> MetricsHistory:
        from strandline.broker.metrics.history import MetricsHistory

        runtime, replicas = self._environment.runtime, self._storage.replicas
        return MetricsHistory(runtime, replicas, self._services.routes, self.groups, self.lag)
