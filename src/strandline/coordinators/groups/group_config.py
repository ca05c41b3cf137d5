"""The broker's settings that groups obey, with Kafka's defaults, and what a single group may have of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Overrides = Callable[[str], Mapping[str, str]]
"""The settings that somebody gave to one group (a config resource of type GROUP), by the group's id."""

CONSUMER_SESSION_TIMEOUT = "consumer.session.timeout.ms"
CONSUMER_HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
CONSUMER_ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


class MigrationPolicy(StrEnum):
    """`group.consumer.migration.policy`: which way a live group may change its protocol."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What one group of the consumer protocol goes by: its own settings where it has some, else the broker's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


def no_overrides(group_id: str) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    min_session_timeout_ms: int = 6_000
    """`group.min.session.timeout.ms`"""
    max_session_timeout_ms: int = 1_800_000
    """`group.max.session.timeout.ms`"""
    initial_rebalance_delay_ms: int = 3_000
    """`group.initial.rebalance.delay.ms`"""
    group_size_max: int = 2**31 - 1
    """`group.max.size`"""
    offset_metadata_size_max: int = 4_096
    """`offset.metadata.max.bytes`"""
    offsets_retention_ms: int = 7 * 24 * 60 * 60_000
    """`offsets.retention.minutes`"""
    offsets_retention_check_interval_ms: int = 600_000
    """`offsets.retention.check.interval.ms`"""
    new_member_join_timeout_ms: int = 300_000
    """A new member does not know its id yet and cannot send heartbeats, so its JoinGroup is given this long."""
    group_record_bytes_max: int = 8 * 1024 * 1024
    """What all members of a classic group say of themselves, with their assignments, is one record. Kafka's limit is
    `max.message.bytes`, a megabyte."""
    pending_members_max: int = 100_000
    """Member ids that one shard has handed out (MEMBER_ID_REQUIRED) and nobody has joined with yet."""

    is_consumer_protocol_enabled: bool = True
    """Whether `group.coordinator.rebalance.protocols` names `consumer`."""
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    """`group.consumer.{session.timeout,heartbeat.interval,assignment.interval}.ms`"""
    consumer_min: ConsumerSettings = field(default_factory=lambda: ConsumerSettings(45_000, 5_000, 0))
    """`group.consumer.min...`: what a group may ask for at least."""
    consumer_max: ConsumerSettings = field(default_factory=lambda: ConsumerSettings(60_000, 15_000, 15_000))
    """`group.consumer.max...`: and at most."""
    consumer_group_size_max: int = 2**31 - 1
    """`group.consumer.max.size`"""
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """`group.consumer.assignors`; a group whose members name none gets the first."""
    consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    """`group.consumer.migration.policy`"""
    overrides: Overrides = no_overrides
    """Looked up anew each time, so a changed setting counts from a group's next heartbeat on."""

    def consumer_settings(self, group_id: str) -> ConsumerSettings:
        own = self.overrides(group_id)
        if not own:
            return self.consumer
        # They were in the broker's range when they were set. If the broker's range has changed since, it wins.
        low, high, default = self.consumer_min, self.consumer_max, self.consumer
        return ConsumerSettings(
            _within(
                own.get(CONSUMER_SESSION_TIMEOUT),
                low.session_timeout_ms,
                high.session_timeout_ms,
                default.session_timeout_ms,
            ),
            _within(
                own.get(CONSUMER_HEARTBEAT_INTERVAL),
                low.heartbeat_interval_ms,
                high.heartbeat_interval_ms,
                default.heartbeat_interval_ms,
            ),
            _within(
                own.get(CONSUMER_ASSIGNMENT_INTERVAL),
                low.assignment_interval_ms,
                high.assignment_interval_ms,
                default.assignment_interval_ms,
            ),
        )


def _within(value: str | None, low: int, high: int, default: int) -> int:
    try:
        return default if value is None else min(max(int(value), low), high)
    except ValueError:
        # Whoever wrote it into the metadata did not check it as we do, and a group must go on all the same.
        return default
