"""Which micro-batch of Spark read a record, or when a group read it: by those commits of the group that are kept.

The newest commit of a group says its batch in its metadata. Older commits stay in `__consumer_offsets` until it is
compacted; the one that first lay beyond the record, and the one before it, are the bounds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from strandline.cli.group.offsets import homes_of_groups
from strandline.client.cluster_client import ClusterClient
from strandline.client.group_positions import batch_note
from strandline.codec.internal_records import decode_coordinator_record
from strandline.codec.messages.offset_commit_key import OffsetCommitKey
from strandline.codec.messages.offset_commit_value import OffsetCommitValue
from strandline.console.reading.record_merge import RecordsAsked, read_records
from strandline.console.reading.record_spans import FoundRecord
from strandline.console.rendering import moment
from strandline.errors import MalformedMessage

CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
GROUPS_MAX: Final = 10
"""Groups whose commits are read for one record."""
COMMITS_MAX: Final = 2000
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class SeenCommit:
    """A position that a group committed."""

    offset: int
    at_ms: int
    metadata: str = ""


def read_commits(client: ClusterClient, groups: Sequence[str], place: Place) -> dict[str, list[SeenCommit]]:
    """Return the commits of groups in a partition that the log still has, the oldest first."""
    found: dict[str, list[SeenCommit]] = {group: [] for group in groups}
    topic = client.topic(CONSUMER_OFFSETS_TOPIC)
    if topic is None or not groups:
        return found
    homes = homes_of_groups(groups, len(topic.leaders))

    def wanted(record: FoundRecord) -> bool:
        told = _commit(record)
        return told is not None and told[0] in found and told[1] == place

    asked = RecordsAsked(CONSUMER_OFFSETS_TOPIC, COMMITS_MAX, partitions=homes)
    for record in reversed(read_records(client, asked, time.monotonic, wanted).records):
        told = _commit(record)
        assert told is not None
        found[told[0]].append(told[2])
    return found


def _commit(found: FoundRecord) -> tuple[str, Place, SeenCommit] | None:
    record = found.record
    if record.key is None or record.value is None:
        return None
    try:
        key, value = decode_coordinator_record(record.key, record.value)
    except MalformedMessage:
        return None
    if not isinstance(key, OffsetCommitKey) or not isinstance(value, OffsetCommitValue):
        return None
    seen = SeenCommit(value.offset, value.commit_timestamp, value.metadata)
    return key.group, (key.topic, key.partition), seen


def how_it_was_read(offset: int, commits: Sequence[SeenCommit]) -> dict[str, Any]:
    """Return which batch read a record, or between which times it was read; commits are the oldest first (pure)."""
    first = before = None
    for each in reversed(commits):
        if each.offset <= offset:
            before = each
            break
        first = each
    if first is None:
        return {"text": "", "batch": None, "query": None}
    note, earlier = batch_note(first.metadata), None if before is None else batch_note(before.metadata)
    told: dict[str, Any] = {
        "batch": None,
        "query": None if note is None else note.query,
        "after_ms": None if before is None else before.at_ms,
        "until_ms": first.at_ms,
    }
    when = moment(first.at_ms)
    if note is not None and note.has_read(offset):
        return told | {
            "batch": note.batch_id,
            "text": f"batch {note.batch_id} of query {note.query}, committed at {when}",
        }
    if note is not None:
        since = "" if earlier is None else f"after batch {earlier.batch_id} and "
        last = f"before batch {note.batch_id}" if note.begin is not None else f"up to batch {note.batch_id}"
        return told | {"text": f"a batch {since}{last} of query {note.query}, by {when}"}
    if before is not None:
        return told | {"text": f"between {moment(before.at_ms)} and {when}"}
    return told | {"text": f"by {when}; no earlier commit is kept"}


def of_position(offset: int, position: int, metadata: str) -> dict[str, Any] | None:
    """Return the batch by the newest position of a group alone, if that says which batch read the record (pure)."""
    note = batch_note(metadata)
    if note is None or position <= offset or not note.has_read(offset):
        return None
    text = f"batch {note.batch_id} of query {note.query}"
    return {"batch": note.batch_id, "query": note.query, "text": text}
