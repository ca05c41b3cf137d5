"""The partitions that live on this node: opened, made and deleted as the metadata log says."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from strandline.broker import metadata_quorum
from strandline.broker.removals import Removals
from strandline.codec.messages.config_record import ConfigRecord
from strandline.codec.messages.partition_record import PartitionRecord
from strandline.codec.messages.remove_topic_record import RemoveTopicRecord
from strandline.codec.messages.topic_record import TopicRecord
from strandline.errors import ErrorCode, StrandlineError
from strandline.ids import TopicPartition
from strandline.log.partition_log import PartitionLog
from strandline.observability.log_lines import fields
from strandline.partition.partition import Partition
from strandline.partition.producers import Producers
from strandline.quorum.cluster_image import RESOURCE_BROKER, RESOURCE_TOPIC, Topic
from strandline.quorum.quorum_state import uuid_text
from strandline.quorum.topic_names import is_internal
from strandline.settings import LONG_MAX

if TYPE_CHECKING:
    from strandline.broker.node import Node

log = logging.getLogger("strandline.node")

WORK_S_MAX: Final = 0.005
"""What making and deleting logs may take of one turn of the loop."""
PARTITIONS_PER_STEP: Final = 500
"""Partitions that get their new settings before the clock is looked at again."""


class Departed:
    """What deleted partitions had counted: a total that went down would be taken for a restart."""

    def __init__(self) -> None:
        self.batches_in = self.bytes_in = self.bytes_out = self.records_in = 0

    def add(self, partition: Partition) -> None:
        self.batches_in += partition.batches_in
        self.bytes_in += partition.bytes_in
        self.bytes_out += partition.bytes_out
        self.records_in += partition.records_in


class Replicas:
    def __init__(self, node: Node) -> None:
        self._node = node
        self.topics: dict[str | bytes, list[Partition | None]] = {}
        """By topic name and by topic id: the hot paths look up whichever the client sent."""
        self.offline: dict[TopicPartition, StrandlineError] = {}
        self.departed = Departed()
        self._names: dict[bytes, str] = {}
        self._flushed_by_time: dict[Partition, float] = {}
        self._work: deque[Callable[[], object]] = deque()
        self._is_working = False
        self._removals = Removals(node.runtime, node.directory.disk)

    def all(self) -> Iterator[Partition]:
        for key, partitions in self.topics.items():
            if isinstance(key, str):
                yield from (partition for partition in partitions if partition is not None)

    def logs(self) -> dict[TopicPartition, tuple[PartitionLog, int]]:
        """Every log with its high watermark, for the checkpoints."""
        logs = {
            TopicPartition(each.topic, each.index): (each.log, each.high_watermark)
            for each in self.all()
            if each.log.segments
        }
        metadata = self._node.metadata.log
        logs[metadata_quorum.NAME] = (metadata, metadata.flushed_offset)
        return logs

    # Following the metadata

    def open_all(self) -> None:
        """After a start: open what the image says is here, finish deletions, put aside what nobody knows."""
        directory = self._node.directory
        directory.remove_deleted()
        removed = {uuid_text(topic_id) for topic_id in self._node.metadata.removed_topic_ids}
        self._node.metadata.removed_topic_ids.clear()
        known = {
            TopicPartition(topic.name, index): uuid_text(topic.id)
            for topic in self._node.image.topics.values()
            for index in range(len(topic.partitions))
        }
        for name in directory.partition_directories():
            if name == metadata_quorum.NAME:
                continue
            topic_id = directory.topic_id_of(name)
            if topic_id in removed:
                # A crash came between the record and the directory: the topic's end was acknowledged.
                directory.disk.remove_tree(directory.path / str(name))
            elif name not in known or (topic_id is not None and topic_id != known[name]):
                log.warning("%s belongs to no topic of this cluster; kept as %s", name, directory.put_aside(name).name)
        for topic in self._node.image.topics.values():
            for _ in topic.partitions:
                self._open_next(topic)

    def on_metadata(self, records: list[Any], then: Callable[[], object]) -> None:
        """Do what records ask that have just been committed, a share per turn of the loop; then call `then`."""
        touched: dict[Any, None] = {}
        configured: dict[tuple[int, str], None] = {}
        for record in records:
            if isinstance(record, TopicRecord | PartitionRecord):
                touched[record.topic_id] = None
            elif isinstance(record, RemoveTopicRecord):
                touched.pop(record.topic_id, None)
                self._work.append(partial(self._delete_topic, record.topic_id.bytes))
            elif isinstance(record, ConfigRecord):
                configured[record.resource_type, record.resource_name] = None
        for topic_id in touched:
            topic = self._node.image.topic_by_id(topic_id)
            if topic is not None:
                self._work.extend(partial(self._open_next, topic) for _ in topic.partitions)
        self._configure(configured)
        self._work.append(then)
        if not self._is_working:
            self._work_off()

    def _configure(self, resources: Iterable[tuple[int, str]]) -> None:
        """Have new settings obeyed by the partitions they concern: all of them, if the node's defaults changed."""
        node = self._node
        topics = {name: None for kind, name in resources if kind == RESOURCE_TOPIC}
        if any(kind == RESOURCE_BROKER for kind, _ in resources):
            before = node.config.topic_defaults
            node.dynamic_config.apply()
            if node.config.topic_defaults != before:
                topics = dict.fromkeys(node.image.topics)
        for name in topics:
            for first in range(0, len(self.topics.get(name, ())), PARTITIONS_PER_STEP):
                self._work.append(partial(self._configure_some, name, first))

    def _configure_some(self, name: str, first: int) -> None:
        node, topic = self._node, self._node.image.topic_by_name(name)
        if topic is None:
            return
        config = node.config.topic_config_in_force(topic.config_overrides)
        for partition in self.topics.get(name, ())[first : first + PARTITIONS_PER_STEP]:
            if partition is not None and partition.topic_id == topic.id:
                partition.reconfigure(config)
                self._note_flush_by_time(partition)

    def _note_flush_by_time(self, partition: Partition) -> None:
        if partition.config.flush_ms < LONG_MAX:
            self._flushed_by_time.setdefault(partition, self._node.runtime.monotonic())
        else:
            self._flushed_by_time.pop(partition, None)

    def _work_off(self) -> None:
        """Thousands of new logs take seconds: clients are served in between."""
        runtime = self._node.runtime
        until = runtime.monotonic() + WORK_S_MAX
        self._is_working = True
        while self._work:
            self._work.popleft()()
            if self._work and runtime.monotonic() > until:
                runtime.call_soon(self._work_off)
                return
        self._is_working = False

    def _open_next(self, topic: Topic) -> None:
        """Open the first partition of `topic` that is not open yet."""
        partitions = self.topics.get(topic.name)
        if partitions is None:
            partitions = []
            self.topics[topic.name] = partitions
            self.topics[topic.id.bytes] = partitions
            self._names[topic.id.bytes] = topic.name
        if len(partitions) < len(topic.partitions):
            partitions.append(self._open(topic, len(partitions)))

    def _open(self, topic: Topic, index: int) -> Partition | None:
        node = self._node
        name = TopicPartition(topic.name, index)
        config = node.config.topic_config_in_force(topic.config_overrides)
        producers = Producers()
        try:
            opened = node.directory.open_log(name, config, now_ms=node.runtime.now_ms(), observer=producers)
            if node.directory.topic_id_of(name) is None:
                node.directory.write_topic_id(opened, uuid_text(topic.id))
            if opened.log_end_offset:
                # What recovery found was perhaps only in memory of the last process' kernel: safe before it is shown.
                opened.flush_now()
        except (StrandlineError, OSError) as error:
            # One bad log is one offline partition; its data stays as it is, and everything else is served.
            facts = fields(topic=topic.name, partition=index, reason=str(error))
            log.error("%s is offline: %s", name, error, extra=facts)
            failure = error if isinstance(error, StrandlineError) else StrandlineError(str(error))
            self.offline[name] = failure
            return None
        partition = Partition(
            topic.name,
            index,
            topic.id,
            log=opened,
            producers=producers,
            flusher=node.flusher,
            config=config,
            leader_epoch=topic.partitions[index].leader_epoch,
            is_only_copy=len(topic.partitions[index].isr) <= 1,
            is_internal=is_internal(topic.name),
            turnstile=node.reencoder.turnstile,
        )
        self._note_flush_by_time(partition)
        return partition

    def _delete_topic(self, topic_id: bytes) -> None:
        """The topic is out of sight at once; its partitions end one by one, before any work that was ordered later."""
        name = self._names.pop(topic_id, None)
        if name is None:
            return
        partitions = self.topics.pop(name)
        del self.topics[topic_id]
        for partition in partitions:
            # In the turn in which it goes out of sight, so that no total is ever seen to go down.
            if partition is not None:
                self.departed.add(partition)
        endings: list[Callable[[], object]] = [
            partial(self._delete_partition, TopicPartition(name, index), partition)
            for index, partition in enumerate(partitions)
        ]
        endings.append(partial(self._node.groups.on_topic_deleted, name))
        self._work.extendleft(reversed(endings))

    def _delete_partition(self, where: TopicPartition, partition: Partition | None) -> None:
        directory = self._node.directory
        self.offline.pop(where, None)
        target = directory.delete_path(where)
        try:
            if partition is None:
                directory.disk.rename(directory.path / str(where), target)
            else:
                self._flushed_by_time.pop(partition, None)
                partition.log.delete(target)
                partition.abandon(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        except OSError as error:
            # The next start finds a directory without a topic and puts it aside.
            log.error("%s could not be deleted: %s", where, error)
            return
        self._removals.remove(target)

    # From time to time

    def flush_by_time(self, now: float) -> None:
        for partition, flushed_at in self._flushed_by_time.items():
            if (now - flushed_at) * 1000 >= partition.config.flush_ms:
                self._flushed_by_time[partition] = now
                if partition.log.unflushed:
                    self._node.flusher.flush(partition.log)

    def expire_producers(self) -> None:
        before_ms = self._node.runtime.now_ms() - self._node.config.producer_id_expiration_ms
        for partition in self.all():
            partition.producers.expire(before_ms=before_ms)
