"""The broker's settings as groups use them, and the settings that a single group can override."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from strandline.config.group_settings import GroupSettings
from strandline.config.share_group_settings import ShareGroupSettings

Overrides = Callable[[str], Mapping[str, str]]
"""The settings of one group (a config resource of type GROUP), by the group's id."""

_DEFAULTS: Final = GroupSettings()
_SHARE_DEFAULTS: Final = ShareGroupSettings()

CONSUMER: Final = "consumer"
SHARE: Final = "share"


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
    """The settings of one consumer or share group: its own where it has some, else the broker's."""

    session_timeout_ms: int = _DEFAULTS.group_consumer_session_timeout_ms
    heartbeat_interval_ms: int = _DEFAULTS.group_consumer_heartbeat_interval_ms
    assignment_interval_ms: int = _DEFAULTS.group_consumer_assignment_interval_ms


def no_overrides(group_id: str) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The settings of all groups that a broker coordinates. Defaults are those of the table of settings."""

    min_session_timeout_ms: int = _DEFAULTS.group_min_session_timeout_ms
    max_session_timeout_ms: int = _DEFAULTS.group_max_session_timeout_ms
    initial_rebalance_delay_ms: int = _DEFAULTS.group_initial_rebalance_delay_ms
    group_size_max: int = _DEFAULTS.group_max_size
    offset_metadata_size_max: int = _DEFAULTS.offset_metadata_max_bytes
    offsets_retention_ms: int = _DEFAULTS.offsets_retention_minutes * 60_000
    offsets_retention_check_interval_ms: int = _DEFAULTS.offsets_retention_check_interval_ms
    new_member_join_timeout_ms: int = 300_000
    """The session timeout of a new member, which cannot send heartbeats because it does not know its id yet."""
    group_record_bytes_max: int = 8 * 1024 * 1024
    """The size of the one record with the metadata and assignments of all members of a classic group. Kafka's limit is
    `max.message.bytes`, a megabyte."""
    pending_members_max: int = 100_000
    """Member ids that one shard has returned (MEMBER_ID_REQUIRED) and that no member has joined with yet."""

    has_access_rules: bool = False
    """Whether an authorizer decides which topics a member may see."""
    is_consumer_protocol_enabled: bool = "consumer" in _DEFAULTS.group_coordinator_rebalance_protocols
    consumer: ConsumerSettings = ConsumerSettings()
    consumer_min: ConsumerSettings = ConsumerSettings(
        _DEFAULTS.group_consumer_min_session_timeout_ms,
        _DEFAULTS.group_consumer_min_heartbeat_interval_ms,
        _DEFAULTS.group_consumer_min_assignment_interval_ms,
    )
    consumer_max: ConsumerSettings = ConsumerSettings(
        _DEFAULTS.group_consumer_max_session_timeout_ms,
        _DEFAULTS.group_consumer_max_heartbeat_interval_ms,
        _DEFAULTS.group_consumer_max_assignment_interval_ms,
    )
    consumer_group_size_max: int = _DEFAULTS.group_consumer_max_size
    consumer_assignors: tuple[str, ...] = _DEFAULTS.group_consumer_assignors
    """A group whose members name none gets the first."""
    consumer_migration_policy: MigrationPolicy = field(
        default=MigrationPolicy(_DEFAULTS.group_consumer_migration_policy)
    )
    share: ConsumerSettings = ConsumerSettings(
        _SHARE_DEFAULTS.group_share_session_timeout_ms,
        _SHARE_DEFAULTS.group_share_heartbeat_interval_ms,
        _SHARE_DEFAULTS.group_share_assignment_interval_ms,
    )
    share_min: ConsumerSettings = ConsumerSettings(
        _SHARE_DEFAULTS.group_share_min_session_timeout_ms,
        _SHARE_DEFAULTS.group_share_min_heartbeat_interval_ms,
        _SHARE_DEFAULTS.group_share_min_assignment_interval_ms,
    )
    share_max: ConsumerSettings = ConsumerSettings(
        _SHARE_DEFAULTS.group_share_max_session_timeout_ms,
        _SHARE_DEFAULTS.group_share_max_heartbeat_interval_ms,
        _SHARE_DEFAULTS.group_share_max_assignment_interval_ms,
    )
    share_group_size_max: int = _SHARE_DEFAULTS.group_share_max_size
    share_assignor: str = _SHARE_DEFAULTS.group_share_assignors[0]
    overrides: Overrides = no_overrides
    """Called at each use, so a changed setting takes effect at a group's next heartbeat."""

    def consumer_settings(self, group_id: str) -> ConsumerSettings:
        own = self.overrides(group_id)
        return _combined(CONSUMER, own, self.consumer_min, self.consumer_max, self.consumer) if own else self.consumer

    def share_settings(self, group_id: str) -> ConsumerSettings:
        own = self.overrides(group_id)
        return _combined(SHARE, own, self.share_min, self.share_max, self.share) if own else self.share


def _combined(
    kind: str, own: Mapping[str, str], low: ConsumerSettings, high: ConsumerSettings, default: ConsumerSettings
) -> ConsumerSettings:
    # The values were in the broker's range when they were set. If that range has changed since, it wins.
    return ConsumerSettings(
        _within(
            own.get(f"{kind}.session.timeout.ms"),
            low.session_timeout_ms,
            high.session_timeout_ms,
            default.session_timeout_ms,
        ),
        _within(
            own.get(f"{kind}.heartbeat.interval.ms"),
            low.heartbeat_interval_ms,
            high.heartbeat_interval_ms,
            default.heartbeat_interval_ms,
        ),
        _within(
            own.get(f"{kind}.assignment.interval.ms"),
            low.assignment_interval_ms,
            high.assignment_interval_ms,
            default.assignment_interval_ms,
        ),
    )


def _within(value: str | None, low: int, high: int, default: int) -> int:
    try:
        return default if value is None else min(max(int(value), low), high)
    except ValueError:
        # Another controller implementation may have written a value that we reject. The group must still work.
        return default
