"""The part of `storage restore` that is about object topics: what the bucket has of them, and the new commit log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.plain_words import count
from strandline.cli.common.progress import Progress
from strandline.cli.storage.access import listed_objects, write_records
from strandline.cli.storage.commit_log import read_commits
from strandline.cli.storage.object_check import read_head
from strandline.client.cluster_client import ClusterClient
from strandline.errors import CorruptLog
from strandline.lag.verdict import span
from strandline.tiers.restoring import RestoredPartition
from strandline.tiers.store.failures import ObjectDamaged, ObjectMissing
from strandline.tiers.wal.checkpoint import commits_prefix, read_checkpoint
from strandline.tiers.wal.commit_fold import CommitFold, CommittedPartition
from strandline.tiers.wal.events import COMMIT_TOPIC, RECORD_BYTES_MAX, Key, ObjectId, encode_event
from strandline.tiers.wal.log_restore import (
    LostLog,
    RestoredRanges,
    ends_behind,
    first_free_epoch,
    newest_log,
    restore_records,
    restored_ranges,
)
from strandline.tiers.wal.wal_objects import object_id_of, wal_prefix

if TYPE_CHECKING:
    from strandline.tiers.store.interface import ObjectStore, StoredObject

READ_S: Final = 120.0
NO_LOG: Final = LostLog(UUID(int=0), 0, CommitFold(), 0)


@dataclass
class ObjectRestore:
    """What a bucket has of the object topics of a lost cluster."""

    owner: str
    talk: Callable[[str], object]
    lost: LostLog = NO_LOG
    listed: dict[str, StoredObject] = field(default_factory=dict)
    written: list[ObjectId] = field(default_factory=list)
    behind: dict[Key, int] = field(default_factory=dict)
    """Up to where objects have records that the checkpoint does not name."""
    unnamed: int = 0
    restored: dict[Key, RestoredRanges] = field(default_factory=dict)

    async def find(self, store: ObjectStore) -> None:
        self.listed = await listed_objects(store, wal_prefix(self.owner))
        names = {key: object_id_of(key) for key in self.listed}
        self.written = [each for each in names.values() if each is not None]
        self.lost = newest_log(await self._logs(store)) or NO_LOG
        fold = self.lost.fold
        unnamed = [
            key
            for key, each in names.items()
            if each is not None and each not in fold.objects and each not in fold.dead
        ]
        heads = []
        with Progress("reading heads of objects", total=len(unnamed) or None, unit="objects") as progress:
            for key in unnamed:
                head = await read_head(store, key)
                if head is not None:
                    heads.append(head)
                progress.advance(1)
        self.unnamed, self.behind = len(unnamed), ends_behind(heads)

    async def _logs(self, store: ObjectStore) -> list[LostLog]:
        """Return the newest sound checkpoint of each commit log in the bucket."""
        listed = await listed_objects(store, commits_prefix(self.owner))
        by_log: dict[str, list[str]] = {}
        for key in sorted(listed):
            by_log.setdefault(key.split("/")[-2], []).append(key)
        found = []
        for name, keys in by_log.items():
            for key in reversed(keys):
                try:
                    log_id, offset = UUID(name), int(key.rpartition("/")[2])
                    fold = read_checkpoint(await store.read_whole(key, deadline_s=READ_S), offset)
                except (CorruptLog, ObjectMissing, ObjectDamaged, ValueError) as error:
                    self.talk(f"{key} is passed over: {error}")
                else:
                    found.append(LostLog(log_id, offset, fold, listed[key].modified_ms))
                    break
        return found

    def known(self, key: Key) -> CommittedPartition | None:
        return self.lost.fold.partitions.get(key)

    def add(self, found: RestoredPartition) -> RestoredPartition:
        """Put a partition's segments together with its ranges, and return it."""
        key = found.state.place.key
        sizes = {each: live.size_bytes for each, live in self.lost.fold.objects.items()}
        each = restored_ranges(found, self.known(key), sizes, self.listed, self.owner)
        known = self.known(key)
        ends = (found.state.end_offset, self.behind.get(key, 0), 0 if known is None else known.end_offset)
        state = each.found.state._replace(end_offset=max(ends))
        self.restored[key] = each = each._replace(found=each.found._replace(state=state))
        return each.found

    def plan(self, now_ms: int) -> list[str]:
        """Return what the user should know before it is done."""
        if not self.restored:
            return []
        if self.lost is NO_LOG:
            lines = [f"there is no checkpoint of {COMMIT_TOPIC}, so only merged segments of object topics are restored"]
        else:
            written_ms = self.lost.written_ms
            age = f"{span(max(0, now_ms - written_ms) / 1000)} old" if written_ms else "of unknown age"
            lines = [f"the last checkpoint of {COMMIT_TOPIC} is {age}"]
        if self.unnamed:
            lines.append(
                f"{count(self.unnamed, 'object')} of object topics came after it; their records are not restored, and "
                "they are deleted after strandline.object.orphan.ms, so copy them first if you want them"
            )
        return lines

    async def write(
        self,
        cluster: Cluster,
        client: ClusterClient,
        store: ObjectStore,
        topics: Iterable[UUID],
        cluster_id: str,
        *,
        is_complete: bool,
    ) -> None:
        """Write the partitions of new topics into the commit log of this cluster, and see that it took them."""
        wanted = set(topics)
        restored = [each for key, each in sorted(self.restored.items()) if key[0] in wanted]
        own = await read_commits(client, store, cluster_id, 0)
        foreign = (
            {key[0] for key in own.fold.partitions} - {key[0] for key in self.restored} - {*self.lost.fold.topic_ids()}
        )
        if foreign:
            raise CommandFailed(
                f"this cluster has object topics of its own, for example that of id {min(foreign, key=str)}",
                hint="restore into a new cluster",
            )
        owner = self.owner if self.owner != cluster_id else ""
        base = first_free_epoch(self.lost, self.written)
        records = restore_records(restored, self.lost, owner=owner, base=base, is_complete=is_complete)
        values = [(0, encode_event(each)) for each in records]
        write_records(cluster, COMMIT_TOPIC, values, size_bytes_max=RECORD_BYTES_MAX)
        now = await read_commits(client, store, cluster_id, 0)
        for each in restored:
            place = each.found.state.place
            if place.key not in now.fold.partitions:
                raise CommandFailed(
                    f"{COMMIT_TOPIC} does not have {place}, so its topic was not made",
                    hint="its leader or the store was not reachable; the same command may be run again",
                )
