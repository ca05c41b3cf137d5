"""What a partition has ever shown below a high watermark, and what one log may make of it that cleans or forgets.

A log that neither compacts nor deletes holds the truth batch by batch. One that compacts holds some of its records, at
the offsets and in the batches that they were in (`record_truth`). One that deletes holds all from its start on, and
its start moves by what its policy says:

| invariant | how it is seen |
|---|---|
| never too soon | what leaves at the start is older than `retention.ms`, or more than `retention.bytes` lie behind it |
| never uncommitted | the start is not above the high watermark |
| never back | the start of a replica only grows, over all its lives |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulator.truth.record_truth import RecordTruth

from strandline.codec.columns import decode_batch
from strandline.codec.record_batch import PREFIX_SIZE, parse_header

if TYPE_CHECKING:
    from strandline.config.topic_config import TopicConfig
    from strandline.log.partition_log import PartitionLog
    from strandline.partition.partition import Partition

READ_BYTES: Final = 1 << 20
RUN_MS_MAX: Final = 3 * 24 * 3_600_000
"""Longer than runs last, with records of two days ago and clocks that jump."""

Identity = tuple[int, int, int]
"""Last offset, leader epoch and CRC of a batch: what it is, wherever it lies."""


class Weight(NamedTuple):
    """What retention asks of a batch."""

    max_timestamp_ms: int
    size_bytes: int


@dataclass
class Truth:
    """What a partition has ever shown below a high watermark: batch by batch, by base offset."""

    name: str
    batches: dict[int, Identity] = field(default_factory=dict)
    end: int = 0
    leaders: dict[int, int] = field(default_factory=dict)
    """Who led each epoch."""
    appointed: dict[int, int] = field(default_factory=dict)
    """Who was to lead each epoch, as the metadata says."""
    may_lose: bool = False
    """Whether unclean elections are allowed: then the truth may be cut, and begins again."""
    records: RecordTruth | None = None
    """Of a compacted partition."""
    weights: dict[int, Weight] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    """Where the log of each node began when it was last seen, in whatever life."""
    start: int = 0
    """The highest log start offset that any replica has shown."""

    def learn(self, batch: bytes, identity: Identity, now_s: float) -> None:
        header = parse_header(batch)
        self.batches[header.base_offset] = identity
        self.weights[header.base_offset] = Weight(header.max_timestamp, len(batch))
        if self.records is not None:
            self.records.learn(batch, now_s)

    def wrong_with_start(self, node_id: int, partition: Partition, now_ms: int, *, is_asked_for: bool = False) -> str:
        """Return what is wrong with where a log begins now, in words."""
        start, before = partition.log_start_offset, self.starts.get(node_id, 0)
        self.starts[node_id] = start
        # A request or a coordinator moved it: a crash may come before that is written down.
        if start < before and not (self.may_lose or is_asked_for):
            return f"begins at {start}, and began at {before} before"
        # What other replicas have deleted by right does not count again.
        is_news, before, self.start = start > self.start, max(before, self.start), max(self.start, start)
        if is_news and self.may_lose and partition.tier is not None and _keeps_all(partition.config):
            return f"begins at {start}, and an unclean election takes nothing away at the start"
        # What one replica has deleted by right, the others may delete as well.
        if not is_news or is_asked_for or self.may_lose:
            return ""
        return self._why_too_soon(before, start, partition, now_ms)

    def _why_too_soon(self, before: int, start: int, partition: Partition, now_ms: int) -> str:
        log, config = partition.log, partition.config
        if "delete" not in config.cleanup_policy:
            return f"begins at {start}, and nothing is ever deleted by its policy"
        # What is not committed yet has its weight, too.
        behind = log.size_bytes()
        if partition.tier is not None:
            behind += sum(each.size_bytes for at, each in self.weights.items() if start <= at < log.log_start_offset)
        if config.retention_bytes >= 0 and behind >= config.retention_bytes:
            return ""
        for base, weight in self.weights.items():
            if before <= base < start and not 0 <= config.retention_ms <= now_ms - weight.max_timestamp_ms:
                return (
                    f"begins at {start}, and the batch at {base} is {now_ms - weight.max_timestamp_ms} ms old, "
                    f"with {behind} bytes behind the start"
                )
        return ""


def _keeps_all(config: TopicConfig) -> bool:
    """Return whether retention deletes nothing in a run."""
    return config.retention_bytes < 0 and not 0 <= config.retention_ms < RUN_MS_MAX


def check_compacted(
    truth: Truth, records: RecordTruth, log: PartitionLog, first: int, end: int, now_s: float
) -> tuple[str, list[bytes]]:
    """Compare a compacted log with the truth: what is wrong, and the batches that are news."""
    news: list[bytes] = []
    found = batches_between(log, first, end)
    due, news_due, is_thinned = first, truth.end, False
    for batch in found:
        header = parse_header(batch)
        base, identity = header.base_offset, (header.last_offset, header.leader_epoch, header.crc)
        is_thinned = is_thinned or base > due
        due = identity[0] + 1
        known = truth.batches.get(base)
        if known is None:
            if base < truth.end:
                return f"has a batch at {base} {identity} where others have none", news
            if base > news_due:
                return f"has a hole from offset {news_due} to {base}", news
            news_due = due
            truth.learn(batch, identity, now_s)
            news.append(batch)
        elif known != identity:
            is_thinned = True
            wrong = records.wrong_with_batch(batch)
            if wrong:
                return wrong, news
    if not is_thinned and due >= end:
        return "", news
    return records.wrong_with_rest(found, first, end, now_s), news


def batches_between(log: PartitionLog, first: int, end: int) -> list[bytes]:
    """Return the batches that lie wholly between two offsets."""
    found: list[bytes] = []
    while first < end:
        piece = log.read(first, size_bytes_max=READ_BYTES, limit_offset=end)
        if piece is None:
            break
        try:
            data = piece.read()
        finally:
            piece.release()
        at = 0
        while len(data) - at >= PREFIX_SIZE:
            size = int.from_bytes(data[at + 8 : at + 12], "big") + PREFIX_SIZE
            if len(data) - at < size:
                break
            batch = data[at : at + size]
            last_offset = parse_header(batch).last_offset
            if last_offset >= end:
                return found
            found.append(batch)
            first = last_offset + 1
            at += size
    return found


def data_offsets(batches: Sequence[bytes]) -> set[int]:
    """Return the offsets of all records in these batches."""
    return {offset for batch in batches for offset in decode_batch(batch).offsets}
