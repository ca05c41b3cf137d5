"""What becomes of a log, said in words: facts in, sentences out."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.cli.topic.storage_words import (
    clock,
    compaction_words,
    damage_words,
    deletion_words,
    offsets,
    scrub_words,
    segment_state,
)
from strandline.codec.messages.describe_storage_response import (
    DescribeStorageResponse,
    StoredDamage,
    StoredPartition,
    StoredSegment,
)

NOW_MS = 1_800_000_000_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
GIB = 1 << 30
NODE = DescribeStorageResponse(
    node_id=1,
    now_ms=NOW_MS,
    retention_check_ms=5 * MINUTE_MS,
    cleaner_backoff_ms=15_000,
    scrub_interval_ms=7 * DAY_MS,
)


def deleting(**facts: Any) -> StoredPartition:
    """A log of 3 GiB whose oldest segment is the next to go."""
    known: dict[str, Any] = {
        "topic": "orders",
        "cleanup_policy": "delete",
        "retention_ms": 7 * DAY_MS,
        "size_bytes": 3 * GIB,
        "log_end_offset": 9_000,
        "next_deletion_base": 0,
        "next_deletion_end": 1_204,
        "next_deletion_bytes": GIB,
        "next_deletion_cause": "time",
        "next_deletion_ms": NOW_MS + 3 * HOUR_MS + 12 * MINUTE_MS,
    }
    return StoredPartition(**(known | facts))


def compacted(**facts: Any) -> StoredPartition:
    known: dict[str, Any] = {
        "topic": "prices",
        "cleanup_policy": "compact",
        "size_bytes": 3 * GIB,
        "log_start_offset": 0,
        "last_stable_offset": 9_000,
        "high_watermark": 9_000,
        "log_end_offset": 9_000,
        "segment_bytes": GIB,
        "segment_ms": 7 * DAY_MS,
        "cleaning_state": "idle",
        "clean_up_to": 2_000,
        "first_uncleanable": 6_000,
        "uncleanable_because": "active",
        "dirty_ratio": 0.38,
        "dirty_ratio_min": 0.5,
    }
    return StoredPartition(**(known | facts))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (deleting(), "segment 0–1,203 (1 GiB) is deleted in 3 h 12 min, when its newest record is 1 week old"),
        (
            deleting(next_deletion_ms=NOW_MS - 5),
            "segment 0–1,203 (1 GiB) is deleted at the next look (every 5 minutes): its newest record is older than "
            "1 week",
        ),
        (
            deleting(next_deletion_ms=-1),
            "segment 0–1,203 (1 GiB) is deleted when its newest record is 1 week old",
        ),
        (
            deleting(retention_bytes=4 * GIB, next_deletion_bytes_until=2 * GIB),
            "segment 0–1,203 (1 GiB) is deleted in 3 h 12 min, when its newest record is 1 week old, or when 2 GiB "
            "more have come",
        ),
        (
            deleting(next_deletion_is_active=True),
            "segment 0–1,203 (1 GiB) is rolled and deleted in 3 h 12 min, when its newest record is 1 week old",
        ),
        (
            deleting(next_deletion_ms=NOW_MS, next_deletion_is_held=True),
            "segment 0–1,203 (1 GiB) is deleted at the next look (every 5 minutes): its newest record is older than "
            "1 week; it waits until it is committed and flushed",
        ),
        (
            deleting(
                retention_ms=-1,
                retention_bytes=4 * GIB,
                next_deletion_cause="size",
                next_deletion_ms=-1,
                next_deletion_bytes_until=2 * GIB,
            ),
            "segment 0–1,203 (1 GiB) is deleted when 2 GiB more have come: 4 GiB are kept",
        ),
        (
            deleting(
                retention_bytes=2 * GIB,
                next_deletion_cause="size",
                next_deletion_ms=NOW_MS,
                next_deletion_bytes_until=0,
            ),
            "segment 0–1,203 (1 GiB) is deleted at the next look (every 5 minutes): even without it the log has "
            "the 2 GiB that are kept",
        ),
        (deleting(cleanup_policy="compact"), "nothing is deleted by age or size: cleanup.policy is compact"),
        (deleting(cleanup_policy=""), "nothing is deleted by age or size: cleanup.policy is empty"),
        (deleting(retention_ms=-1), "nothing is deleted: neither retention.ms nor retention.bytes sets a limit"),
        (
            deleting(retention_ms=2**63 - 1, next_deletion_cause=""),
            "nothing is deleted: neither retention.ms nor retention.bytes sets a limit",
        ),
        (deleting(next_deletion_cause="", size_bytes=0), "nothing to delete: the log is empty"),
    ],
)
def test_deletion(part: StoredPartition, words: str) -> None:
    assert deletion_words(part, NODE) == words


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (compacted(cleanup_policy="delete"), "none: cleanup.policy is delete"),
        (compacted(cleaning_state="off"), "the cleaner is off: log.cleaner.enable=false"),
        (
            compacted(cleaning_state="set aside", cleaning_reason="no space left on device"),
            "cleaning is set aside: no space left on device",
        ),
        (
            compacted(cleaning_state="set aside", cleaning_reason="it is damaged", retry_ms=NOW_MS + 9 * MINUTE_MS),
            "cleaning is set aside: it is damaged; it is tried again in 9 min",
        ),
        (
            compacted(cleaning_state="cleaning", cleaning_bytes=GIB, cleaning_bytes_total=4 * GIB),
            "it is being cleaned: 25% of 4 GiB",
        ),
        (compacted(cleaning_state="cleaning"), "it is being cleaned"),
        (compacted(clean_up_to=9_000), "nothing to clean: all of it is clean"),
        (
            compacted(),
            "38% is dirty: cleaned when it is more than 50% (min.cleanable.dirty.ratio)",
        ),
        (
            compacted(cleaning_due_ms=NOW_MS + 2 * HOUR_MS),
            "38% is dirty: cleaned when it is more than 50% (min.cleanable.dirty.ratio), or in 2 h "
            "(max.compaction.lag.ms)",
        ),
        (
            compacted(cleaning_due_ms=NOW_MS - 1),
            "38% is dirty: cleaned at the next look (every 15 seconds), the dirtiest log first",
        ),
        (
            compacted(dirty_ratio=0.8),
            "80% is dirty: cleaned at the next look (every 15 seconds), the dirtiest log first",
        ),
        (
            compacted(first_uncleanable=2_000),
            "nothing may be cleaned yet: offsets 2,000–8,999 are in the active segment, which rolls at 1 GiB, or when "
            "it is 1 week old",
        ),
        (
            compacted(first_uncleanable=2_000, uncleanable_because="transaction", last_stable_offset=2_000),
            "nothing may be cleaned yet: offsets 2,000–8,999 wait for a transaction that is open since offset 2,000 "
            "(`strandline txn why prices` says whose)",
        ),
        (
            compacted(first_uncleanable=2_000, uncleanable_because="lag", uncleanable_until_ms=NOW_MS + 90 * MINUTE_MS),
            "nothing may be cleaned yet: offsets 2,000–8,999 are younger than min.compaction.lag.ms; the first of them "
            "may be cleaned in 1 h 30 min",
        ),
    ],
)
def test_compaction(part: StoredPartition, words: str) -> None:
    assert compaction_words(part, NODE) == words


def test_what_holds_a_part_back_is_told_too() -> None:
    words = compaction_words(compacted(uncleanable_because="transaction", last_stable_offset=6_100), NODE)
    assert words == (
        "38% is dirty: cleaned when it is more than 50% (min.cleanable.dirty.ratio); offsets 6,000–8,999 wait for a "
        "transaction that is open since offset 6,100 (`strandline txn why prices` says whose)"
    )


def test_when_the_active_segment_rolls() -> None:
    segments = [StoredSegment(base_offset=2_000, is_active=True, first_timestamp_ms=NOW_MS - DAY_MS)]
    part = compacted(first_uncleanable=2_000, segments=segments)
    moment = clock(NOW_MS + 6 * DAY_MS)[:16]
    assert compaction_words(part, NODE).endswith(f"which rolls at 1 GiB, or with the first record after {moment}")
    segments[0].first_timestamp_ms = NOW_MS - 8 * DAY_MS
    assert compaction_words(part, NODE).endswith("which rolls at 1 GiB, or with the next record")


def test_states_of_segments() -> None:
    def state(base: int, end: int, *, is_active: bool = False, **facts: Any) -> str:
        return segment_state(compacted(**facts), StoredSegment(base_offset=base, end_offset=end, is_active=is_active))

    assert [state(0, 1_000), state(1_000, 2_000), state(1_500, 2_500), state(2_000, 3_000)] == [
        "clean",
        "clean",
        "partly clean",
        "dirty",
    ]
    assert state(6_000, 9_000, is_active=True) == "active"
    assert state(0, 1_000, cleanup_policy="delete") == "sealed"
    damages = [StoredDamage(base_offset=900, end_offset=1_000)]
    assert [state(0, 1_000, damages=damages), state(1_000, 2_000, damages=damages)] == ["damaged", "clean"]


def test_damage_says_where_what_and_what_is_done() -> None:
    damage = StoredDamage(
        base_offset=900,
        end_offset=1_000,
        position=4_096,
        what="the checksum is wrong",
        state="it is fetched again from broker 2",
        found_ms=NOW_MS - 2 * HOUR_MS,
    )
    assert damage_words(damage, NODE) == (
        "offsets 900–999, byte 4,096 of the segment: the checksum is wrong; it is fetched again from broker 2 "
        "(found 2 h ago)"
    )


def test_scrubbing() -> None:
    assert scrub_words(deleting(), NODE) == "not read yet; every 1 week"
    read = deleting(scrubbed_ms=NOW_MS - 2 * DAY_MS)
    assert scrub_words(read, NODE) == "read and found whole 2 d ago; again in 5 d"
    damaged = deleting(scrubbed_ms=NOW_MS - 8 * DAY_MS, damages=[StoredDamage()])
    assert scrub_words(damaged, NODE) == "read 1 w 1 d ago; again soon"


def test_offsets_of_one_record_are_one() -> None:
    assert (offsets(5, 6), offsets(5, 7), offsets(1_000, 2_000)) == ("5", "5–6", "1,000–1,999")
