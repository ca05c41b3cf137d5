"""The settings of consumer groups, and the checks of their combinations."""

from __future__ import annotations

import dataclasses

from strandline.config.settings import CLUSTER_WIDE, INT_MAX, at_least, integer, long, of_form, one_of, text, words
from strandline.errors import InvalidConfig

MIB = 1024 * 1024

CLASSIC = "classic"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """The table of group settings. Each attribute is the setting of that name with underscores for dots."""

    # Every group.
    group_min_session_timeout_ms: int = integer(
        "group.min.session.timeout.ms", 6_000, at_least(0), "The shortest session timeout a member may ask for."
    )
    group_max_session_timeout_ms: int = integer(
        "group.max.session.timeout.ms", 1_800_000, at_least(0), "The longest session timeout a member may ask for."
    )
    group_initial_rebalance_delay_ms: int = integer(
        "group.initial.rebalance.delay.ms", 3_000, at_least(0), "How long a new group waits for more members."
    )
    group_max_size: int = integer("group.max.size", INT_MAX, at_least(1), "Members that one group may have.")
    group_lag_interval_ms: int = integer(
        "group.lag.interval.ms",
        10_000,
        at_least(0),
        "Strandline's own. How often a node looks how far the groups that it coordinates are behind; 0 is never.",
    )
    offset_metadata_max_bytes: int = integer(
        "offset.metadata.max.bytes", 4096, at_least(0), "The longest metadata text of a committed offset."
    )
    offsets_topic_num_partitions: int = integer(
        "offsets.topic.num.partitions", 50, at_least(1), "Partitions of `__consumer_offsets`; fixed once it exists."
    )
    offsets_topic_segment_bytes: int = integer(
        "offsets.topic.segment.bytes", 100 * MIB, at_least(MIB), "Segment size of `__consumer_offsets`."
    )
    offsets_retention_minutes: int = integer(
        "offsets.retention.minutes",
        10_080,
        at_least(1),
        "How long an empty group keeps its offsets.",
    )
    offsets_retention_check_interval_ms: int = long(
        "offsets.retention.check.interval.ms",
        600_000,
        at_least(1),
        "How often offsets that are too old are looked for.",
    )

    # Groups of the consumer protocol (KIP-848).
    group_coordinator_rebalance_protocols: tuple[str, ...] = words(
        "group.coordinator.rebalance.protocols",
        (CLASSIC, "consumer", "streams"),
        one_of(CLASSIC, "consumer", "share", "streams"),
        "The protocols that groups may use. `classic` cannot be left out. Share groups go by `share.version`, as in "
        "Apache Kafka; there are no streams groups yet.",
    )
    group_consumer_session_timeout_ms: int = integer(
        "group.consumer.session.timeout.ms", 45_000, at_least(1), "How long a silent consumer stays a member."
    )
    group_consumer_min_session_timeout_ms: int = integer(
        "group.consumer.min.session.timeout.ms", 45_000, at_least(1), "The shortest session that a group may be given."
    )
    group_consumer_max_session_timeout_ms: int = integer(
        "group.consumer.max.session.timeout.ms", 60_000, at_least(1), "The longest session that a group may be given."
    )
    group_consumer_heartbeat_interval_ms: int = integer(
        "group.consumer.heartbeat.interval.ms", 5_000, at_least(1), "How often a consumer sends a heartbeat."
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        "group.consumer.min.heartbeat.interval.ms", 5_000, at_least(1), "The shortest interval a group may be given."
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        "group.consumer.max.heartbeat.interval.ms", 15_000, at_least(1), "The longest interval a group may be given."
    )
    group_consumer_assignment_interval_ms: int = integer(
        "group.consumer.assignment.interval.ms",
        1_000,
        at_least(0),
        "The shortest time between two assignments of a group; one whose members come and go costs no more than that.",
        update=CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = integer(
        "group.consumer.min.assignment.interval.ms", 0, at_least(0), "The least a group may be given for it."
    )
    group_consumer_max_assignment_interval_ms: int = integer(
        "group.consumer.max.assignment.interval.ms", 15_000, at_least(0), "The most a group may be given for it."
    )
    group_consumer_max_size: int = integer(
        "group.consumer.max.size", INT_MAX, at_least(1), "Members that one group of the consumer protocol may have."
    )
    group_consumer_assignors: tuple[str, ...] = words(
        "group.consumer.assignors",
        ("uniform", "range"),
        one_of("uniform", "range"),
        "The assignors that members may ask for; a group whose members ask for none gets the first. Apache Kafka takes "
        "names of Java classes too.",
    )
    group_consumer_migration_policy: str = text(
        "group.consumer.migration.policy",
        "bidirectional",
        of_form("(?i)bidirectional|upgrade|downgrade|disabled", "bidirectional", "upgrade", "downgrade", "disabled"),
        "Whether a group with members may go from the classic protocol to the consumer protocol (`upgrade`), back "
        "(`downgrade`), both or neither.",
    )


def check_groups(settings: GroupSettings) -> None:
    """Raise InvalidConfig where settings of groups contradict one another, with Kafka's messages."""
    if CLASSIC not in settings.group_coordinator_rebalance_protocols:
        raise InvalidConfig(f"group.coordinator.rebalance.protocols: disabling {CLASSIC!r} is not supported")
    assignors = settings.group_consumer_assignors
    if not assignors or len(set(assignors)) < len(assignors):
        raise InvalidConfig(f"group.consumer.assignors={','.join(assignors)!r} is not allowed; expected each name once")
    heartbeat_ms = settings.group_consumer_heartbeat_interval_ms
    session_ms = settings.group_consumer_session_timeout_ms
    for name, minimum, value, maximum in (
        (
            "heartbeat.interval.ms",
            settings.group_consumer_min_heartbeat_interval_ms,
            heartbeat_ms,
            settings.group_consumer_max_heartbeat_interval_ms,
        ),
        (
            "session.timeout.ms",
            settings.group_consumer_min_session_timeout_ms,
            session_ms,
            settings.group_consumer_max_session_timeout_ms,
        ),
        (
            "assignment.interval.ms",
            settings.group_consumer_min_assignment_interval_ms,
            settings.group_consumer_assignment_interval_ms,
            settings.group_consumer_max_assignment_interval_ms,
        ),
    ):
        _check_order(f"group.consumer.min.{name}", minimum, f"group.consumer.max.{name}", maximum)
        _check_order(f"group.consumer.min.{name}", minimum, f"group.consumer.{name}", value)
        _check_order(f"group.consumer.{name}", value, f"group.consumer.max.{name}", maximum)
    if heartbeat_ms >= session_ms:
        raise InvalidConfig(
            f"group.consumer.heartbeat.interval.ms={heartbeat_ms} must be less than "
            f"group.consumer.session.timeout.ms={session_ms}"
        )


def _check_order(lower: str, low: int, higher: str, high: int) -> None:
    if low > high:
        raise InvalidConfig(f"{higher}={high} must be greater than or equal to {lower}={low}")
