"""Parts whose code is imported after the broker is ready, or when they are first needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from strandline.broker.lazy import Lazy

if TYPE_CHECKING:
    from strandline.broker.audit.audit_topic import AuditTopic
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
    from strandline.broker.metrics.telemetry import Telemetry
    from strandline.handlers.support.context import BrokerServices


class LateParts:
    """The coordinators of a broker, the upkeep of its logs, and the metrics that clients push."""

    def __init__(
        self,
        storage: LogStorage,
        services: BrokerServices,
        controller: ControllerChannel,
        dynamic_config: DynamicConfig,
        *,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._storage = storage
        self._environment = storage.environment
        self._services = services
        self._controller = controller
        self._dynamic_config = dynamic_config
        self._broker_epoch = broker_epoch
        self.groups = Lazy(self._make_groups)
        self.transactions = Lazy(self._make_transactions)
        self.share_coordinator = Lazy(self._make_share_coordinator)
        self.persister = Lazy(self._make_persister)
        self.share_offsets = Lazy(self._make_share_offsets)
        self.share_delivery = Lazy(self._make_share_delivery)
        self.lag = Lazy(self._make_lag)
        self.retention = Lazy(self._make_retention)
        self.cleaner = Lazy(self._make_cleaner)
        self.scrubber = Lazy(self._make_scrubber)
        self.telemetry = Lazy(self._make_telemetry)
        self.audit_topic = Lazy(self._make_audit_topic)

    def close(self) -> None:
        """Stop the parts that were loaded."""
        upkeep = (self.lag, self.share_offsets, self.retention, self.cleaner, self.scrubber, self._storage.workers)
        shares = (self.share_delivery, self.persister, self.share_coordinator)
        for part in (*upkeep, *shares, self.groups, self.transactions):
            if part.loaded is not None:
                part.loaded.close()

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

        return ShareDelivery(self._environment, self.persister.get())

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

    def _make_telemetry(self) -> Telemetry:
        from strandline.broker.metrics.telemetry import Telemetry

        return Telemetry(self._environment.runtime)
