"""What a leader copies next, and what a replica may delete of its local log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from strandline.config.storage_settings import AS_RETENTION
from strandline.config.topic_config import TopicConfig
from strandline.log.maintenance.retention import LocalPolicy

NO_LIMIT: Final = -1


class CopyCandidate(NamedTuple):
    """A sealed segment that the store does not have."""

    base_offset: int
    next_offset: int
    """The first offset behind it."""


def candidates(
    base_offsets: Sequence[int], *, last_stable_offset: int, copied_up_to: int, log_start_offset: int
) -> list[CopyCandidate]:
    """Return the sealed segments to copy, oldest first.

    The last one still grows. A segment counts when the one behind it begins at or below the last stable offset: then
    its records are committed, and no open transaction reaches into it. `copied_up_to` is the first offset that the
    store lacks.
    """
    start_offset = max(copied_up_to, log_start_offset)
    return [
        CopyCandidate(base_offset, next_offset)
        for base_offset, next_offset in pairwise(base_offsets)
        if next_offset > start_offset and base_offset < next_offset <= last_stable_offset
    ]


def local_policy(config: TopicConfig, *, copied_up_to: int, high_watermark: int) -> LocalPolicy:
    """Return up to where, and by which limits, local segments may go.

    What the store does not have stays, however old it is, unless the topic does not copy any more. A topic that is
    only compacted has no retention, so `local.retention` of -2 keeps all segments. While segments are brought back, the
    limits are those of the tier alone: it moves the log start.
    """
    if config.strandline_remote_recall:
        return LocalPolicy(NO_LIMIT, NO_LIMIT, copied_up_to)
    if config.compact and not config.cleans_locally:
        # Old values that the store does not have any more are read nowhere else either, or a reader could take one
        # from here, and never get the tombstone behind it from the next leader.
        return LocalPolicy(NO_LIMIT, 0, copied_up_to)
    deletes = "delete" in config.cleanup_policy or not config.compact
    ms, size = config.local_retention_ms, config.local_retention_bytes
    if ms == AS_RETENTION:
        ms = config.retention_ms if deletes else NO_LIMIT
    if size == AS_RETENTION:
        size = config.retention_bytes if deletes else NO_LIMIT
    copies_no_more = config.remote_log_copy_disable and deletes
    return LocalPolicy(ms, size, high_watermark if copies_no_more else copied_up_to)
