"""The directories of partitions on this node: opened, renamed out of the way, removed."""

from __future__ import annotations

import errno
import logging
from functools import partial

from strandline.broker.environment import Environment
from strandline.broker.kraft import metadata_quorum
from strandline.broker.maintenance.removals import Removals, SegmentRemovals
from strandline.broker.replicas.checkpoint_writer import CheckpointWriter
from strandline.config.topic_config import TopicConfig
from strandline.errors import DiskFull, StrandlineError
from strandline.ids import TopicPartition
from strandline.log.flusher import Flusher
from strandline.log.log_directory import LogDirectory
from strandline.log.partition_log import PartitionLog
from strandline.observability.log_lines import fields
from strandline.partition.partition import Partition
from strandline.partition.producers import ProducerLimit, Producers
from strandline.partition.reencoding import Reencoder
from strandline.quorum.controller.topic_names import is_internal
from strandline.quorum.controller.topic_tiering import STORAGE
from strandline.quorum.image.cluster_image import PartitionImage, Topic
from strandline.quorum.raft.state_files import uuid_text

log = logging.getLogger("strandline.node")


def offline_reason(number: int | None, reason: str) -> StrandlineError:
    """Return why a log could not be opened: DiskFull if only room was wanting, and nothing speaks against the log."""
    return (DiskFull if number in (errno.ENOSPC, errno.EDQUOT) else StrandlineError)(reason)


def _class_of(config: TopicConfig) -> type[Partition]:
    if not config.commits_in_store:
        return Partition
    from strandline.partition.object_partition import ObjectPartition

    return ObjectPartition


class ReplicaLogs:
    def __init__(
        self,
        environment: Environment,
        directory: LogDirectory,
        flusher: Flusher,
        reencoder: Reencoder,
        metadata: metadata_quorum.MetadataQuorum,
        checkpoints: CheckpointWriter,
    ) -> None:
        self._environment = environment
        self._directory = directory
        self._flusher = flusher
        self._reencoder = reencoder
        self._metadata = metadata
        runtime, disk = environment.runtime, environment.disk
        self._removals = Removals(runtime, disk)
        self.producer_limit = ProducerLimit(environment.config().producer_id_count_max)
        self._leaving = SegmentRemovals(runtime, disk, checkpoints.write_start_offsets)

    def sort_out(self) -> None:
        """Finish deletions after a start, remove replicas that moved away, put aside unknown directories."""
        environment, directory = self._environment, self._directory
        for path in directory.deleted_directories():
            self._removals.remove(path)
        removed = {uuid_text(topic_id) for topic_id in self._metadata.removed_topic_ids}
        self._metadata.forget_removed()
        for name in directory.partition_directories():
            if name == metadata_quorum.NAME:
                continue
            topic_id = directory.topic_id_of(name)
            topic = environment.image().topic_by_name(name.topic)
            known = environment.image().partition(name.topic, name.partition)
            if topic_id in removed:
                # A crash came between the record and the directory: the topic's end was acknowledged.
                directory.disk.remove_tree(directory.path / str(name))
            elif topic is None or known is None or (topic_id is not None and topic_id != uuid_text(topic.id)):
                log.warning("%s belongs to no topic of this cluster; kept as %s", name, directory.put_aside(name).name)
            elif topic_id is None and directory.is_in_use(name):
                # A power cut may spare unflushed records, and not the unflushed file that names their topic. If that
                # was deleted and made again meanwhile, both topics have records of leader epoch 0 at the same offsets,
                # and no comparison with the leader would find that they differ.
                log.warning("%s has records of an unknown topic; kept as %s", name, directory.put_aside(name).name)
            elif environment.node_id not in known.replicas:
                log.info("%s has its replicas elsewhere", name)
                self.delete(name, None)
            elif self._commits_in_store(topic):
                # Its records are in the object store; what is here may hold some that never counted.
                self.delete(name, None)

    def _commits_in_store(self, topic: Topic) -> bool:
        overrides = topic.config_overrides
        return STORAGE in overrides and self._environment.config().topic_config_in_force(overrides).commits_in_store

    def open(self, topic: Topic, index: int) -> Partition | StrandlineError:
        """The log of a partition, opened or made; or why it cannot be: one bad log is one offline partition. Its data
        stays as it is, and everything else is served."""
        name, image = TopicPartition(topic.name, index), topic.partitions[index]
        try:
            return self._open(topic, index, name, image)
        except (StrandlineError, OSError) as error:
            facts = fields(topic=topic.name, partition=index, reason=str(error))
            log.error("%s is offline: %s", name, error, extra=facts)
            return error if isinstance(error, StrandlineError) else offline_reason(error.errno, str(error))

    def _open(self, topic: Topic, index: int, name: TopicPartition, image: PartitionImage) -> Partition:
        environment, directory = self._environment, self._directory
        config = environment.config().topic_config_in_force(topic.config_overrides)
        topic_id = directory.topic_id_of(name)
        if topic_id is not None and topic_id != uuid_text(topic.id):
            # Of a topic of that name that was deleted while we were away.
            log.warning("%s belongs to another topic; kept as %s", name, directory.put_aside(name).name)
            topic_id = None
        producers = Producers(self.producer_limit)
        is_only_replica = len(image.replicas) <= 1
        opened: PartitionLog | None = None
        try:
            opened = directory.open_log(name, config, now_ms=environment.runtime.now_ms(), observer=producers)
            if topic_id is None:
                directory.write_topic_id(opened, uuid_text(topic.id))
            if opened.log_end_offset and is_only_replica:
                # What recovery found was perhaps only in memory of the last process' kernel: safe before it is shown.
                opened.flush_now()
        except (StrandlineError, OSError):
            # It may be opened again many times: what is held for it would add up.
            producers.clear()
            for segment in () if opened is None else opened.segments:
                segment.close()
            raise
        opened.on_trimmed = self._leaving.take
        opened.remove_files = partial(self._removals.remove_files_of, opened)
        return _class_of(config)(
            topic.name,
            index,
            topic.id,
            log=opened,
            producers=producers,
            flusher=self._flusher,
            config=config,
            leader_epoch=image.leader_epoch,
            is_only_copy=len(image.isr) <= 1,
            is_internal=is_internal(topic.name),
            serial_gate=self._reencoder.serial_gate,
            # A power cut may have taken back that the log was cut, and not what was noted of the watermark afterwards:
            # only below the recovery point, which goes to the disk before a cut does, is the log what it was.
            high_watermark=None
            if is_only_replica
            else min(directory.high_watermarks.get(name, 0), opened.flushed_offset),
        )

    def put_aside(self, name: TopicPartition) -> None:
        """Keep a log that cannot be used under another name, and begin an empty one: others have the records."""
        directory = self._directory
        if directory.disk.exists(directory.path / str(name)):
            log.warning("%s is damaged and fetched again; kept as %s", name, directory.put_aside(name).name)

    def delete(self, where: TopicPartition, partition: Partition | None) -> bool:
        """Rename the directory out of the way, and remove it later; whether that was possible."""
        directory = self._directory
        target = directory.delete_path(where)
        try:
            if partition is None:
                directory.disk.rename(directory.path / str(where), target)
            else:
                partition.log.delete(target)
        except OSError as error:
            # The next start finds a directory without a topic and puts it aside.
            log.error("%s could not be deleted: %s", where, error)
            return False
        config = self._environment.config().topic_defaults if partition is None else partition.config
        self._removals.remove(target, delay_ms=config.file_delete_delay_ms)
        return True
