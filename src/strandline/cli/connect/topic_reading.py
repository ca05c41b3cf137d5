"""Reads topics as a sink does, but in no group: partitions are assigned, and nothing is committed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from strandline.cli.common.client import Cluster, admin_api, kafka_api
from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable, from_kafka_error
from strandline.cli.topic.topics import described_all, look_up_offsets

RECORDS_MAX: Final = 10_000
"""Records of one batch, as of a sink's task."""
POLL_S: Final = 0.1
"""Python sees Ctrl-C only between two calls of librdkafka."""
SILENCE_S: Final = 30.0
_BUFFER_KBYTES: Final = 32 * 1024

Place = tuple[str, int]


class Span(NamedTuple):
    """Offsets of a partition: from `start` to before `end`."""

    start: int
    end: int


def topics_of(cluster: Cluster, properties: Mapping[str, str]) -> list[str]:
    """Return the topics of a sink that exist. Raise NotFound if there is none."""
    named = [each.strip() for each in properties.get("topics", "").split(",") if each.strip()]
    if named:
        return list(dict.fromkeys(named))
    pattern = properties.get("topics.regex", "")
    with cluster.errors("cannot list topics"):
        known = cluster.admin().list_topics(timeout=cluster.timeout_s).topics
    try:
        found = sorted(each for each in known if pattern and re.fullmatch(pattern, each))
    except re.error as error:
        raise CommandFailed(f"topics.regex {pattern!r} is no pattern: {error}") from None
    if not found:
        raise NotFound(f"no topic matches topics.regex {pattern!r}" if pattern else "the sink names no topics")
    return found


def spans_of(cluster: Cluster, topics: Sequence[str]) -> dict[Place, Span]:
    """Return what each partition holds of committed records. Raise CommandFailed if a topic or leader is missing."""
    admin = cluster.admin()
    places = [
        (name, partition.id)
        for name, topic in described_all(cluster, admin, topics).items()
        for partition in topic.partitions
    ]
    spec = admin_api().OffsetSpec
    starts = look_up_offsets(cluster, admin, places, spec.earliest())
    # What is beyond the end of committed records is not read by a sink either.
    committed = kafka_api().IsolationLevel.READ_COMMITTED
    ends = look_up_offsets(cluster, admin, places, spec.latest(), isolation_level=committed)
    found = {}
    for place in sorted(places):
        start, end = starts[place], ends[place]
        if start is None or end is None:
            raise Unreachable(f"{place[0]}-{place[1]} has no leader, and cannot be read", hint="`strandline doctor`")
        found[place] = Span(start, end)
    return found


def read_spans(cluster: Cluster, spans: Mapping[Place, Span], *, batch_max: int = RECORDS_MAX) -> Iterator[list[Any]]:
    """Yield librdkafka's messages of these spans, those of a partition in order. Only committed records are read."""
    kafka = kafka_api()
    unfinished = {place: span.end for place, span in spans.items() if span.start < span.end}
    if not unfinished:
        return
    consumer = cluster.consumer(
        # librdkafka insists on a group id even for a consumer that never joins one nor commits.
        group_id="strandline-cli",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        enable_partition_eof=True,
        isolation_level="read_committed",
        fetch_wait_max_ms=100,
        queued_max_messages_kbytes=_BUFFER_KBYTES,
    )
    heard_s = time.monotonic()
    try:
        consumer.assign([kafka.TopicPartition(*place, spans[place].start) for place in unfinished])
        while unfinished:
            batch = []
            for message in consumer.consume(batch_max, POLL_S):
                heard_s = time.monotonic()
                place = message.topic(), message.partition()
                end = unfinished.get(place)
                if message.error() is not None:
                    if _is_end(cluster, message):
                        unfinished.pop(place, None)
                    continue
                if end is None:
                    continue
                if message.offset() < end:
                    batch.append(message)
                if message.offset() + 1 >= end:
                    del unfinished[place]
                    consumer.pause([kafka.TopicPartition(*place)])
            if batch:
                yield batch
                # The time that the caller took is no silence of the cluster.
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > SILENCE_S:
                raise Unreachable(f"{cluster.bootstrap} sent nothing for {SILENCE_S:g} s, and the end is not reached")
    finally:
        consumer.close()


def _is_end(cluster: Cluster, message: Any) -> bool:
    """Return whether an error is the end of a partition; False if librdkafka tries again. Raise other errors."""
    error = message.error()
    if error.name() == "_PARTITION_EOF":
        return True
    if error.retriable() or error.name() in ("_ALL_BROKERS_DOWN", "_TRANSPORT"):
        return False
    raise from_kafka_error(error, bootstrap=cluster.bootstrap, doing=f"cannot read {message.topic()}")


def newest(cluster: Cluster, spans: Mapping[Place, Span], count: int) -> list[Any]:
    """Return the newest messages of all partitions together, oldest first.

    Offsets are not dense, because of compaction and markers, so a window that holds too few is read again, doubled.
    """
    window = count
    while True:
        windows = {place: Span(max(span.start, span.end - window), span.end) for place, span in spans.items()}
        found = [message for batch in read_spans(cluster, windows) for message in batch]
        if len(found) >= count or windows == dict(spans):
            return _last(found, count)
        window *= 2


def _last(messages: Sequence[Any], count: int) -> list[Any]:
    """Return the last messages. Timestamps decide between partitions only, because offsets order one partition."""
    partitions: dict[Place, list[Any]] = {}
    for message in messages:
        partitions.setdefault((message.topic(), message.partition()), []).append(message)
    found: list[Any] = []
    while len(found) < count and partitions:
        place = max(partitions, key=lambda each: (partitions[each][-1].timestamp()[1], each))
        found.append(partitions[place].pop())
        if not partitions[place]:
            del partitions[place]
    return found[::-1]
