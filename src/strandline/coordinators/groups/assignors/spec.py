"""The input of an assignor: the members with subscriptions and present partitions, and the size of each topic."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

Assignment = dict[uuid.UUID, list[int]]
"""Partitions by topic id; every list in order, and none empty."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    topic_ids: frozenset[uuid.UUID]
    """Topics it subscribes to, by name or pattern, as far as they exist."""
    assigned: Mapping[uuid.UUID, Collection[int]] = field(default_factory=dict)
    """Its part of the target assignment that stands."""
    instance_id: str | None = None
    rack_id: str | None = None
    """Kept for assignors that look at racks. As in Kafka since 4.0, neither of ours does."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    members: Mapping[str, MemberSpec]
    partitions: Mapping[uuid.UUID, int]
    """How many partitions each topic has; a topic that is not here does not exist."""

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return len(self.subscriptions) <= 1

    @property
    def subscriptions(self) -> frozenset[frozenset[uuid.UUID]]:
        """What members subscribe to, each only once. Many members mostly share a few, and one set in memory."""
        return frozenset(member.topic_ids for member in self.members.values())

    @property
    def topic_ids(self) -> list[uuid.UUID]:
        """All that anybody subscribes to, in a fixed order."""
        return sorted(frozenset[uuid.UUID]().union(*self.subscriptions), key=int)
