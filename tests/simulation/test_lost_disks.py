"""All disks are lost at once: what the bucket alone has then.

`tests/tiers/objects/test_object_restore.py` builds a cluster from such a bucket.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.simulation.stage import stage
from tests.simulation.test_object_topics import SETTINGS, TOPIC
from tests.simulator.world.bucket import SimBucket

from strandline.codec.record_batch import parse_header
from strandline.tiers import tier_checkpoint
from strandline.tiers.objects import key_of
from strandline.tiers.restoring import lineage_of
from strandline.tiers.wal.checkpoint import commits_prefix, read_checkpoint
from strandline.tiers.wal.commit_fold import CommitFold
from strandline.tiers.wal.wal_objects import wal_key

OFTEN = {"strandline.object.checkpoint.interval.ms": "2000", "strandline.remote.checkpoint.interval.ms": "2000"}


def newest_fold(bucket: SimBucket, cluster_id: str) -> CommitFold:
    """Return what the last checkpoint of the commit log says."""
    keys = sorted(each for each in bucket.objects if each.startswith(commits_prefix(cluster_id)))
    return read_checkpoint(bytes(bucket.objects[keys[-1]]), int(keys[-1].rpartition("/")[2])) if keys else CommitFold()


def batches_in(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        header = parse_header(data, at)
        yield header.base_offset, data[at : at + header.size_bytes]
        at += header.size_bytes


def stored_batches(bucket: SimBucket, cluster_id: str, fold: CommitFold) -> dict[int, bytes]:
    """Return the batches of the only partition that checkpoints name, by offset: in segments, and in ranges."""
    prefix = tier_checkpoint.checkpoint_prefix(cluster_id)
    written = [
        tier_checkpoint.decode_checkpoint(bytes(each)) for key, each in bucket.objects.items() if key.startswith(prefix)
    ]
    _, states = tier_checkpoint.newest_of(written)
    found: dict[int, bytes] = {}
    for state in states:
        for segment in lineage_of(state):
            found.update(batches_in(bytes(bucket.objects[f"{key_of(cluster_id, state.place, segment)}.log"])))
    for known in fold.partitions.values():
        for each in known.ranges:
            body = bytes(bucket.objects[wal_key(cluster_id, each.object_id)])
            found.update(batches_in(body[each.position : each.position + each.size_bytes]))
    return found


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_nothing_below_the_last_checkpoint_is_lost_with_all_disks(seed: int) -> None:
    with stage(seed, TOPIC, settings={**SETTINGS, **OFTEN}, on_all_nodes=True) as play:
        play.run.tier_truth.watch()
        play.work()
        bucket, cluster_id = play.cluster.bucket, play.cluster.cluster_id
        key = play.topic_id("orders"), 0

        def committed() -> int:
            known = newest_fold(bucket, cluster_id).partitions.get(key)
            return 0 if known is None else known.end_offset

        play.until(lambda: committed() > 200, "a checkpoint has many records", 60.0)
        # A leader that is killed leaves ranges that are merged from the store.
        play.leader("orders").kill()
        end_offset = committed()
        play.until(lambda: committed() > end_offset + 100, "a checkpoint of the next leader has more", 120.0)
        play.rest(play.random.uniform(0.0, 8.0))
        truth = play.run.invariants.partitions[key[0].bytes, 0]
        # No broker knows anything of the records any more, so the test does not ask for them.
        play.is_over = True
        for each in play.cluster.nodes.values():
            each.power_cut()
            each.replace_disk()
        fold = newest_fold(bucket, cluster_id)
        found = stored_batches(bucket, cluster_id, fold)
        wanted = [base for base, identity in truth.batches.items() if identity[0] < fold.partitions[key].end_offset]
        assert len(wanted) > 50
        assert [base for base in sorted(wanted) if base not in found] == []
        for base in wanted:
            header = parse_header(found[base])
            assert (header.last_offset, header.leader_epoch, header.crc) == truth.batches[base], base
