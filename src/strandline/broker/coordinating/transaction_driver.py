"""Finds the shard of a transactional id and runs it: which partition of `__transaction_state`, loaded or not, led here.

A shard is loaded as soon as this node leads its partition, since transactions end without anybody asking: markers of a
decision are still to be written, and one that is open for too long is to be aborted. `coordinator_context` runs it,
`marker_sender` has the markers written, `transaction_verification` asks about transactions that are coordinated here
or elsewhere.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from strandline.broker.coordinating.coordinator_context import CoordinatorContext
from strandline.broker.coordinating.coordinator_runtime import (
    CoordinatorRuntime,
    CoordinatorTopic,
    CoordinatorTopicOfNode,
    FindPartition,
)
from strandline.broker.coordinating.marker_sender import MarkerSender, WaitingMarker
from strandline.broker.coordinating.pending_appends import InternalPartition
from strandline.broker.coordinating.transaction_verification import OnVerified, Place, TransactionVerification
from strandline.broker.environment import Environment
from strandline.codec.columns import Columns
from strandline.config.transaction_settings import TransactionSettings
from strandline.coordinators.groups.events import Tell
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.partitioning import TRANSACTION_STATE_TOPIC, partition_of_transactional_id
from strandline.coordinators.transactions.events import (
    AllocateProducerId,
    MarkersWritten,
    ProducerIdAllocated,
    Request,
    SendMarkers,
)
from strandline.coordinators.transactions.transaction_config import TransactionConfig
from strandline.coordinators.transactions.transaction_shard import TransactionShard
from strandline.errors import ErrorCode, error_code, named
from strandline.handlers.support.context import BrokerServices
from strandline.observability.log_lines import fields
from strandline.quorum.image.cluster_image import TRANSACTION_VERSION
from strandline.runtime.runtime import Runtime

log = logging.getLogger("strandline.transactions")

RELOAD_S: Final = 0.5
"""How long after a failed append a shard is loaded again. What failed is still to be done, and no client may retry."""
RELOAD_S_MAX: Final = 30.0
"""The same where the load itself fails, again and again."""

Hosted = CoordinatorContext[TransactionShard]


def transactions_of_node(environment: Environment, services: BrokerServices) -> TransactionDriver:
    """The transactions of a real node."""
    topic = TransactionTopicOfNode(environment, services.partition)
    driver = TransactionDriver(
        environment.runtime,
        topic,
        environment.config(),
        next_producer_id=services.producer_ids.next,
        markers=MarkerSender(environment, services),
    )
    driver.verification = TransactionVerification(environment, services.partition, driver)
    return driver


def transaction_config(settings: TransactionSettings, *, transaction_version: int) -> TransactionConfig:
    return TransactionConfig(
        timeout_ms_max=settings.transaction_max_timeout_ms,
        id_expiration_ms=settings.transactional_id_expiration_ms,
        id_expiration_check_interval_ms=settings.transaction_remove_expired_transaction_cleanup_interval_ms,
        transaction_version=transaction_version,
    )


class CoordinatorPartition(InternalPartition, Protocol):
    leader_epoch: int


class TransactionTopic(CoordinatorTopic, Protocol):
    """`__transaction_state` as this node sees it."""

    def partition(self, index: int) -> CoordinatorPartition | None:
        """The partition if this node leads it."""

    def hash_level(self) -> int:
        """Which hash finds the partition of an id; the same as long as the cluster exists."""

    def transaction_version(self) -> int:
        """The finalised level of the feature `transaction.version`."""


class Markers(Protocol):
    """Who has markers written."""

    def send(self, index: int, markers: SendMarkers, on_written: Callable[[MarkersWritten], object]) -> None:
        """Have them written until they are, and tell of each part."""

    def drop(self, index: int) -> None:
        """Forget all that a shard asked for: another coordinates."""

    def waiting(self, index: int, transactional_id: str, *, count_max: int) -> list[WaitingMarker]:
        """Those of one transaction that are not written yet."""

    @property
    def pending_count(self) -> int:
        """How many are not written yet."""

    def close(self) -> None: ...


class TransactionDriver(CoordinatorRuntime[TransactionShard]):
    _topic: TransactionTopic
    verification: TransactionVerification

    def __init__(
        self,
        runtime: Runtime,
        topic: TransactionTopic,
        settings: TransactionSettings,
        *,
        next_producer_id: Callable[[Callable[[int, BaseException | None], object]], object],
        markers: Markers,
    ) -> None:
        super().__init__()
        self._runtime = runtime
        self._topic = topic
        self._config = transaction_config(settings, transaction_version=topic.transaction_version())
        self._next_producer_id = next_producer_id
        self._markers = markers
        self.marker_connections: dict[str, int] = {}
        """By the client id of a broker: the number of the last connection by which it had markers written here."""
        self._failures: dict[int, int] = {}
        """How often in a row a shard was closed before it was loaded."""

    def configure(self, settings: TransactionSettings) -> None:
        """Obey the settings of the node as they are now."""
        self._obey(transaction_config(settings, transaction_version=self._topic.transaction_version()))

    def _obey(self, config: TransactionConfig) -> None:
        self._config = config
        for hosted in self._hosted.values():
            hosted.shard.config = config

    def _obey_level(self) -> None:
        """Obey the level of the feature as it is now. No event tells of a change, so it is read each time."""
        level = self._topic.transaction_version()
        if self._config.transaction_version != level:
            self._obey(dataclasses.replace(self._config, transaction_version=level))

    # ---- requests

    def partition_index(self, transactional_id: str) -> int:
        """The partition whose leader coordinates the id; FindCoordinator answers with that leader."""
        return partition_of_transactional_id(
            transactional_id, partition_count=self._topic.partition_count(), hash_level=self._topic.hash_level()
        )

    def submit_to(self, index: int, event: Request) -> None:
        self._obey_level()
        super().submit_to(index, event)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        places: Sequence[Place],
        *,
        adds: bool,
        then: OnVerified,
    ) -> None:
        """Whether these partitions are in the producer's open transaction, wherever it is coordinated."""
        self.verification.verify(transactional_id, producer_id, producer_epoch, places, adds=adds, then=then)

    # ---- looking

    def waiting_markers(self, transactional_id: str, *, count_max: int) -> list[WaitingMarker]:
        """Markers of its decided transaction that are not written yet."""
        return self._markers.waiting(self.partition_index(transactional_id), transactional_id, count_max=count_max)

    @property
    def waiting_markers_count(self) -> int:
        """Of all transactions."""
        return self._markers.pending_count

    def ids_of(self, index: int) -> tuple[str, ...]:
        """The transactional ids that a shard knows; none if it is not loaded here."""
        hosted = self._hosted.get(index)
        return () if hosted is None or hosted.is_loading else tuple(hosted.shard.transactions)

    @property
    def is_loading(self) -> bool:
        """Whether the load of some shard has begun and not ended."""
        return any(hosted.is_loading for hosted in self._hosted.values())

    # ---- leading

    def load_led(self) -> None:
        """Load all that are led here, one in each turn of the loop."""
        self._load_next(iter(self.led_indexes()))

    def _load_next(self, indexes: Iterator[int]) -> None:
        for index in indexes:
            if self.load(index):
                self._runtime.call_soon(self._load_next, indexes)
                return

    def begin_leading(self, index: int) -> None:
        """An epoch begins in which this node coordinates these transactions."""
        self.stop_leading(index)
        self.load(index)

    def close(self) -> None:
        super().close()
        self._markers.close()
        self.verification.close()

    # ---- hosting

    def _host(self, index: int) -> Hosted | None:
        partition = self._topic.partition(index)
        if partition is None:
            return None
        # What is loaded goes on by itself: its next record may be written before the first request.
        self._obey_level()

        def on_closed() -> None:
            self._hosted.pop(index, None)
            self._markers.drop(index)
            if not self._closed:
                failures = self._failures[index] = self._failures.get(index, -1) + 1 if hosted.is_loading else 0
                # Where it was closed because another leads, there is nothing to load then.
                delay_s = min(RELOAD_S * 2 ** min(failures, 10), RELOAD_S_MAX)
                self._runtime.call_later(delay_s, self.load, index)

        def on_effect(effect: SendMarkers | AllocateProducerId) -> None:
            if isinstance(effect, SendMarkers):
                self._markers.send(index, effect, hosted.step)
            else:
                self._allocate(hosted, effect)

        hosted = CoordinatorContext(
            f"{TRANSACTION_STATE_TOPIC}-{index}",
            self._runtime,
            TransactionShard(self._config, coordinator_epoch=partition.leader_epoch),
            _records_of,
            partition,
            tell=_tell,
            on_effect=on_effect,
            on_closed=on_closed,
        )
        self._hosted[index] = hosted
        hosted.load_more()
        return self._hosted.get(index)

    def _allocate(self, hosted: Hosted, effect: AllocateProducerId) -> None:
        def on_id(producer_id: int, error: BaseException | None) -> None:
            code = ErrorCode.NONE if error is None else named(error_code(error))
            hosted.step(ProducerIdAllocated(effect.token, producer_id, code))

        self._next_producer_id(on_id)


class TransactionTopicOfNode(CoordinatorTopicOfNode):
    """`__transaction_state` of a real node."""

    def __init__(self, environment: Environment, partition: FindPartition) -> None:
        super().__init__(
            environment, partition, TRANSACTION_STATE_TOPIC, lambda config: config.transaction_state_log_num_partitions
        )

    def transaction_version(self) -> int:
        return self._environment.image().features.get(TRANSACTION_VERSION, 0)


def _records_of(columns: Columns) -> Iterator[CoordinatorRecord]:
    """No producer writes transactionally to the topic of transactions; a control batch in it would be none of ours."""
    if not columns.is_control:
        for record in columns.records():
            if record.key is not None:
                yield CoordinatorRecord(record.key, record.value)


def _tell(line: Tell) -> None:
    log.info("%s", line.sentence, extra=fields(**line.facts))
