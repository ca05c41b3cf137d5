"""What `storage check --repair` does: it deletes orphans, and ends deletions as a node would."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from strandline.cli.common.client import Cluster
from strandline.cli.common.progress import Progress
from strandline.cli.storage.access import read_metadata, write_events
from strandline.client.cluster_client import ClusterClient
from strandline.tiers.metadata_fold import Key
from strandline.tiers.objects import key_of
from strandline.tiers.records import MetadataEvent, RemoteSegment, SegmentChanged, TieredPartition
from strandline.tiers.segment_states import SegmentState
from strandline.tiers.store.interface import ObjectStore
from strandline.tiers.store_check import StoreFinding, is_needed

DELETE_S: Final = 60.0
NO_BROKER: Final = -1


async def repair(
    cluster: Cluster, client: ClusterClient, store: ObjectStore, findings: list[StoreFinding], cluster_id: str
) -> int:
    """Do what the findings say. Return how many were repaired."""
    orphans = [key for each in findings if each.segment is None for key in each.keys]
    # Once more, because a confirmation may take a day: what the metadata names by now is no orphan.
    metadata = read_metadata(client, cluster_id)
    named = {
        f"{key_of(cluster_id, metadata.fold.names[key], segment)}{end}"
        for key, state in metadata.fold.states.items()
        for segment in state.by_id.values()
        for end in (".log", ".idx")
    }
    orphans = [key for key in orphans if key not in named]
    stuck = [(each.place, each.segment) for each in findings if each.segment is not None and each.place is not None]
    with Progress("repairing", total=len(orphans) + len(stuck), unit="findings") as progress:
        if orphans:
            await store.delete(orphans, deadline_s=DELETE_S)
            progress.advance(len(orphans))
        if stuck:
            await _finish(cluster, client, store, stuck, cluster_id)
            progress.advance(len(stuck))
    return len(orphans) + len(stuck)


async def _finish(
    cluster: Cluster,
    client: ClusterClient,
    store: ObjectStore,
    stuck: list[tuple[TieredPartition, RemoteSegment]],
    cluster_id: str,
) -> None:
    """Delete segments in the order of a node: the record that it begins, the objects, the record that it ended."""
    where = read_metadata(client, cluster_id).where
    write_events(cluster, _changes(stuck, where, SegmentState.DELETE_STARTED))
    # Behind these records nothing can begin to share the objects. What shares them already keeps them.
    fold = read_metadata(client, cluster_id).fold
    keys = [
        f"{key_of(cluster_id, place, segment)}{end}"
        for place, segment in stuck
        if not is_needed(fold, place, segment)
        for end in (".log", ".idx")
    ]
    if keys:
        await store.delete(keys, deadline_s=DELETE_S)
    write_events(cluster, _changes(stuck, where, SegmentState.DELETE_FINISHED))


def _changes(
    stuck: list[tuple[TieredPartition, RemoteSegment]], where: Mapping[Key, int], state: SegmentState
) -> list[tuple[int, MetadataEvent]]:
    now_ms = time.time_ns() // 1_000_000
    return [
        (where[place.key], SegmentChanged(place, segment.id, state, NO_BROKER, now_ms))
        for place, segment in stuck
        if place.key in where
    ]
