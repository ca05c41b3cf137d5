"""The settings of share groups (KIP-932), and the checks of their combinations."""

from __future__ import annotations

import dataclasses

from strandline.config.settings import CLUSTER_WIDE, at_least, between, boolean, integer, one_of, text, words
from strandline.errors import InvalidConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShareGroupSettings:
    """The table of share group settings. Each attribute is the setting of that name with underscores for dots."""

    # Members.
    group_share_session_timeout_ms: int = integer(
        "group.share.session.timeout.ms", 45_000, at_least(1), "How long a silent share consumer stays a member."
    )
    group_share_min_session_timeout_ms: int = integer(
        "group.share.min.session.timeout.ms", 45_000, at_least(1), "The shortest session a share group may be given."
    )
    group_share_max_session_timeout_ms: int = integer(
        "group.share.max.session.timeout.ms", 60_000, at_least(1), "The longest session a share group may be given."
    )
    group_share_heartbeat_interval_ms: int = integer(
        "group.share.heartbeat.interval.ms", 5_000, at_least(1), "How often a share consumer sends a heartbeat."
    )
    group_share_min_heartbeat_interval_ms: int = integer(
        "group.share.min.heartbeat.interval.ms", 5_000, at_least(1), "The shortest interval a share group may be given."
    )
    group_share_max_heartbeat_interval_ms: int = integer(
        "group.share.max.heartbeat.interval.ms", 15_000, at_least(1), "The longest interval a share group may be given."
    )
    group_share_assignment_interval_ms: int = integer(
        "group.share.assignment.interval.ms",
        1_000,
        at_least(0),
        "The shortest time between two assignments of a share group.",
        update=CLUSTER_WIDE,
    )
    group_share_min_assignment_interval_ms: int = integer(
        "group.share.min.assignment.interval.ms", 0, at_least(0), "The least a share group may be given for it."
    )
    group_share_max_assignment_interval_ms: int = integer(
        "group.share.max.assignment.interval.ms", 15_000, at_least(0), "The most a share group may be given for it."
    )
    group_share_max_size: int = integer(
        "group.share.max.size", 200, between(1, 1_000), "Members that one share group may have."
    )
    group_share_assignors: tuple[str, ...] = words(
        "group.share.assignors",
        ("simple",),
        one_of("simple"),
        "The assignor of share groups. Apache Kafka takes the name of a Java class too.",
    )

    # Delivery.
    group_share_record_lock_duration_ms: int = integer(
        "group.share.record.lock.duration.ms",
        30_000,
        between(1_000, 3_600_000),
        "How long a record is locked for the consumer that acquired it.",
    )
    group_share_min_record_lock_duration_ms: int = integer(
        "group.share.min.record.lock.duration.ms",
        15_000,
        between(1_000, 30_000),
        "The shortest lock a share group may be given.",
    )
    group_share_max_record_lock_duration_ms: int = integer(
        "group.share.max.record.lock.duration.ms",
        60_000,
        between(30_000, 3_600_000),
        "The longest lock a share group may be given.",
    )
    group_share_delivery_count_limit: int = integer(
        "group.share.delivery.count.limit",
        5,
        between(2, 10),
        "How often a record is delivered before it is archived.",
    )
    group_share_min_delivery_count_limit: int = integer(
        "group.share.min.delivery.count.limit",
        2,
        between(2, 5),
        "The lowest limit a share group may be given.",
    )
    group_share_max_delivery_count_limit: int = integer(
        "group.share.max.delivery.count.limit",
        10,
        between(5, 25),
        "The highest limit a share group may be given.",
    )
    group_share_partition_max_record_locks: int = integer(
        "group.share.partition.max.record.locks",
        2_000,
        between(100, 10_000),
        "Records of one partition that a share group may have in flight.",
    )
    group_share_min_partition_max_record_locks: int = integer(
        "group.share.min.partition.max.record.locks",
        100,
        between(100, 2_000),
        "The fewest records in flight a share group may be given.",
    )
    group_share_max_partition_max_record_locks: int = integer(
        "group.share.max.partition.max.record.locks",
        4_000,
        between(2_000, 10_000),
        "The most records in flight a share group may be given.",
    )
    strandline_share_partition_max_waiting_records: int = integer(
        "strandline.share.partition.max.waiting.records",
        1_000_000,
        between(1_000, 10_000_000),
        "Strandline's own. Records of one partition that may wait in a share group, until they are due, for their "
        "back-off or for others of their key (there at most 100000). While there are so many, no new ones are "
        "delivered. Each takes up to 30 bytes in memory, one that waits for its key up to 300.",
    )
    group_share_max_share_sessions: int = integer(
        "group.share.max.share.sessions", 2_000, at_least(1), "Share sessions that a broker keeps."
    )

    # Dead letters.
    errors_deadletterqueue_auto_create_topics_enable: bool = boolean(
        "errors.deadletterqueue.auto.create.topics.enable",
        False,
        "Whether a broker creates the dead-letter topic of a share group that does not exist.",
        update=CLUSTER_WIDE,
    )
    errors_deadletterqueue_topic_name_prefix: str = text(
        "errors.deadletterqueue.topic.name.prefix",
        "dlq.",
        None,
        "What the names of dead-letter topics begin with. Empty allows every name.",
        update=CLUSTER_WIDE,
    )


def check_share_groups(settings: ShareGroupSettings) -> None:
    """Raise InvalidConfig where settings of share groups contradict one another, with Kafka's messages."""
    if len(settings.group_share_assignors) != 1:
        raise InvalidConfig(
            f"group.share.assignors={','.join(settings.group_share_assignors)!r} is not allowed; expected one name"
        )
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(ShareGroupSettings)}
    for what in (
        "session_timeout_ms",
        "heartbeat_interval_ms",
        "assignment_interval_ms",
        "record_lock_duration_ms",
        "delivery_count_limit",
        "partition_max_record_locks",
    ):
        _check_order(values, f"group_share_min_{what}", f"group_share_{what}")
        _check_order(values, f"group_share_{what}", f"group_share_max_{what}")
    _check_order(values, "group_share_max_size", "group_share_max_share_sessions")
    heartbeat_ms, session_ms = settings.group_share_heartbeat_interval_ms, settings.group_share_session_timeout_ms
    if heartbeat_ms >= session_ms:
        raise InvalidConfig(
            f"group.share.heartbeat.interval.ms={heartbeat_ms} must be less than "
            f"group.share.session.timeout.ms={session_ms}"
        )


def _check_order(values: dict[str, int], lower: str, higher: str) -> None:
    if values[lower] > values[higher]:
        low, high = (f"{name.replace('_', '.')}={values[name]}" for name in (lower, higher))
        raise InvalidConfig(f"{high} must be greater than or equal to {low}")
