"""The broker's settings that groups obey, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass


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
    new_member_join_timeout_ms: int = 300_000
    """A new member does not know its id yet and cannot send heartbeats, so its JoinGroup is given this long."""
    pending_members_max: int = 100_000
    """Member ids that one shard has handed out (MEMBER_ID_REQUIRED) and nobody has joined with yet."""
