"""The metadata of segments in the store, as the records of `__remote_log_metadata` say it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.broker.environment import Environment
from strandline.broker.tiering.topic_client import APPEND_S_MAX, CONSUMER, RETRY_S, TopicClient, TopicShape
from strandline.codec.columns import Record
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.support.context import BrokerServices
from strandline.tiers.metadata_fold import MetadataFold
from strandline.tiers.records import (
    METADATA_TOPIC,
    MetadataEvent,
    TieredPartition,
    decode_event,
    encode_event,
    metadata_partition,
)
from strandline.tiers.store.waiting import Deadline, pause

__all__ = ["CONSUMER", "MetadataTopic"]

_REPLICATION: Final = "rlmm.config.remote.log.metadata.topic.replication.factor"


class MetadataTopic(TopicClient):
    """What the records of the topic say, for the partitions of it that are read here."""

    def __init__(self, environment: Environment, services: BrokerServices) -> None:
        super().__init__(environment, services, METADATA_TOPIC)
        self.fold = MetadataFold(environment.cluster_id)
        self.states = self.fold.states
        self.names = self.fold.names
        self.on_event: Callable[[MetadataEvent], object] = lambda _: None

    def place_of(self, partition: TieredPartition) -> int | None:
        """Return the partition of the topic for a tiered partition; None while there is no such topic."""
        topic = self.topic()
        return None if topic is None else metadata_partition(partition, len(topic.partitions))

    def shape(self) -> TopicShape:
        config, brokers = self._environment.config(), len(self._environment.image().brokers)
        factor = config.rlmm_config_remote_log_metadata_topic_replication_factor
        if _REPLICATION not in config.given:
            factor = max(1, min(factor, brokers))
        settings = {
            "cleanup.policy": "delete",
            "retention.ms": str(config.rlmm_config_remote_log_metadata_topic_retention_ms),
            "retention.bytes": "-1",
            "min.insync.replicas": str(min(factor, config.rlmm_config_remote_log_metadata_topic_min_isr)),
        }
        return TopicShape(config.rlmm_config_remote_log_metadata_topic_num_partitions, factor, settings)

    async def append(self, event: MetadataEvent) -> None:
        """Write a record, and wait until it is read here. Raises RequestError if that takes too long."""
        deadline, code = Deadline(self._runtime, APPEND_S_MAX), ErrorCode.NETWORK_EXCEPTION
        place = self.place_of(event.partition)
        while place is None and not self._is_closed and deadline.left_s > 0:
            self.create_topic()
            await pause(self._runtime, RETRY_S)
            place = self.place_of(event.partition)
        if place is not None:
            code = await self.append_record(place, encode_event(event), limit_s=deadline.left_s)
        if code:
            raise RequestError(code, f"{METADATA_TOPIC} takes no record of {event.partition}: {code.name}")

    async def catch_up(self, partition: TieredPartition) -> None:
        """Return when everything is read that was written before this call about a partition."""
        while not self._is_closed:
            place = self.place_of(partition)
            if place is None:
                self.create_topic()
            elif await self.read_to_end(place):
                return
            await pause(self._runtime, RETRY_S)

    def take(self, place: int, record: Record) -> None:
        event = None if record.value is None else decode_event(record.value)
        if event is not None:
            self.fold.apply(event)
            self.on_event(event)
