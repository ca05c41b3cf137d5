"""What groups committed lately, read from `__consumer_offsets` as any client with the right to read it can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from strandline.advice.anti_patterns import SINGLE_INTERVAL_MS, ObservedCommits
from strandline.cli.advise.tails import read_tails, tail_ranges
from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import CommandFailed
from strandline.cli.group.state import Place
from strandline.codec.internal_records import decode_coordinator_record
from strandline.codec.messages.offset_commit_key import OffsetCommitKey
from strandline.codec.messages.offset_commit_value import OffsetCommitValue
from strandline.coordinators.partitioning import KAFKAS_HASH, SIGN_CLEARED, partition_of_group
from strandline.errors import MalformedMessage

TOPIC: Final = "__consumer_offsets"
RECORDS_PER_PARTITION: Final = 5_000


@dataclass
class CommitCounts:
    """The commits of a group to a topic, as they are counted."""

    commits: int = 0
    rescans: int = 0
    seeks_back: int = 0
    singles: int = 0
    steps: int = 0
    last: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By partition: the last offset, and when it was committed."""

    def add(self, partition: int, offset: int, at_ms: int, log_start: int) -> None:
        self.commits += 1
        before = self.last.get(partition)
        self.last[partition] = (offset, at_ms)
        if before is None:
            return
        moved = offset - before[0]
        if moved > 0:
            self.steps += 1
            self.singles += moved == 1 and at_ms - before[1] < SINGLE_INTERVAL_MS
        elif moved < 0:
            # A reader that scans commits after its first records, so the start need not be met exactly.
            near_start = offset - log_start <= max(0, before[0] - log_start) // 2
            self.rescans += near_start
            self.seeks_back += not near_start

    def observed(self) -> ObservedCommits:
        return ObservedCommits(self.commits, self.rescans, self.seeks_back, self.singles, self.steps)


def read_commits(
    cluster: Cluster, admin: Any, group_ids: Iterable[str], partitions: int | None, starts: Mapping[Place, int]
) -> dict[tuple[str, str], ObservedCommits] | None:
    """Return the last commits by group and topic; None if they cannot be read. `starts` are log start offsets."""
    groups = frozenset(group_ids)
    if partitions is None:
        return None
    # The protocol does not tell clients of every version which hash the cluster has, so both partitions are read.
    homes = sorted(
        {
            partition_of_group(each, partition_count=partitions, hash_level=level)
            for each in groups
            for level in (SIGN_CLEARED, KAFKAS_HASH)
        }
    )
    counted: dict[tuple[str, str], CommitCounts] = {}
    try:
        ranges = tail_ranges(cluster, admin, [(TOPIC, home) for home in homes], RECORDS_PER_PARTITION)
        for message in read_tails(cluster, ranges):
            commit = _commit_of(message)
            if commit is None or commit[0].group not in groups:
                continue
            key, value = commit
            counts = counted.setdefault((key.group, key.topic), CommitCounts())
            start = starts.get((key.topic, key.partition), 0)
            counts.add(key.partition, value.offset, value.commit_timestamp, start)
    except CommandFailed:
        return None
    return {name: counts.observed() for name, counts in counted.items()}


def _commit_of(message: Any) -> tuple[OffsetCommitKey, OffsetCommitValue] | None:
    if message.key() is None or message.value() is None:
        return None
    try:
        key, value = decode_coordinator_record(message.key(), message.value())
    except MalformedMessage:
        return None
    # Other records of the topic are groups and their members.
    return (key, value) if isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue) else None
