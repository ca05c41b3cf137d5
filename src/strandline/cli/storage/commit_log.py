"""Reads the commit log of object topics, and its checkpoint in the store, as a broker does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from strandline.cli.common.progress import Progress
from strandline.client.cluster_client import EARLIEST, LATEST, READ_UNCOMMITTED, ClusterClient
from strandline.client.raw_batches import read_batches
from strandline.codec.columns import Record, records_of
from strandline.errors import CorruptLog, MalformedMessage
from strandline.ids import TopicPartition
from strandline.tiers.store.failures import ObjectDamaged, ObjectMissing
from strandline.tiers.wal.checkpoint import apply_event, checkpoint_key, read_checkpoint
from strandline.tiers.wal.commit_fold import CommitFold
from strandline.tiers.wal.events import (
    COMMIT_TOPIC,
    CommitEvent,
    LeadersClaimed,
    ObjectCommitted,
    ObjectId,
    decode_event,
)

if TYPE_CHECKING:
    from strandline.tiers.store.interface import ObjectStore

PLACE: Final = TopicPartition(COMMIT_TOPIC, 0)
READ_S: Final = 120.0
ATTEMPTS: Final = 3
"""How often the log may be cut while its checkpoint is read."""
_READ_BYTES: Final = 4 << 20


@dataclass
class CommitHistory:
    """What the commit log said when the reading began."""

    fold: CommitFold
    is_whole: bool
    """Whether there is a log, and it was read from its first record, or from its checkpoint, on."""
    damage: str = ""
    """Why its checkpoint cannot be read; empty if it was read, or none is needed."""
    dead_ms: dict[ObjectId, int] = field(default_factory=dict)
    """When each dead object was last needed."""
    touched_ms: dict[UUID, int] = field(default_factory=dict)
    """When a record named a topic last."""

    def note_state(self, now_ms: int) -> None:
        """Take note of what a checkpoint of some time has."""
        self.dead_ms.update(dict.fromkeys(self.fold.dead, now_ms))
        self.touched_ms.update(dict.fromkeys(self.fold.topic_ids(), now_ms))

    def take(self, record: Record) -> None:
        try:
            event = None if record.value is None else decode_event(record.value)
            if event is None:
                return
            apply_event(self.fold, event)
        except MalformedMessage:
            # Nodes pass it over, too, and say so in their logs.
            return
        for topic_id in _topics_in(event):
            self.touched_ms[topic_id] = record.timestamp_ms
        for each in self.fold.dead:
            self.dead_ms.setdefault(each, record.timestamp_ms)


def _topics_in(event: CommitEvent) -> Iterable[UUID]:
    if isinstance(event, LeadersClaimed):
        return {each[0] for each in event.partitions}
    if isinstance(event, ObjectCommitted):
        return {each.topic_id for each in event.ranges}
    return ()


async def read_commits(client: ClusterClient, store: ObjectStore, cluster_id: str, now_ms: int) -> CommitHistory:
    """Read the commit log up to its present end."""
    topic = client.topic(COMMIT_TOPIC)
    if topic is None:
        return CommitHistory(CommitFold(), is_whole=False)
    for _ in range(ATTEMPTS):
        start = client.list_offsets({PLACE: EARLIEST}, isolation_level=READ_UNCOMMITTED)[PLACE]
        found = await _beginning(store, cluster_id, topic.topic_id, start, now_ms)
        # A broker may have cut the log meanwhile, and deleted an old checkpoint.
        if client.list_offsets({PLACE: EARLIEST}, isolation_level=READ_UNCOMMITTED)[PLACE] == start:
            break
    if found.is_whole:
        _read_records(client, topic.topic_id, start, found)
    return found


async def _beginning(store: ObjectStore, cluster_id: str, topic_id: UUID, start: int, now_ms: int) -> CommitHistory:
    if start == 0:
        return CommitHistory(CommitFold(), is_whole=True)
    key = checkpoint_key(cluster_id, topic_id, start)
    try:
        fold = read_checkpoint(await store.read_whole(key, deadline_s=READ_S), start)
    except (CorruptLog, ObjectDamaged) as error:
        return CommitHistory(CommitFold(), is_whole=False, damage=f"{key} is damaged: {error}")
    except ObjectMissing:
        return CommitHistory(CommitFold(), is_whole=False, damage=f"{key} is not in the store")
    stored = await store.head(key, deadline_s=READ_S)
    found = CommitHistory(fold, is_whole=True)
    found.note_state(stored.modified_ms if stored is not None and stored.modified_ms else now_ms)
    return found


def _read_records(client: ClusterClient, topic_id: UUID, start: int, found: CommitHistory) -> None:
    end = client.list_offsets({PLACE: LATEST}, isolation_level=READ_UNCOMMITTED)[PLACE]
    offset = start
    with Progress(f"reading {COMMIT_TOPIC}", total=end - start or None, unit="records") as progress:
        while offset < end:
            before = offset
            for record in records_of(read_batches(client, PLACE, topic_id, offset, size_bytes_max=_READ_BYTES)):
                if offset <= record.offset < end:
                    offset = record.offset + 1
                    found.take(record)
            if offset == before:
                break
            progress.advance(offset - before)
