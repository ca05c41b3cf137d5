"""The offset checkpoints of a data directory, as Kafka writes them.

    recovery-point-offset-checkpoint    up to where each log is known to be on disk; recovery begins there
    replication-offset-checkpoint       each partition's high watermark
    log-start-offset-checkpoint         each log's first offset, where it is not that of its first segment
    cleaner-offset-checkpoint           up to where each compacted log has been cleaned
    tombstone-horizon-checkpoint        below it tombstones were removed from a compacted log; Kafka ignores the file
    plain-end-offset-checkpoint         where logs ended at a clean stop with a record for every offset of their last
                                        segment; Kafka ignores this file and the next
    no-producer-offset-checkpoint       where logs ended at a clean stop without a producer that they know of

A file: a line `0` (version), a line with the number of entries, then `topic partition offset` lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from strandline.errors import CorruptLog
from strandline.ids import TopicPartition

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
TOMBSTONE_HORIZONS: Final = "tombstone-horizon-checkpoint"
PLAIN_END_OFFSETS: Final = "plain-end-offset-checkpoint"
NO_PRODUCER_OFFSETS: Final = "no-producer-offset-checkpoint"
ALL: Final = frozenset((RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS))
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"


class EndNotes(NamedTuple):
    """What was noted of a log at a clean stop instead of in files of its own, and holds if the log still ends there."""

    plain_at: int = -1
    """Its last segment has a record for every offset: there is nothing to count."""
    no_producers_at: int = -1
    """It knew no producers: a snapshot would be empty."""


NOTHING_NOTED: Final = EndNotes()


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return ("\n".join(["0", str(len(lines)), *lines]) + "\n").encode()


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    try:
        lines = data.decode().split("\n")
        if lines[0] != "0":
            raise ValueError(f"version {lines[0]!r}")
        if len(lines) != int(lines[1]) + 3 or lines[-1]:
            raise ValueError(f"{lines[1]} entries in {len(lines)} lines")
        offsets = {}
        for line in lines[2:-1]:
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
    except (ValueError, IndexError) as error:
        raise CorruptLog(f"offset checkpoint cannot be read: {error}") from error
    return offsets
