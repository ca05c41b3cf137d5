"""What is copied next, what may go locally, and what leaves the store."""

from __future__ import annotations

from uuid import UUID

import pytest

from strandline.config.topic_config import TopicConfig
from strandline.log.leader_epochs import LeaderEpochs
from strandline.tiers.copying import candidates, local_policy
from strandline.tiers.expiry import Expiry, expired
from strandline.tiers.records import RemoteSegment
from strandline.tiers.segment_states import SegmentState

NOW_MS = 1_000_000


def segment(number: int, *, ms: int = NOW_MS, size: int = 100, epoch: int = 0) -> RemoteSegment:
    """Return a segment with the offsets from ten times its number on."""
    start = number * 10
    return RemoteSegment(
        UUID(int=number + 1), start, start + 9, ((epoch, start),), ms, size, 1, 0, SegmentState.COPY_FINISHED
    )


def leader(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start_offset in entries or ((0, 0),):
        epochs.note(epoch, start_offset)
    return epochs


@pytest.mark.parametrize(
    ("stable", "copied", "start", "expected"),
    [
        (1000, 0, 0, [0, 10, 20]),  # The last segment still grows.
        (29, 0, 0, [0, 10]),  # An open transaction, or what is not committed, reaches into the third.
        (30, 0, 0, [0, 10, 20]),
        (1000, 10, 0, [10, 20]),
        (1000, 15, 0, [10, 20]),  # Copied in part, by a former leader with other segments.
        (1000, 0, 20, [20]),
        (1000, 30, 0, []),
        (0, 0, 0, []),
    ],
)
def test_candidates(stable: int, copied: int, start: int, expected: list[int]) -> None:
    found = candidates([0, 10, 20, 30], last_stable_offset=stable, copied_up_to=copied, log_start_offset=start)
    assert [each.base_offset for each in found] == expected
    assert all(each.next_offset == each.base_offset + 10 for each in found)


def test_local_retention_is_the_total_one_where_it_is_not_set() -> None:
    config = TopicConfig(remote_storage_enable=True, retention_ms=7, retention_bytes=9)
    assert local_policy(config, copied_up_to=20, high_watermark=50) == (7, 9, 20)
    config = TopicConfig(remote_storage_enable=True, retention_ms=7, local_retention_ms=3, local_retention_bytes=4)
    assert local_policy(config, copied_up_to=20, high_watermark=50) == (3, 4, 20)


def test_what_is_copied_of_a_compacted_object_topic_is_read_in_the_store_alone() -> None:
    config = TopicConfig(storage="object", cleanup_policy=("compact",), local_retention_ms=1000)
    assert local_policy(config, copied_up_to=20, high_watermark=50) == (-1, 0, 20)


def test_what_is_not_copied_stays_unless_nothing_is_copied_any_more() -> None:
    config = TopicConfig(remote_storage_enable=True, remote_log_copy_disable=True)
    assert local_policy(config, copied_up_to=20, high_watermark=50).end_offset_max == 50


def expire(
    *segments: RemoteSegment,
    log_start: int = 0,
    local_bytes: int = 0,
    epochs: LeaderEpochs | None = None,
    **settings: int,
) -> Expiry:
    config = TopicConfig(remote_storage_enable=True, **{"retention_ms": -1, **settings})  # type: ignore[arg-type]
    return expired(
        segments,
        leader=epochs or leader(),
        config=config,
        log_start_offset=log_start,
        log_end_offset=1000,
        local_only_bytes=local_bytes,
        now_ms=NOW_MS,
    )


def numbers(expiry: Expiry) -> list[int]:
    return [each.id.int - 1 for each in expiry.segments]


def test_old_segments_go_in_order_up_to_the_first_that_stays() -> None:
    old, young = NOW_MS - 101, NOW_MS - 100
    found = expire(segment(0, ms=old), segment(1, ms=young), segment(2, ms=old), retention_ms=100)
    assert numbers(found) == [0]
    assert found.log_start_offset == 10


def test_the_oldest_go_until_the_rest_and_what_is_local_fit() -> None:
    found = expire(segment(0), segment(1), segment(2), local_bytes=50, retention_bytes=150)
    assert numbers(found) == [0, 1]
    assert found.log_start_offset == 20
    assert not expire(segment(0), segment(1), local_bytes=50, retention_bytes=151).segments


def test_records_that_two_leaders_copied_count_once() -> None:
    twice = segment(1)._replace(id=UUID(int=9))
    longer = segment(1)._replace(id=UUID(int=10), end_offset=24, size_bytes=150)
    assert not expire(segment(0), segment(1), twice, local_bytes=50, retention_bytes=151).segments
    assert not expire(segment(0), segment(1), longer, retention_bytes=151).segments
    assert numbers(expire(segment(0), segment(1), longer, retention_bytes=150)) == [0]


def test_what_lies_below_the_log_start_goes_and_the_start_stays() -> None:
    found = expire(segment(0), segment(1), segment(2), log_start=15)
    assert numbers(found) == [0]
    assert found.log_start_offset == 15


def test_a_lock_keeps_what_is_too_large() -> None:
    found = expire(segment(0, ms=NOW_MS - 10), retention_bytes=0, retention_lock_ms=60)
    assert not found.segments
    assert found.log_start_offset == 0


def test_records_from_the_future_stay() -> None:
    assert not expire(segment(0, ms=NOW_MS + 7_200_000), retention_ms=100).segments


def test_segments_that_an_election_took_back_never_count_and_go_with_their_epoch() -> None:
    lost, kept = segment(0, epoch=3, size=10_000), segment(1, epoch=7)
    found = expire(lost, kept, epochs=leader((2, 0), (7, 5)), retention_bytes=1000)
    assert not found.segments, "its size counts for no retention, and an epoch of its time is still known"
    found = expire(lost, kept, epochs=leader((7, 5)), log_start=5, retention_bytes=1000)
    assert numbers(found) == [0]
    assert found.log_start_offset == 5


def test_a_topic_without_a_policy_keeps_all_but_what_is_below_its_start() -> None:
    config = TopicConfig(remote_storage_enable=True, cleanup_policy=(), retention_ms=1, retention_bytes=1)
    found = expired(
        [segment(0, ms=1), segment(1, ms=1)],
        leader=leader(),
        config=config,
        log_start_offset=10,
        log_end_offset=1000,
        local_only_bytes=0,
        now_ms=NOW_MS,
    )
    assert numbers(found) == [0]
    assert found.log_start_offset == 10
