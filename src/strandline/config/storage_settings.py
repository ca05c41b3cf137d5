"""The settings of the log cleaner, the scrubber and tiered storage, and the checks of their combinations.

Settings that a topic can override (`min.cleanable.dirty.ratio` and others) are in `topic_config`.
"""

from __future__ import annotations

import dataclasses
import sys

from strandline.config.settings import (
    CLUSTER_WIDE,
    INT_MAX,
    LONG_MAX,
    Synonym,
    at_least,
    between,
    boolean,
    double,
    integer,
    long,
    one_of,
    password,
    short,
    text,
)
from strandline.errors import InvalidConfig

KIB = 1024
MIB = 1024 * 1024
DEDUPE_BYTES_PER_THREAD = MIB
"""Each cleaner gets more than this of the buffer for keys, as in Kafka."""
AS_RETENTION = -2
"""Local retention that is the total one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TieredTopicSettings:
    """The settings of a topic that concern its segments in an object store; a part of `TopicConfig`."""

    remote_storage_enable: bool = boolean(
        "remote.storage.enable",
        False,
        "Whether leaders copy sealed segments to the object store, and delete local ones by `local.retention`. Needs "
        "`remote.log.storage.system.enable` on all nodes. With `cleanup.policy=compact` the store is compacted, too.",
    )
    local_retention_ms: int = long(
        "local.retention.ms",
        AS_RETENTION,
        at_least(AS_RETENTION),
        "The age from which copied segments are deleted on local disks; -2 for `retention.ms`. With `compact` alone "
        "-2 keeps them.",
        synonyms=(Synonym("log.local.retention.ms", update=CLUSTER_WIDE),),
    )
    local_retention_bytes: int = long(
        "local.retention.bytes",
        AS_RETENTION,
        at_least(AS_RETENTION),
        "The size from which copied segments are deleted on local disks; -2 for `retention.bytes`. With `compact` "
        "alone -2 keeps them.",
        synonyms=(Synonym("log.local.retention.bytes", update=CLUSTER_WIDE),),
    )
    remote_log_copy_disable: bool = boolean(
        "remote.log.copy.disable",
        False,
        "Whether a tiered topic copies no more segments. Those in the store stay readable until retention.",
    )
    remote_log_delete_on_disable: bool = boolean(
        "remote.log.delete.on.disable",
        False,
        "Whether `remote.storage.enable` may be turned off: what is only in the store is deleted then.",
    )
    strandline_remote_recall: bool = boolean(
        "strandline.remote.recall",
        False,
        "Strandline's own. Whether each replica brings back to its disk what only the store has, and keeps it there. "
        "`strandline topic alter --storage local` sets it, and ends the tier when every replica has all.",
    )
    strandline_remote_origin: str = text(
        "strandline.remote.origin",
        "",
        None,
        "Strandline's own. Where the logs of a topic begin that was cloned or restored. `strandline topic clone` and "
        "`strandline storage restore` write it when they create the topic; it cannot be changed.",
    )
    storage: str = text(
        "strandline.storage",
        "local",
        one_of("local", "object"),
        "Strandline's own. `object`: records are acknowledged when they are in the object store, and brokers keep no "
        "data that they could lose. Chosen when the topic is created. Needs `remote.log.storage.system.enable`.",
    )
    object_ack: str = text(
        "strandline.object.ack",
        "object",
        one_of("object", "wal"),
        "Strandline's own, for `strandline.storage=object`. `object`: acknowledged when an object and its commit are "
        "durable. `wal`: acknowledged when replicated, as other topics are, and uploaded afterwards; the topic is a "
        "tiered one. Chosen when the topic is created.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StorageSettings:
    """The table of storage settings. Each attribute is the setting of that name with underscores for dots."""

    log_cleaner_enable: bool = boolean(
        "log.cleaner.enable",
        True,
        "Whether topics with `cleanup.policy=compact` are compacted. Internal topics are such; without it they grow.",
    )
    log_cleaner_threads: int = integer(
        "log.cleaner.threads",
        1,
        at_least(0),
        "Logs that are cleaned at a time, each in a process of its own.",
        update=CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = long(
        "log.cleaner.dedupe.buffer.size",
        128 * MIB,
        None,
        "Memory for the last offsets of keys, for all cleaners together: 24 bytes a key. A log with more dirty keys is "
        "cleaned in several goes. No more is taken than a log needs.",
        update=CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_size: int = integer(
        "log.cleaner.io.buffer.size",
        512 * KIB,
        at_least(0),
        "What a cleaner reads at a time, for all cleaners together.",
        update=CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_load_factor: float = double(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        None,
        "How full the buffer for keys may become.",
        update=CLUSTER_WIDE,
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        "log.cleaner.io.max.bytes.per.second",
        sys.float_info.max,
        None,
        "What all cleaners together may read and write in a second.",
        update=CLUSTER_WIDE,
    )
    log_cleaner_backoff_ms: int = long(
        "log.cleaner.backoff.ms",
        15_000,
        at_least(0),
        "How long the cleaner rests when there is nothing to clean.",
        update=CLUSTER_WIDE,
    )
    log_scrub_interval_ms: int = long(
        "log.scrub.interval.ms",
        7 * 24 * 3_600_000,
        at_least(1),
        "Strandline's own. How often the files of each log are read again, to find what changed on the disk.",
        update=CLUSTER_WIDE,
    )
    log_scrub_max_bytes_per_second: int = long(
        "log.scrub.max.bytes.per.second",
        10 * MIB,
        at_least(1),
        "Strandline's own. What is read for that in a second.",
        update=CLUSTER_WIDE,
    )
    strandline_retention_lock_max_ms: int = long(
        "strandline.retention.lock.max.ms",
        365 * 24 * 3_600_000,
        at_least(0),
        "The longest `strandline.retention.lock.ms` of a topic. Longer ones count as this; with 0 no topic is locked.",
    )

    # Tiered storage.
    remote_log_storage_system_enable: bool = boolean(
        "remote.log.storage.system.enable",
        False,
        "Whether topics may keep older segments in an object store (`remote.storage.enable`). It must be the same on "
        "all nodes, and needs `strandline.remote.store.url`. A node with a tiered topic does not start without it.",
    )
    strandline_remote_store_url: str | None = text(
        "strandline.remote.store.url",
        None,
        None,
        "Strandline's own. The object store of tiered topics: `file:///directory`, `s3://bucket/prefix`, "
        "`gs://bucket/prefix` or `az://container/prefix`. All nodes of a cluster use the same one.",
    )
    strandline_remote_store_options: str | None = password(
        "strandline.remote.store.options",
        "Strandline's own. Options of the store, `name=value` separated by commas: credentials, region, endpoint. "
        "Without it they are taken from the environment, as the tools of the store do.",
    )
    strandline_remote_cache_bytes: int = long(
        "strandline.remote.cache.bytes",
        64 * MIB,
        at_least(8 * MIB),
        "Strandline's own. Memory for blocks of 4 MiB, and indexes, that were read from the store.",
    )
    strandline_remote_store_read_only: bool = boolean(
        "strandline.remote.store.read.only",
        False,
        "Strandline's own. Whether this cluster only reads the object store, which may be another cluster's: it copies "
        "and deletes nothing there. For `strandline storage restore` beside a cluster that goes on.",
    )
    strandline_remote_checkpoint_interval_ms: int = long(
        "strandline.remote.checkpoint.interval.ms",
        60_000,
        at_least(100),
        "Strandline's own. How often each node writes down in the object store what it has there, if that has changed. "
        "`strandline storage restore` builds a cluster from it; so this bounds what a loss of all disks can cost.",
        update=CLUSTER_WIDE,
    )
    remote_log_manager_task_interval_ms: int = long(
        "remote.log.manager.task.interval.ms",
        30_000,
        at_least(1),
        "How often a leader looks for segments to copy to the store, and for those that are past retention there.",
    )
    remote_log_manager_copier_thread_pool_size: int = integer(
        "remote.log.manager.copier.thread.pool.size",
        10,
        at_least(1),
        "Segments that are uploaded at a time; here no more than 4.",
        update=CLUSTER_WIDE,
    )
    remote_log_manager_copy_max_bytes_per_second: int = long(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG_MAX,
        at_least(1),
        "Bytes that this node uploads in a second. An upload begins while fewer passed within the quota window.",
        update=CLUSTER_WIDE,
    )
    remote_log_manager_copy_quota_window_num: int = integer(
        "remote.log.manager.copy.quota.window.num",
        11,
        at_least(1),
        "Samples of the quota window of uploads. The window is so many samples long.",
    )
    remote_log_manager_copy_quota_window_size_seconds: int = integer(
        "remote.log.manager.copy.quota.window.size.seconds",
        1,
        at_least(1),
        "Seconds of a sample of the quota window of uploads.",
    )
    remote_log_manager_fetch_max_bytes_per_second: int = long(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG_MAX,
        at_least(1),
        "Bytes that this node reads from the store in a second. A read begins while fewer passed within the quota "
        "window; until then a fetch waits as it does for a slow store.",
        update=CLUSTER_WIDE,
    )
    remote_log_manager_fetch_quota_window_num: int = integer(
        "remote.log.manager.fetch.quota.window.num",
        11,
        at_least(1),
        "Samples of the quota window of reads. The window is so many samples long.",
    )
    remote_log_manager_fetch_quota_window_size_seconds: int = integer(
        "remote.log.manager.fetch.quota.window.size.seconds",
        1,
        at_least(1),
        "Seconds of a sample of the quota window of reads.",
    )
    remote_log_reader_threads: int = integer(
        "remote.log.reader.threads",
        10,
        at_least(1),
        "Reads from the store at a time.",
        update=CLUSTER_WIDE,
    )
    remote_log_reader_max_pending_tasks: int = integer(
        "remote.log.reader.max.pending.tasks",
        100,
        at_least(1),
        "Partitions that may wait for the store at a time. A fetch of more is answered without their records.",
    )
    remote_fetch_max_wait_ms: int = integer(
        "remote.fetch.max.wait.ms",
        500,
        at_least(1),
        "How long a fetch waits for records from the store. A slower read goes on, and the next fetch finds it.",
        update=CLUSTER_WIDE,
    )
    remote_list_offsets_request_timeout_ms: int = long(
        "remote.list.offsets.request.timeout.ms",
        30_000,
        at_least(1),
        "How long ListOffsets looks for a time in the store.",
        update=CLUSTER_WIDE,
    )
    strandline_object_flush_interval_ms: int = integer(
        "strandline.object.flush.interval.ms",
        250,
        between(1, 60_000),
        "Strandline's own. How often this node writes the batches of all its object topics to the store, as one "
        "object. Without batches nothing is written; the first batch after a pause is written at once.",
        update=CLUSTER_WIDE,
    )
    strandline_object_flush_bytes: int = integer(
        "strandline.object.flush.bytes",
        8 * MIB,
        between(64 * KIB, 64 * MIB),
        "Strandline's own. So many bytes are written before the interval is over. An object has no more, unless one "
        "batch is larger.",
        update=CLUSTER_WIDE,
    )
    strandline_object_buffer_bytes: int = long(
        "strandline.object.buffer.bytes",
        256 * MIB,
        at_least(MIB),
        "Strandline's own. Bytes of object topics that may wait on this node's disk for the store. Above that, "
        "producers get NOT_ENOUGH_REPLICAS and try again.",
        update=CLUSTER_WIDE,
    )
    strandline_object_merge_interval_ms: int = long(
        "strandline.object.merge.interval.ms",
        600_000,
        at_least(100),
        "Strandline's own. After this time the batches of a partition are merged into a segment in the store.",
        update=CLUSTER_WIDE,
    )
    strandline_object_commits_replication_factor: int = short(
        "strandline.object.commits.replication.factor",
        3,
        at_least(1),
        "Strandline's own. Replicas of `__strandline_object_commits`, which is created with the first object topic. "
        "Where it is not set, no more than there are brokers.",
    )
    strandline_object_checkpoint_interval_ms: int = long(
        "strandline.object.checkpoint.interval.ms",
        300_000,
        at_least(100),
        "Strandline's own. How often what `__strandline_object_commits` says is written to the object store as a "
        "whole. A broker that starts reads that and the records behind it; older records are deleted.",
        update=CLUSTER_WIDE,
    )
    strandline_object_orphan_ms: int = long(
        "strandline.object.orphan.ms",
        3_600_000,
        at_least(1000),
        "Strandline's own. How long an object that no commit names is watched before it is deleted.",
        update=CLUSTER_WIDE,
    )
    rlmm_config_remote_log_metadata_topic_num_partitions: int = integer(
        "rlmm.config.remote.log.metadata.topic.num.partitions",
        50,
        between(1, INT_MAX),
        "Partitions of `__remote_log_metadata`, which is created with the first tiered topic; fixed once it exists.",
    )
    rlmm_config_remote_log_metadata_topic_replication_factor: int = short(
        "rlmm.config.remote.log.metadata.topic.replication.factor",
        3,
        at_least(1),
        "Replicas of `__remote_log_metadata`. Where it is not set, no more than there are brokers.",
    )
    rlmm_config_remote_log_metadata_topic_min_isr: int = integer(
        "rlmm.config.remote.log.metadata.topic.min.isr",
        2,
        at_least(1),
        "In-sync replicas that `__remote_log_metadata` needs; all of them, if it has fewer.",
    )
    rlmm_config_remote_log_metadata_topic_retention_ms: int = long(
        "rlmm.config.remote.log.metadata.topic.retention.ms",
        -1,
        at_least(-1),
        "Retention of `__remote_log_metadata`; -1 for ever. Less than the retention of tiered topics loses their data.",
    )


def check_storage(settings: StorageSettings) -> None:
    """Raise InvalidConfig for settings that contradict one another, or of which one is missing."""
    each = settings.log_cleaner_dedupe_buffer_size // max(1, settings.log_cleaner_threads)
    if each <= DEDUPE_BYTES_PER_THREAD:
        raise InvalidConfig(
            f"log.cleaner.dedupe.buffer.size={settings.log_cleaner_dedupe_buffer_size} is not allowed with "
            f"log.cleaner.threads={settings.log_cleaner_threads}; expected more than 1 MiB for each"
        )
    if not 0 < settings.log_cleaner_io_buffer_load_factor <= 1:
        raise InvalidConfig(
            f"log.cleaner.io.buffer.load.factor={settings.log_cleaner_io_buffer_load_factor} is not allowed; "
            "expected more than 0 and at most 1"
        )
    if settings.remote_log_storage_system_enable and not settings.strandline_remote_store_url:
        raise InvalidConfig(
            "remote.log.storage.system.enable=true needs strandline.remote.store.url; expected for example "
            "file:///var/lib/strandline-tier or s3://bucket/prefix"
        )


def check_tiering(settings: TieredTopicSettings, *, retention_ms: int, retention_bytes: int) -> None:
    """Raise InvalidConfig, in Kafka's words, where the settings of a tiered topic contradict one another."""
    if settings.storage == "object":
        if settings.remote_log_copy_disable:
            raise InvalidConfig("remote.log.copy.disable=true cannot be used with strandline.storage=object")
    elif settings.object_ack != "object":
        raise InvalidConfig("strandline.object.ack needs strandline.storage=object")
    elif not settings.remote_storage_enable:
        return
    pairs = (
        ("ms", settings.local_retention_ms, retention_ms),
        ("bytes", settings.local_retention_bytes, retention_bytes),
    )
    for unit, local, total in pairs:
        if local == AS_RETENTION or total == -1:
            continue
        if local == -1:
            raise InvalidConfig(
                f"Invalid value -1 for configuration local.retention.{unit}: "
                f"Value must not be -1 as retention.{unit} value is set as {total}."
            )
        if local > total:
            raise InvalidConfig(
                f"Invalid value {local} for configuration local.retention.{unit}: "
                f"Value must not be more than property: retention.{unit} value."
            )
    if settings.remote_log_copy_disable:
        for unit, local, total in pairs:
            if local not in (AS_RETENTION, total):
                raise InvalidConfig(
                    f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and "
                    f"`retention.{unit}` must be set to the identical value because there will be no more logs copied "
                    "to the remote storage."
                )
