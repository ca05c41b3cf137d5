"""Reads the newest records of many partitions with one consumer, for a look that must stay short."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from strandline.cli.common.client import Cluster, admin_api, kafka_api
from strandline.cli.common.failures import CommandFailed
from strandline.cli.group.state import Place
from strandline.cli.topic.topics import look_up_offsets

_POLL_S = 0.1
_RECORDS_PER_POLL = 500


def tail_ranges(
    cluster: Cluster, admin: Any, places: list[Place], records_per_partition: int
) -> dict[Place, tuple[int, int]]:
    """Return where the last records of each partition begin and end; without partitions that hold none."""
    kafka, spec_of = kafka_api(), admin_api().OffsetSpec
    starts = look_up_offsets(cluster, admin, places, spec_of.earliest())
    # Records of open transactions are not waited for.
    committed = {"isolation_level": kafka.IsolationLevel.READ_COMMITTED}
    ends = look_up_offsets(cluster, admin, places, spec_of.latest(), **committed)
    found = {}
    for place in places:
        start, end = starts[place], ends[place]
        if start is not None and end is not None and start < end:
            found[place] = (max(start, end - records_per_partition), end)
    return found


def read_tails(cluster: Cluster, ranges: Mapping[Place, tuple[int, int]]) -> Iterator[Any]:
    """Yield librdkafka's messages of the ranges. CommandFailed if a topic may not be read, or time is over."""
    if not ranges:
        return
    kafka = kafka_api()
    consumer = cluster.consumer(
        # librdkafka insists on a group id even for a consumer that never joins one nor commits.
        group_id="strandline-cli",
        enable_auto_commit=False,
        enable_partition_eof=True,
        auto_offset_reset="earliest",
        fetch_wait_max_ms=100,
    )
    unfinished = set(ranges)
    deadline = time.monotonic() + cluster.timeout_s
    try:
        consumer.assign([kafka.TopicPartition(*place, start) for place, (start, _) in sorted(ranges.items())])
        while unfinished:
            if time.monotonic() > deadline:
                raise CommandFailed(f"records were not read within {cluster.timeout_s:g} s")
            for message in consumer.consume(_RECORDS_PER_POLL, _POLL_S):
                place = (message.topic(), message.partition())
                error = message.error()
                if error is None:
                    if message.offset() < ranges[place][1]:
                        yield message
                    if message.offset() + 1 >= ranges[place][1]:
                        unfinished.discard(place)
                elif error.name() == "_PARTITION_EOF":
                    unfinished.discard(place)
                elif not error.retriable() and error.name() not in ("_ALL_BROKERS_DOWN", "_TRANSPORT"):
                    raise CommandFailed(f"cannot read {message.topic()}: {error.str()}")
    finally:
        consumer.close()
