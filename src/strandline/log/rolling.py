"""When a log begins a new segment: the active one is full or old."""

from __future__ import annotations

from typing import Final

from strandline.codec.checksum import crc32c
from strandline.config.topic_config import TopicConfig
from strandline.log.segment.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from strandline.log.segment.segment import Segment

RELATIVE_OFFSET_MAX: Final = 2**31 - 1


def is_due_to_roll(segment: Segment, config: TopicConfig, last_offset: int, max_timestamp_ms: int, now_ms: int) -> bool:
    """Return whether a batch that ends at `last_offset` needs a new segment, for another reason than its size."""
    if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        return True
    # As Kafka does: by the records' own time where they have one, else by the age of the segment.
    began_ms = segment.first_timestamp_ms
    age_ms = max_timestamp_ms - began_ms if began_ms >= 0 else now_ms - segment.created_ms
    if age_ms > config.roll_ms:
        return True
    if config.segment_jitter_ms and age_ms > config.roll_ms - _jitter_ms(segment, config):
        return True
    entries = len(segment.index)
    if entries < config.segment_index_bytes // TIME_ENTRY_SIZE - 1:
        return False
    # The file with the larger entries is full first, save for the entry that completes it; but it grows only when
    # time does.
    return (
        entries >= config.segment_index_bytes // OFFSET_ENTRY_SIZE
        or len(segment.time_index) >= config.segment_index_bytes // TIME_ENTRY_SIZE - 1
    )


def _jitter_ms(segment: Segment, config: TopicConfig) -> int:
    """Return how much earlier this segment rolls, so that not all partitions roll at once.

    It follows from the segment's name: as good as a random number, and the same each time.
    """
    name = f"{segment.path.parent.name}/{segment.base_offset}"
    return int(crc32c(name.encode())) % min(config.segment_jitter_ms, config.roll_ms)
