"""Finds, loads and closes the shards of an internal topic, of groups or of transactions, and hands them requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol

from strandline.broker.coordinating.coordinator_context import CoordinatorContext, ShardT, waiting_of
from strandline.broker.environment import Environment
from strandline.config.node_config import BrokerConfig
from strandline.errors import ErrorCode
from strandline.partition.partition import Partition
from strandline.quorum.image.parts import PartitionImage

FindPartition = Callable[[str, int], Partition | None]
"""Returns a partition that has a replica on this broker, by topic and index."""


class CoordinatorTopic(Protocol):
    """An internal topic as this node sees it."""

    def partition_count(self) -> int:
        """Of the topic if it exists, else what it will be created with."""

    def partition(self, index: int) -> Any:
        """The partition if this node leads it."""

    def is_led(self, index: int) -> bool:
        """Whether the node's image has it lead the partition in the epoch in which it does."""

    def is_due(self, index: int) -> bool:
        """Whether the node's image has it lead the partition, which it does not do yet."""


class CoordinatorTopicOfNode:
    """An internal topic of a real node."""

    def __init__(
        self, environment: Environment, partition: FindPartition, name: str, count_of_new: Callable[[BrokerConfig], int]
    ) -> None:
        self._environment = environment
        self._partition = partition
        self._name = name
        self._count_of_new = count_of_new

    def partition_count(self) -> int:
        topic = self._environment.image().topic_by_name(self._name)
        return len(topic.partitions) if topic is not None else self._count_of_new(self._environment.config())

    def partition(self, index: int) -> Partition | None:
        partition = self._partition(self._name, index)
        return partition if partition is not None and partition.is_leader else None

    def is_led(self, index: int) -> bool:
        partition = self.partition(index)
        if partition is None:
            return False
        image = self._led_image(index)
        return image is not None and image.leader_epoch == partition.leader_epoch

    def is_due(self, index: int) -> bool:
        partition = self._partition(self._name, index)
        if partition is not None and partition.log.failure is not None:
            return False
        return self._led_image(index) is not None and not self.is_led(index)

    def _led_image(self, index: int) -> PartitionImage | None:
        """Return the partition as the node's image has it, if that has this broker lead it."""
        image = self._environment.image().partition(self._name, index)
        return image if image is not None and image.leader == self._environment.node_id else None

    def hash_level(self) -> int:
        return self._environment.image().coordinator_hash


class CoordinatorRuntime(Generic[ShardT]):
    """The shards of one internal topic that this broker coordinates."""

    _topic: CoordinatorTopic

    def __init__(self) -> None:
        self._hosted: dict[int, CoordinatorContext[ShardT]] = {}
        self._closed = False

    def partition_index(self, key: str) -> int:
        """Return the partition whose leader coordinates the group or the transactional id, as in FindCoordinator."""
        raise NotImplementedError

    def _host(self, index: int) -> CoordinatorContext[ShardT] | None:
        """Begin to load a shard, if this node leads its partition."""
        raise NotImplementedError

    def _found(self, index: int) -> CoordinatorContext[ShardT] | None:
        return self._hosted.get(index) or (None if self._closed else self._host(index))

    def is_beginning(self, index: int) -> bool:
        """Return whether this broker is about to serve a shard: it is to lead its partition, or loads it."""
        hosted = self._found(index)
        if hosted is None or not self._topic.is_led(index):
            return not self._closed and self._topic.is_due(index)
        return hosted.is_loading

    def submit(self, key: str, event: Any) -> None:
        """Hand a request to the shard of its key; its token, a `Waiting`, is answered or refused exactly once."""
        self.submit_to(self.partition_index(key), event)

    def submit_to(self, index: int, event: Any) -> None:
        """As `submit`, where the shard is known."""
        hosted = self._found(index)
        if self._closed and hosted is None:
            waiting_of(event.token).refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif hosted is None or not self._topic.is_led(index):
            # The image is ahead of the work that follows from it: another coordinates, or did meanwhile. What the shard
            # remembers may be old. Who was sent here for what this broker is about to lead must not be sent away.
            is_due = self._topic.is_due(index)
            waiting_of(event.token).refuse(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_due else ErrorCode.NOT_COORDINATOR
            )
        elif hosted.is_loading:
            waiting_of(event.token).refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            hosted.submit(event)

    def hosted_shard(self, key: str) -> CoordinatorContext[ShardT] | None:
        """Return the shard of the key if this broker has it; it may still be loading."""
        return self._hosted.get(self.partition_index(key))

    def led_indexes(self) -> list[int]:
        """Return the partitions whose groups or transactions this broker coordinates."""
        if self._closed:
            return []
        return [index for index in range(self._topic.partition_count()) if self._topic.partition(index) is not None]

    def when_loaded(self, index: int, then: Callable[[ShardT | None], object]) -> None:
        """Call `then` with the shard, to look at and not to touch, now or when it is loaded; None if it is not led."""
        hosted = self._found(index)
        if hosted is None:
            then(None)
        else:
            hosted.when_loaded(lambda is_loaded: then(hosted.shard if is_loaded else None))

    def shard_of(self, key: str) -> ShardT | None:
        """Return the loaded shard of the key, to read and not to change."""
        hosted = self.hosted_shard(key)
        return None if hosted is None or hosted.is_loading else hosted.shard

    def load(self, index: int) -> bool:
        """Begin to load a shard; False if that has happened before, or if it is not led here."""
        if self._closed or index in self._hosted:
            return False
        return self._host(index) is not None

    def loaded_shards(self) -> list[ShardT]:
        """Return all shards that are loaded, to read and not to change."""
        return [hosted.shard for hosted in self._hosted.values() if not hosted.is_loading]

    def stop_leading(self, index: int) -> None:
        """Close a shard that another broker coordinates now; requests that wait are refused with NOT_COORDINATOR."""
        hosted = self._hosted.get(index)
        if hosted is not None:
            hosted.close(ErrorCode.NOT_COORDINATOR)

    def close(self) -> None:
        self._closed = True
        for hosted in list(self._hosted.values()):
            hosted.appends.flush_all()
            hosted.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, keep_held=True)
