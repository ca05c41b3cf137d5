"""Samples the keys of a topic and judges them, for `topic hot` and the console."""

from __future__ import annotations

import random

from strandline.advice.key_skew import KeySkew, PartitionKeys, judge_keys
from strandline.cli.common.failures import NotFound
from strandline.client.cluster_client import EARLIEST, LATEST, READ_UNCOMMITTED, ClusterClient
from strandline.client.key_sampling import SLICES_MAX, sample_topic
from strandline.ids import TopicPartition

TOP_DEFAULT = 10


def read_key_skew(
    client: ClusterClient,
    name: str,
    *,
    top: int = TOP_DEFAULT,
    since_ms: int | None = None,
    partitions: list[int] | None = None,
    slices_max: int = SLICES_MAX,
) -> KeySkew:
    """Sample a topic and judge its keys. Raise NotFound, or ClusterFailed in a sentence."""
    topic = client.topic(name)
    if topic is None:
        raise NotFound(f"topic {name!r} does not exist", hint="`strandline topic list` names those that do")
    missing = set(partitions or ()) - set(topic.leaders)
    if missing:
        raise NotFound(f"topic {name!r} has no partition {min(missing)}", hint=f"it has {len(topic.leaders)}")
    places = [TopicPartition(name, index) for index in sorted(partitions or topic.leaders)]

    def offsets(which: int) -> dict[TopicPartition, int]:
        return client.list_offsets(dict.fromkeys(places, which), isolation_level=READ_UNCOMMITTED)

    ends = offsets(LATEST)
    starts = offsets(EARLIEST)
    if since_ms is not None:
        # -1 stands for no record that late.
        starts = {place: ends[place] if at < 0 else at for place, at in offsets(since_ms).items()}
    ranges = {place.partition: (starts[place], ends[place]) for place in places}
    samples = [
        PartitionKeys(
            each.partition,
            each.end - each.start,
            each.is_whole,
            [(piece.records, piece.size_bytes) for piece in each.slices],
        )
        for each in sample_topic(client, topic, ranges, random.Random(), slices_max=slices_max)
    ]
    return judge_keys(name, samples, top=top)
