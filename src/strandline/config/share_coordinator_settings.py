"""The settings of the share coordinator and of its topic `__share_group_state`."""

from __future__ import annotations

import dataclasses

from strandline.config.settings import at_least, between, integer, short

MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShareCoordinatorSettings:
    """The table of share coordinator settings. Each attribute is the setting of that name with underscores for dots."""

    share_coordinator_state_topic_num_partitions: int = integer(
        "share.coordinator.state.topic.num.partitions",
        50,
        at_least(1),
        "Partitions of `__share_group_state`; fixed once it exists.",
    )
    share_coordinator_state_topic_replication_factor: int = short(
        "share.coordinator.state.topic.replication.factor",
        3,
        at_least(1),
        "Replicas of `__share_group_state`, which is created when so many brokers are registered and not before. Where "
        "it is not set, no more than there are nodes, so a single node needs no setting.",
    )
    share_coordinator_state_topic_min_isr: int = short(
        "share.coordinator.state.topic.min.isr",
        2,
        at_least(1),
        "In-sync replicas that `__share_group_state` needs; all of them, if it has fewer.",
    )
    share_coordinator_state_topic_segment_bytes: int = integer(
        "share.coordinator.state.topic.segment.bytes",
        100 * MIB,
        at_least(MIB),
        "Segment size of `__share_group_state`.",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = integer(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        between(0, 500),
        "Updates of a share partition after which its whole state is written again.",
    )
    share_coordinator_write_timeout_ms: int = integer(
        "share.coordinator.write.timeout.ms",
        5_000,
        at_least(1),
        "How long the share coordinator waits until a write is committed. Then it answers COORDINATOR_NOT_AVAILABLE, "
        "and the broker that wrote retries.",
    )
    share_coordinator_state_topic_prune_interval_ms: int = integer(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        at_least(1),
        "How often records that no share partition needs are removed from the start of `__share_group_state`.",
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = integer(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        at_least(1),
        "The age of a share partition's state on disk after which it is written again, so that what is before it can "
        "be removed.",
    )
