"""The partitions that live on this node: opened, led, followed and deleted as the metadata log says.

Records are taken one batch after the other, a share of the work in each turn of the loop. What is done for a partition
is decided by the image as it is then, not by the record that drew attention to it: so nothing is done twice, nor
undone. `on_led` and `on_unled` notify the coordinators, which keep state by leadership.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from strandline.broker.environment import Environment
from strandline.broker.kraft import metadata_quorum
from strandline.broker.kraft.controller_channel import ControllerChannel
from strandline.broker.kraft.directory_assignments import DirectoryAssignments
from strandline.broker.network.channel import Channel
from strandline.broker.replicas.alter_partition import AlterPartitions
from strandline.broker.replicas.checkpoint_writer import CheckpointWriter
from strandline.broker.replicas.departed import Departed
from strandline.broker.replicas.directory_health import DirectoryHealth
from strandline.broker.replicas.in_sync_rules import may_be_in_sync, may_leave_in_sync
from strandline.broker.replicas.log_recovery import LogRecovery
from strandline.broker.replicas.replica_fetchers import ReplicaFetchers
from strandline.broker.replicas.replica_logs import ReplicaLogs
from strandline.broker.replicas.timed_flushes import TimedFlushes
from strandline.codec.messages.clear_elr_record import ClearElrRecord
from strandline.codec.messages.config_record import ConfigRecord
from strandline.codec.messages.partition_change_record import PartitionChangeRecord
from strandline.codec.messages.partition_record import PartitionRecord
from strandline.codec.messages.remove_topic_record import RemoveTopicRecord
from strandline.errors import DamagedRecords, DiskFull, ErrorCode, StrandlineError
from strandline.ids import TopicPartition
from strandline.log.partition_log import PartitionLog
from strandline.partition.following import make_follower
from strandline.partition.leading import make_leader
from strandline.partition.partition import Partition
from strandline.quorum.controller.topic_names import is_internal
from strandline.quorum.image.cluster_image import RESOURCE_BROKER, RESOURCE_TOPIC, PartitionImage, Topic

if TYPE_CHECKING:
    from strandline.broker.dynamic_config import DynamicConfig
    from strandline.broker.lazy import Lazy
    from strandline.broker.maintenance.storage_worker import StorageWorkers
    from strandline.log.flusher import Flusher
    from strandline.log.log_directory import LogDirectory
    from strandline.partition.reencoding import Reencoder

WORK_S_MAX: Final = 0.005
"""What making and deleting logs may take of one turn of the loop."""
OPEN_FIRST_S_MAX: Final = 0.5
"""How long a quorum of one opens partitions before it lets clients in; the rest is opened while they are served."""
OPENED_STEP: Final = 500
OPENED_REST: Final = 100
"""Partitions after which `on_many_opened` is told: so many, or the smaller number when no more are to come for now."""
PARTITIONS_PER_STEP: Final = 500
"""Partitions that get their new settings before the clock is looked at again."""


class Replicas:
    def __init__(
        self,
        environment: Environment,
        directory: LogDirectory,
        *,
        directory_id: uuid.UUID,
        flusher: Flusher,
        reencoder: Reencoder,
        metadata: metadata_quorum.MetadataQuorum,
        dynamic_config: DynamicConfig,
        controller: ControllerChannel,
        broker_epoch: Callable[[], int],
        workers: Lazy[StorageWorkers],
    ) -> None:
        self._environment = environment
        self._directory = directory
        self._metadata = metadata
        self._dynamic_config = dynamic_config
        self.topics: dict[str | bytes, list[Partition | None]] = {}
        """By name and by id of the topic, whichever a client sent. None where no replica is here, or it is offline."""
        self.offline: dict[TopicPartition, StrandlineError] = {}
        self.departed = Departed()
        self.on_led: Callable[[Partition], object] = _ignore
        """Called with a partition when a leader epoch begins on this broker; its log is open."""
        self.on_unled: Callable[[Partition], object] = _ignore
        """Called with a partition that this broker no longer leads, because another does, or because it is gone."""
        self.on_topics_changed: Callable[[tuple[str, ...]], object] = _ignore
        """Called with the names of topics that came, went, got more partitions or other replicas, when that is done."""
        self.on_topic_deleted: Callable[[str, uuid.UUID], object] = _ignore
        """Called with the name and the id of a topic whose partitions are gone."""
        self.on_opened: Callable[[Partition], object] = _ignore
        """Called with a partition whose log was opened, before it is led or followed."""
        self.on_configured: Callable[[Partition], object] = _ignore
        """Called with each partition whose settings changed."""
        self.on_damaged: Callable[[Partition, DamagedRecords], None] = _ignore
        """Called with a partition in which a reader found batches that are not what was written."""
        self.take_object_role: Callable[[Partition, PartitionImage], object] = _ignore
        """Has a partition be led or followed whose records are in the object store."""
        self.on_many_opened: Callable[[], object] = _ignore
        """Called when many partitions were opened since the last call: Python's collector need not walk them."""
        self._opened = 0
        self._names: dict[bytes, str] = {}
        self.timed_flushes = TimedFlushes(environment.runtime, flusher)
        self.work_s_max, self._is_working = WORK_S_MAX, False
        self._work: deque[Callable[[], object]] = deque()
        self.checkpoints = CheckpointWriter(environment, directory, metadata, self)
        self._logs = ReplicaLogs(environment, directory, flusher, reencoder, metadata, self.checkpoints)
        self.recovery = LogRecovery(environment, directory, workers)
        self.recovery.on_recovered = self._on_recovered
        self.recovery.on_failed = self._on_not_opened
        self.health = DirectoryHealth(environment.runtime, directory, directory_id)
        self.health.on_room = self._open_again
        self.directories = DirectoryAssignments(
            environment, controller, directory_id=directory_id, broker_epoch=broker_epoch
        )
        self.in_sync = AlterPartitions(
            environment.runtime,
            lambda: controller,
            node_id=environment.node_id,
            broker_epoch=broker_epoch,
            lag_max_s=environment.config().replica_lag_time_max_ms / 1000,
        )
        self._may_be_in_sync = partial(may_be_in_sync, environment)
        self.fetchers = self._make_fetchers(broker_epoch)

    def _make_fetchers(self, broker_epoch: Callable[[], int]) -> ReplicaFetchers:
        environment = self._environment
        return ReplicaFetchers(
            environment.runtime,
            environment.config(),
            node_id=environment.node_id,
            broker_epoch=broker_epoch,
            address_of=environment.address_of,
            connect=self._connect,
            write_recovery_points=self.checkpoints.write_recovery_points,
            write_start_offsets=self.checkpoints.write_start_offsets,
            may_leave=partial(may_leave_in_sync, environment),
        )

    def _verifies_transactions(self) -> bool:
        return self._environment.config().transaction_partition_verification_enable

    def _connect(self, host: str, port: int) -> Channel:
        environment = self._environment
        runtime, client_id = environment.runtime, f"replica-{environment.node_id}"
        return Channel(runtime, environment.network, host, port, client_id=client_id, login=environment.broker_login)

    def partition(self, topic: str, index: int) -> Partition | None:
        """Return a partition that has a replica on this broker, and whose log is open."""
        partitions = self.topics.get(topic)
        return partitions[index] if partitions is not None and 0 <= index < len(partitions) else None

    def offline_dirs(self) -> tuple[uuid.UUID, ...]:
        """Return the directories that take no appends; none if no other broker has a replica of anything here."""
        if self.health.is_offline and any(
            len(partition.replicas) > 1 and self._environment.node_id in partition.replicas
            for topic in self._environment.image().topics.values()
            for partition in topic.partitions
        ):
            return self.health.offline_dirs()
        return ()

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
        metadata = self._metadata.log
        logs[metadata_quorum.NAME] = (metadata, metadata.flushed_offset)
        return logs

    # Following the metadata

    def open_all(self, then: Callable[[], object], *, at_once: bool) -> None:
        """After a start, when the image is up to date: open what it says is here, then call `then`.

        Recovery may take minutes. `at_once`, of a quorum of one: serve each partition as soon as it is open, for no
        other broker could. One of several stays fenced until all are.
        """
        self._logs.sort_out()
        for topic in sorted(self._environment.image().topics.values(), key=lambda topic: not is_internal(topic.name)):
            self._work.extend(partial(self._follow_image, topic.id, index) for index in range(len(topic.partitions)))
        if not at_once:
            self._work.append(partial(self.recovery.when_done, then))
            self._maybe_work_off()
            return
        until = self._environment.runtime.monotonic() + OPEN_FIRST_S_MAX
        while self._work and self._environment.runtime.monotonic() <= until:
            self._work.popleft()()
        then()
        self._maybe_work_off()

    def on_metadata(self, records: list[Any], then: Callable[[], object]) -> None:
        """Do what records ask that have just been committed, a share per turn of the loop; then call `then`."""
        touched: dict[tuple[uuid.UUID, int], None] = {}
        configured: dict[tuple[int, str], None] = {}
        changed: dict[uuid.UUID, None] = {}
        for record in records:
            if isinstance(record, PartitionRecord | PartitionChangeRecord):
                touched[record.topic_id, record.partition_id] = None
                if record.replicas is not None:
                    changed[record.topic_id] = None
            elif isinstance(record, RemoveTopicRecord):
                changed[record.topic_id] = None
                self._work.append(partial(self._delete_topic, record.topic_id.bytes))
            elif isinstance(record, ConfigRecord):
                configured[record.resource_type, record.resource_name] = None
            elif isinstance(record, ClearElrRecord):
                # No partition epoch tells leaders that those who were eligible are so no longer.
                touched.update(dict.fromkeys(self._partitions_of(record.topic_name)))
        names = self._names_of(changed)
        self._work.extend(partial(self._follow_image, *each) for each in touched)
        self._configure(configured)
        if names:
            self._work.append(partial(self.on_topics_changed, names))
        self._work.append(then)
        self._maybe_work_off()

    def on_image_replaced(self) -> None:
        """Compare everything with an image that was made from a snapshot: its records will never be seen one by one."""
        image = self._environment.image()
        names = tuple(dict.fromkeys([*self._names.values(), *image.topics]))
        for topic_id in list(self._names):
            if image.topic_by_id(uuid.UUID(bytes=topic_id)) is None:
                self._work.append(partial(self._delete_topic, topic_id))
        for topic in image.topics.values():
            self._work.extend(partial(self._follow_image, topic.id, index) for index in range(len(topic.partitions)))
        self._dynamic_config.apply()
        self._configure_topics(image.topics)
        self._work.append(partial(self.on_topics_changed, names))
        self._maybe_work_off()

    def _partitions_of(self, name: str) -> Iterator[tuple[uuid.UUID, int]]:
        """Yield the partitions of a topic; those of all topics for an empty name."""
        for topic in self._environment.image().topics.values():
            if not name or topic.name == name:
                yield from ((topic.id, index) for index in range(len(topic.partitions)))

    def _names_of(self, topic_ids: Iterable[uuid.UUID]) -> tuple[str, ...]:
        names = []  # Also of topics that are about to go.
        for topic_id in topic_ids:
            topic = self._environment.image().topic_by_id(topic_id)
            name = self._names.get(topic_id.bytes) if topic is None else topic.name
            if name is not None:
                names.append(name)
        return tuple(names)

    def _configure(self, resources: Iterable[tuple[int, str]]) -> None:
        """Have new settings obeyed by the partitions they concern: all of them, if the node's defaults changed."""
        environment = self._environment
        topics: Iterable[str] = [name for kind, name in resources if kind == RESOURCE_TOPIC]
        if any(kind == RESOURCE_BROKER for kind, _ in resources):
            before = environment.config().topic_defaults
            self._dynamic_config.apply()
            if environment.config().topic_defaults != before:
                topics = environment.image().topics
        self._configure_topics(topics)

    def _configure_topics(self, names: Iterable[str]) -> None:
        for name in names:
            for first in range(0, len(self.topics.get(name, ())), PARTITIONS_PER_STEP):
                self._work.append(partial(self._configure_some, name, first))

    def _configure_some(self, name: str, first: int) -> None:
        topic = self._environment.image().topic_by_name(name)
        if topic is None:
            return
        config = self._environment.config().topic_config_in_force(topic.config_overrides)
        for partition in self.topics.get(name, ())[first : first + PARTITIONS_PER_STEP]:
            if partition is not None and partition.topic_id == topic.id:
                partition.reconfigure(config)
                self.timed_flushes.note(partition)
                self.on_configured(partition)

    def _maybe_work_off(self) -> None:
        if not self._is_working:
            self._work_off()

    def _work_off(self) -> None:
        """Thousands of new logs take seconds: clients are served in between."""
        runtime = self._environment.runtime
        until = runtime.monotonic() + self.work_s_max
        self._is_working = True
        while self._work:
            self._work.popleft()()
            self._tell_opened(OPENED_STEP)
            if self._work and runtime.monotonic() > until:
                runtime.call_soon(self._work_off)
                return
        self._is_working = False
        self._tell_opened(OPENED_REST)

    def _tell_opened(self, least: int) -> None:
        if self._opened >= least:
            self._opened = 0
            self.on_many_opened()

    # One partition

    def _follow_image(self, topic_id: uuid.UUID, index: int) -> None:
        """Have a partition be what the image says: open or gone, led or followed."""
        topic = self._environment.image().topic_by_id(topic_id)
        if topic is None or index >= len(topic.partitions):
            return
        partitions = self.topics.get(topic_id.bytes)
        if partitions is None:
            partitions = self.topics[topic.name] = self.topics[topic_id.bytes] = []
            self._names[topic_id.bytes] = topic.name
        while len(partitions) <= index:
            partitions.append(None)
        image = topic.partitions[index]
        if self._environment.node_id not in image.replicas:
            self._let_go(TopicPartition(topic.name, index), partitions)
            return
        partition = partitions[index]
        if partition is None:
            partition = partitions[index] = self._open(topic, index)
        if partition is not None:
            self._take_role(partition, image)
            self.directories.on_opened(topic_id, index)

    def _open(self, topic: Topic, index: int) -> Partition | None:
        name, image = TopicPartition(topic.name, index), topic.partitions[index]
        node_id = self._environment.node_id
        failure = self.offline.get(name)
        # A log that only found no room is tried again: put aside, it would be copied to the same full disk.
        if failure is not None and not isinstance(failure, DiskFull):
            if node_id in image.isr or image.leader in (node_id, -1):
                return None
            # No in-sync set contains this copy, and another broker has the records.
            self._logs.put_aside(name)
        if self.recovery.takes(topic, index):
            # No longer offline: if the topic is deleted now, its files must wait for the worker that has them open.
            self.offline.pop(name, None)
            return None
        opened = self._logs.open(topic, index)
        if isinstance(opened, StrandlineError):
            self._on_not_opened(name, opened)
            return None
        self.offline.pop(name, None)
        opened.on_lag = self.in_sync.watch
        opened.on_proposal = self.in_sync.propose
        opened.on_failed = self._on_failed
        opened.verifies_transactions = self._verifies_transactions
        opened.log.on_write_failed = self.health.on_write_failed
        opened.log.on_damaged = partial(self.on_damaged, opened)
        self.timed_flushes.note(opened)
        self.on_opened(opened)
        self._opened += 1
        return opened

    def _on_not_opened(self, name: TopicPartition, failure: StrandlineError) -> None:
        # As the last one: when logs are opened again, one that finds no room must not hold up the others.
        self.offline.pop(name, None)
        self.offline[name] = failure
        if isinstance(failure, DiskFull):
            self._directory.note_unopened(name)
            self.health.on_full(str(failure))

    def _open_again(self) -> None:
        """Open the logs that found no room, now that there is some."""
        full = [name for name, failure in self.offline.items() if isinstance(failure, DiskFull)]
        self._work.extend(partial(self._maybe_open_again, name) for name in full)
        self._maybe_work_off()

    def _maybe_open_again(self, name: TopicPartition) -> None:
        topic = self._environment.image().topic_by_name(name.topic)
        # After the first that finds no room again, the others wait for the next time.
        if topic is not None and name in self.offline and not self.health.is_full:
            self._follow_image(topic.id, name.partition)

    def _on_recovered(self, name: TopicPartition) -> None:
        topic = self._environment.image().topic_by_name(name.topic)
        if topic is not None:
            self._work.append(partial(self._follow_image, topic.id, name.partition))
            self._maybe_work_off()

    def _on_failed(self, partition: Partition, error: StrandlineError) -> None:
        self.health.on_log_failed(f"{partition.topic}-{partition.index}", str(error))
        # The next fetch would say that all is here which the disk has just refused to keep.
        self.fetchers.unfollow(partition)

    def _take_role(self, partition: Partition, image: PartitionImage) -> None:
        environment = self._environment
        if partition.config.commits_in_store:
            self.take_object_role(partition, image)
            return
        was_led = partition.is_leader and partition.leader_id == environment.node_id
        if image.leader == environment.node_id:
            begins = make_leader(
                partition,
                environment.node_id,
                leader_epoch=image.leader_epoch,
                partition_epoch=image.partition_epoch,
                replicas=image.replicas,
                isr=image.isr,
                lag_max_s=self.in_sync.lag_max_s,
                is_eligible=self._may_be_in_sync,
                eligible=image.eligible_leader_replicas or (),
            )
            if begins:
                self.fetchers.unfollow(partition)
                self.on_led(partition)
        elif make_follower(
            partition, image.leader, leader_epoch=image.leader_epoch, partition_epoch=image.partition_epoch
        ):
            self.in_sync.forget(partition)
            self.fetchers.follow(partition)
            if was_led:
                self.on_unled(partition)

    def _let_go(self, where: TopicPartition, partitions: list[Partition | None]) -> None:
        """A replica moved away: its records are elsewhere, and the directory goes."""
        partition = partitions[where.partition]
        partitions[where.partition] = None
        if partition is not None:
            self.departed.add(partition)
            self._end(where, partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            self._delete_unopened(where)

    def _delete_topic(self, topic_id: bytes) -> None:
        """Take a topic out of sight; its partitions end one by one, before any work that was ordered later."""
        name = self._names.pop(topic_id, None)
        if name is None:
            return
        partitions = self.topics.pop(topic_id)
        if self.topics.get(name) is partitions:
            del self.topics[name]
        # In the turn in which they go out of sight, so that no total is ever seen to go down.
        for partition in filter(None, partitions):
            self.departed.add(partition)
        endings: list[Callable[[], object]] = [
            partial(self._delete_partition, TopicPartition(name, index), partition)
            for index, partition in enumerate(partitions)
        ]
        endings.append(partial(self.on_topic_deleted, name, uuid.UUID(bytes=topic_id)))
        self._work.extendleft(reversed(endings))

    def _delete_partition(self, where: TopicPartition, partition: Partition | None) -> None:
        if partition is not None:
            self._end(where, partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            self._delete_unopened(where)

    def _delete_unopened(self, where: TopicPartition) -> None:
        """Delete the log of a partition that is offline or still to be recovered."""
        if self.offline.pop(where, None) is not None:
            self._logs.delete(where, None)
        else:
            self.recovery.cancel(where, partial(self._logs.delete, where, None))

    def _end(self, where: TopicPartition, partition: Partition, error_code: int) -> None:
        was_led = partition.is_leader
        partition.is_leader = False
        self.timed_flushes.forget(partition)
        self.in_sync.forget(partition)
        self.fetchers.unfollow(partition)
        self._logs.delete(where, partition)
        partition.abandon(error_code)
        if was_led:
            self.on_unled(partition)

    # From time to time

    def expire_producers(self) -> None:
        before_ms = self._environment.runtime.now_ms() - self._environment.config().producer_id_expiration_ms
        partitions = 0
        count = 0
        for partition in self.all():
            producers = partition.producers
            producers.expire(before_ms=before_ms)
            partitions += bool(producers.entries)
            count += len(producers.entries)
        # A log that failed while it was opened had counted its producers, too.
        limit = self._logs.producer_limit
        limit.partitions, limit.count = partitions, count

    def close(self) -> None:
        """Stop opening, fetching and proposing; the shutdown closes the logs."""
        self._work.clear()
        self.recovery.close()
        self.fetchers.close()
        self.in_sync.close()
        self.directories.close()
        self.health.close()


def _ignore(*_: object) -> None:
    """Default of callbacks that are not set."""
