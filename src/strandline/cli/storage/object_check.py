"""The part of `storage check` and its repair that is about object topics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.cli.common.client import Cluster
from strandline.cli.common.progress import Progress
from strandline.cli.storage.access import listed_objects, read_metadata, topics_by_id, write_records
from strandline.cli.storage.commit_log import CommitHistory, read_commits
from strandline.client.cluster_client import ClusterClient
from strandline.errors import CorruptLog
from strandline.tiers.store.failures import ObjectDamaged, ObjectMissing
from strandline.tiers.store_check import StoreProblem
from strandline.tiers.wal.commit_check import (
    CheckedCommits,
    CommitFinding,
    compare_commits,
    confirmed,
    damages_in,
    doubtful,
    is_doubtful,
    lost_ranges,
    ranges_by_object,
)
from strandline.tiers.wal.events import (
    COMMIT_TOPIC,
    CommitEvent,
    ObjectId,
    ObjectsCondemned,
    ObjectsDeleted,
    RangeCommit,
    TopicsRemoved,
    encode_event,
)
from strandline.tiers.wal.wal_objects import HEAD_BYTES_MIN, head_length, unpack_head, wal_key, wal_prefix

if TYPE_CHECKING:
    from strandline.tiers.store.interface import ObjectStore, StoredObject

READS_TOGETHER: Final = 4
READ_S: Final = 120.0
DELETE_S: Final = 60.0


@dataclass
class ObjectCheck:
    """One check of the objects of object topics, and what it saw."""

    client: ClusterClient
    store: ObjectStore
    cluster_id: str
    now_ms: int
    grace_ms: int
    objects: int = 0
    size_bytes: int = 0

    async def run(self, *, deep: bool) -> list[CommitFinding]:
        listed = await listed_objects(self.store, wal_prefix(self.cluster_id))
        history = await self._read_commits()
        self.objects = len(listed)
        if not self.objects and not history.is_whole and not history.damage:
            # Without a commit log and without objects there are no object topics.
            return []
        checked = self._checked(history, listed)
        self.size_bytes = sum(each.size_bytes for each in checked.fold.objects.values())
        found = compare_commits(checked)
        if found:
            # Meanwhile nodes went on: what is no longer so is no finding.
            checked = self._checked(await self._read_commits(), await self._seen_again(listed, found))
            found = confirmed(found, compare_commits(checked))
            found = [await self._judged(checked, each) for each in found]
        if deep:
            known_bad = {each.object_id for each in found}
            found += await self._read_objects(checked, known_bad)
        return [*_damaged_log(history), *found]

    async def _read_commits(self) -> CommitHistory:
        return await read_commits(self.client, self.store, self.cluster_id, self.now_ms)

    def _checked(self, history: CommitHistory, listed: Mapping[str, StoredObject]) -> CheckedCommits:
        # The metadata of segments after the commit log, and the topics last: each names what the former has.
        return CheckedCommits(
            history.fold,
            read_metadata(self.client, self.cluster_id).fold,
            self.cluster_id,
            listed,
            topics_by_id(self.client),
            self.now_ms,
            self.grace_ms,
            history.dead_ms,
            history.touched_ms,
            is_whole=history.is_whole,
        )

    async def _seen_again(
        self, listed: Mapping[str, StoredObject], findings: Sequence[CommitFinding]
    ) -> dict[str, StoredObject]:
        again = dict(listed)
        for key in {key for finding in findings for key in finding.keys}:
            each = await self.store.head(key, deadline_s=READ_S)
            if each is None:
                again.pop(key, None)
            else:
                again[key] = each
        return again

    async def _judged(self, checked: CheckedCommits, finding: CommitFinding) -> CommitFinding:
        """Return the finding; without a repair if the object may hold what the commit log lost."""
        if finding.problem != StoreProblem.ORPHAN or not finding.can_repair:
            return finding
        head = await read_head(self.store, finding.keys[0])
        return doubtful(finding) if head is not None and is_doubtful(checked, head) else finding

    async def _read_objects(self, checked: CheckedCommits, known_bad: set[ObjectId | None]) -> list[CommitFinding]:
        ranges = ranges_by_object(checked)
        wanted = [each for each in sorted(ranges) if each not in known_bad]
        found: list[CommitFinding] = []
        total = sum(checked.fold.objects[each].size_bytes for each in wanted)
        with Progress("reading objects", total=total or None, unit="bytes", is_bytes=True) as progress:
            for at in range(0, len(wanted), READS_TOGETHER):
                some = wanted[at : at + READS_TOGETHER]
                read = await asyncio.gather(*(self._read(wal_key(self.cluster_id, each)) for each in some))
                for object_id, data in zip(some, read, strict=True):
                    progress.advance(checked.fold.objects[object_id].size_bytes)
                    bad, what = (
                        (ranges[object_id], data) if isinstance(data, str) else damages_in(data, ranges[object_id])
                    )
                    if what:
                        found.append(lost_ranges(checked, StoreProblem.DAMAGED, object_id, bad, what))
        if found:
            # An object that was deleted meanwhile is needed no more.
            fold = (await self._read_commits()).fold
            found = [each for each in found if each.object_id in fold.objects]
        return found

    async def _read(self, key: str) -> bytes | str:
        try:
            return await self.store.read_whole(key, deadline_s=READ_S)
        except (ObjectMissing, ObjectDamaged):
            return "cannot be read"


async def read_head(store: ObjectStore, key: str) -> list[RangeCommit] | None:
    """Return the ranges in the head of an object; None if it cannot be read."""
    try:
        first = await store.read(key, 0, HEAD_BYTES_MIN, deadline_s=READ_S)
        length = head_length(bytes(first))
        return unpack_head(bytes(await store.read(key, 0, length, deadline_s=READ_S)))
    except (CorruptLog, ObjectMissing, ObjectDamaged):
        return None


def _damaged_log(history: CommitHistory) -> list[CommitFinding]:
    if not history.damage:
        return []
    return [
        CommitFinding(
            StoreProblem.DAMAGED,
            f"{COMMIT_TOPIC} begins at a checkpoint, and {history.damage}; a broker that starts cannot lead object "
            "partitions, and their objects are not checked",
            "nothing can be repaired here: keep a broker running that has read it, until it writes the next "
            "checkpoint, or restore the object from a version or a backup of the bucket",
        )
    ]


async def repair_objects(
    cluster: Cluster,
    client: ClusterClient,
    store: ObjectStore,
    findings: Sequence[CommitFinding],
    cluster_id: str,
) -> int:
    """Do what the findings say. Return how many were repaired."""

    async def fold() -> CommitHistory:
        return await read_commits(client, store, cluster_id, 0)

    def write(event: CommitEvent) -> None:
        write_records(cluster, COMMIT_TOPIC, [(0, encode_event(event))])

    # Once more, because a confirmation may take a day: what a commit names by now is no orphan.
    now = await fold()
    if not now.is_whole:
        return 0
    gone = {each.topic_id for each in findings if each.topic_id is not None} - topics_by_id(client).keys()
    ids = {each.object_id for each in findings if each.object_id is not None} - now.fold.objects.keys()
    with Progress("repairing", total=len(gone) + len(ids), unit="findings") as progress:
        if gone:
            write(TopicsRemoved(tuple(sorted(gone, key=lambda each: each.int))))
            progress.advance(len(gone))
        unnamed = tuple(sorted(ids - now.fold.dead.keys()))
        if unnamed:
            # Behind this record no commit can name them. What was committed before it stays.
            write(ObjectsCondemned(unnamed))
            now = await fold()
        dead = sorted(ids & now.fold.dead.keys())
        if dead:
            await store.delete([wal_key(cluster_id, each) for each in dead], deadline_s=DELETE_S)
            write(ObjectsDeleted(tuple(dead)))
            progress.advance(len(dead))
    return len(gone) + len(dead)
