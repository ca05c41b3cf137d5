"""Finds the shard of a share partition and runs it: which partition of `__share_group_state`, loaded or not, led here.

A shard is loaded when this broker begins to lead its partition, or when the first request comes. `coordinator_context`
runs it. Other parts of the broker ask through `persister`, which finds the coordinator in the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from strandline.broker.coordinating.coordinator_context import CoordinatorContext
from strandline.broker.coordinating.coordinator_runtime import CoordinatorRuntime, CoordinatorTopicOfNode, FindPartition
from strandline.broker.coordinating.group_topics import TopicsOfNode
from strandline.broker.environment import Environment
from strandline.codec.columns import Columns
from strandline.coordinators.groups.events import Tell, TopicDeleted
from strandline.coordinators.shares.coordinator_key import SHARE_GROUP_STATE_TOPIC, partition_of_share
from strandline.coordinators.shares.events import PruneLog
from strandline.coordinators.shares.share_config import share_config
from strandline.coordinators.shares.share_shard import LoggedRecord, ShareShard
from strandline.errors import StrandlineError
from strandline.partition.trimming import delete_records

if TYPE_CHECKING:
    from strandline.partition.partition import Partition

log = logging.getLogger("strandline.shares")


class ShareDriver(CoordinatorRuntime[ShareShard]):
    """The share partitions whose state this broker keeps."""

    _topic: CoordinatorTopicOfNode

    def __init__(self, environment: Environment, partition: FindPartition) -> None:
        super().__init__()
        self._runtime = environment.runtime
        self._config = share_config(environment.config())
        self._topic = CoordinatorTopicOfNode(
            environment,
            partition,
            SHARE_GROUP_STATE_TOPIC,
            lambda config: config.share_coordinator_state_topic_num_partitions,
        )
        self._topics = TopicsOfNode(environment.image)

    def partition_index(self, key: str) -> int:
        """Return the partition whose leader keeps the state, by the name of the share partition (`coordinator_key`)."""
        return partition_of_share(key, partition_count=self._topic.partition_count())

    def begin_leading(self, index: int) -> None:
        """Load the state of another epoch, in which this broker coordinates."""
        self.stop_leading(index)
        self.load(index)

    def on_topic_deleted(self, name: str, topic_id: UUID) -> None:
        """Forget the share partitions of a deleted topic. A shard that is not loaded does so when it is."""
        event = TopicDeleted(name, topic_id)
        for hosted in list(self._hosted.values()):
            hosted.when_loaded(partial(_step, hosted, event))

    def _host(self, index: int) -> CoordinatorContext[ShareShard] | None:
        state_log = self._topic.partition(index)
        if state_log is None:
            return None
        hosted = CoordinatorContext(
            f"{SHARE_GROUP_STATE_TOPIC}-{index}",
            self._runtime,
            ShareShard(self._config, self._topics, next_offset=lambda: state_log.log_end_offset),
            _records_of,
            state_log,
            tell=_tell_nothing,
            on_effect=partial(_prune, state_log),
            on_closed=lambda: self._hosted.pop(index, None),
        )
        self._hosted[index] = hosted
        hosted.load_more()
        return self._hosted.get(index)


def _records_of(columns: Columns) -> Iterator[LoggedRecord]:
    if not columns.is_control:
        for record in columns.records():
            if record.key is not None:
                yield LoggedRecord(record.offset, record.key, record.value)


def _step(hosted: CoordinatorContext[ShareShard], event: TopicDeleted, is_loaded: bool) -> None:
    if is_loaded:
        hosted.step(event)


def _prune(state_log: Partition, effect: PruneLog) -> None:
    """Remove old records. After a restart some may be there again, and say nothing that later ones do not."""
    try:
        delete_records(state_log, effect.offset)
    except (StrandlineError, OSError) as error:
        log.warning("%s-%d cannot be pruned up to %d: %s", state_log.topic, state_log.index, effect.offset, error)


def _tell_nothing(line: Tell) -> None:
    raise AssertionError(f"share partitions have no line such as {line!r}")
