"""The note of a dead-letter transaction: which offsets of the source it has copies of.

The note is committed by the same record as the copies (CommitBatch), under the name of a sink that belongs to the share
partition. It is JSON, so that `strandline txn sink list` and people can read it:

    {"group": "workers", "topic": "tasks", "partition": 0, "state_epoch": 3, "offsets": [[17, 17], [20, 24]]}
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from strandline.coordinators.shares.share_state import SharePartitionKey

SINK_BEGIN: Final = "dead-letters."
"""What the names of the sinks begin with."""
TRANSACTION_NAME: Final = "letters"
"""The transactional id of a sink ends with it; there is one, because there is one transaction at a time."""

Span = tuple[int, int]
"""First and last offset."""


def sink_of_share(key: SharePartitionKey) -> str:
    """Return the sink of a share partition. A sink's name is short, and a group's may be long."""
    group = base64.urlsafe_b64encode(hashlib.sha256(key.group_id.encode()).digest())[:22].decode()
    topic = base64.urlsafe_b64encode(key.topic_id.bytes)[:22].decode()
    return f"{SINK_BEGIN}{group}.{topic}.{key.partition}"


class CoveredOffsets(NamedTuple):
    """What the last dead-letter transaction of a share partition covers."""

    state_epoch: int
    """The state of the share partition that the offsets belong to: another one may deliver the same offsets again."""
    spans: tuple[Span, ...]

    def split(self, first: int, last: int) -> tuple[list[Span], list[Span]]:
        """Return the parts of a range that are covered, and those that are not."""
        covered: list[Span] = []
        others: list[Span] = []
        position = first
        for begin, end in self.spans:
            begin, end = max(begin, position), min(end, last)
            if begin > end:
                continue
            if position < begin:
                others.append((position, begin - 1))
            covered.append((begin, end))
            position = end + 1
        if position <= last:
            others.append((position, last))
        return covered, others


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return spans in order, and neighbours as one."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)


def encode_note(covered: CoveredOffsets, *, group_id: str, topic: str, partition: int) -> bytes:
    note = {
        "group": group_id,
        "topic": topic,
        "partition": partition,
        "state_epoch": covered.state_epoch,
        "offsets": covered.spans,
    }
    return json.dumps(note, separators=(",", ":")).encode()


def decode_note(note: bytes) -> CoveredOffsets | None:
    """Return what a note says; None if there was no transaction. Raises ValueError for anything else."""
    if not note:
        return None
    found: Any = json.loads(note)
    try:
        spans = [(int(first), int(last)) for first, last in found["offsets"]]
        return CoveredOffsets(int(found["state_epoch"]), joined(spans))
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no note of a dead-letter transaction: {note[:80]!r}") from error
