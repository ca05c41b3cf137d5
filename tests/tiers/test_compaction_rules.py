"""Which segments of a tiered topic are compacted together, and which version of a record is read at any moment."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from uuid import UUID

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiers.test_segment_rules import PLACE, added, compressed, epochs_of, segment

from strandline.broker.tiering.remote_cache import RemoteCache
from strandline.config.topic_config import TopicConfig
from strandline.log.leader_epochs import LeaderEpochs
from strandline.runtime.runtime import LoopRuntime
from strandline.tiers.compaction import Chain, chain, compaction_of, groups, is_due
from strandline.tiers.copying import local_policy
from strandline.tiers.lineage import epochs_between
from strandline.tiers.objects import ObjectPart, pack_checksums, pack_parts, segment_key
from strandline.tiers.records import Compaction, RemoteSegment, SegmentAdded, SegmentChanged
from strandline.tiers.remote_segments import RemoteSegments
from strandline.tiers.segment_states import SegmentState
from strandline.tiers.store.memory_store import MemoryStore

ONE = epochs_of((0, 0))


def cleaned(each: RemoteSegment, clean_up_to: int, *, is_passed: bool = False) -> RemoteSegment:
    return each._replace(compaction=Compaction(clean_up_to, each.epochs[-1][0], is_passed))


def replacing(number: int, start: int, end: int, *replaced: int) -> RemoteSegment:
    ids = tuple(UUID(int=each) for each in replaced)
    return segment(number, start, end)._replace(compaction=Compaction(end + 1, 0, True, ids))


def change(number: int, state: SegmentState, *, only_unfinished: bool = False) -> SegmentChanged:
    return SegmentChanged(PLACE, UUID(int=number), state, 1, 0, only_unfinished=only_unfinished)


def found(known: RemoteSegments, offset: int, epoch: int = 0) -> int | None:
    result = known.find(epoch, offset)
    return None if result is None else result.id.int


def chain_of(known: RemoteSegments, leader: LeaderEpochs = ONE, *, start: int = 0, end: int = 10_000) -> Chain:
    return chain(known, leader, log_start_offset=start, log_end_offset=end)


def test_one_record_puts_a_segment_in_the_place_of_others() -> None:
    known = added(RemoteSegments(), segment(1, 0, 99), segment(2, 100, 199))
    known.apply(SegmentAdded(PLACE, replacing(3, 0, 199, 1, 2)))
    assert [found(known, offset) for offset in (0, 99, 100, 199)] == [1, 1, 2, 2], "not before it is whole"
    assert known.apply(change(3, SegmentState.COPY_FINISHED))
    assert [found(known, offset) for offset in (0, 99, 100, 199)] == [3, 3, 3, 3]
    assert [each.id.int for each in known.readable()] == [3]
    assert [each.id.int for each in known.replaced()] == [1, 2]
    for number in (1, 2):
        assert known.apply(change(number, SegmentState.DELETE_STARTED))
        assert known.apply(change(number, SegmentState.DELETE_FINISHED))
        assert [found(known, offset) for offset in (0, 199)] == [3, 3]
    assert [each.id.int for each in known.by_id.values()] == [3]


@pytest.mark.parametrize("state", [SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED])
def test_a_compaction_of_what_was_deleted_is_rejected(state: SegmentState) -> None:
    known = added(RemoteSegments(), segment(1, 0, 99), segment(2, 100, 199))
    known.apply(SegmentAdded(PLACE, replacing(3, 0, 199, 1, 2)))
    for each in SegmentState.DELETE_STARTED, state:
        known.apply(change(1, each))
    assert not known.apply(change(3, SegmentState.COPY_FINISHED))
    assert (found(known, 0), found(known, 100)) == (None, 2), "deleted records came back"


def test_of_two_compactions_the_first_wins() -> None:
    known = added(RemoteSegments(), segment(1, 0, 99), segment(2, 100, 199))
    known.apply(SegmentAdded(PLACE, replacing(3, 0, 199, 1, 2)))
    known.apply(SegmentAdded(PLACE, replacing(4, 0, 99, 1)))
    assert known.apply(change(4, SegmentState.COPY_FINISHED))
    assert not known.apply(change(3, SegmentState.COPY_FINISHED))
    assert (found(known, 0), found(known, 100)) == (4, 2)
    assert known.in_state(SegmentState.COPY_STARTED)[0].id == UUID(int=3), "its objects are deleted as those of a copy"


def test_a_copy_that_was_given_up_and_is_whole_stays() -> None:
    """The record that it is whole was late. What it replaced is gone, so it must not be deleted."""
    known = added(RemoteSegments(), segment(1, 0, 99))
    known.apply(SegmentAdded(PLACE, replacing(2, 0, 99, 1)))
    assert known.apply(change(2, SegmentState.COPY_FINISHED))
    assert not known.apply(change(2, SegmentState.DELETE_STARTED, only_unfinished=True))
    assert found(known, 50) == 2
    known.apply(SegmentAdded(PLACE, replacing(3, 0, 99, 2)))
    assert known.apply(change(3, SegmentState.DELETE_STARTED, only_unfinished=True))
    assert not known.apply(change(3, SegmentState.COPY_FINISHED)), "the other way round"
    assert found(known, 50) == 2


def test_a_late_copy_does_not_hide_what_is_compacted() -> None:
    known = added(RemoteSegments(), cleaned(segment(1, 0, 99), 100, is_passed=True), cleaned(segment(2, 50, 149), 150))
    assert [found(known, offset) for offset in (49, 50, 99, 100)] == [1, 1, 1, 2]
    parts = chain_of(known).parts
    assert [(each.segment.id.int, each.start_offset, each.end_offset) for each in parts] == [(1, 0, 100), (2, 100, 150)]


def test_the_dirty_part_begins_where_the_first_segment_is_not_clean() -> None:
    known = added(RemoteSegments(), cleaned(segment(1, 0, 99), 250), cleaned(segment(2, 100, 249), 250))
    assert chain_of(known).first_dirty_offset == 250
    assert not is_due(chain_of(known), TopicConfig(min_cleanable_dirty_ratio=0.0), 0)
    added(known, cleaned(segment(3, 250, 299, size=300), 300))
    now = chain_of(known)
    assert (now.first_dirty_offset, now.dirty_bytes, now.total_bytes) == (250, 300, 500)
    assert is_due(now, TopicConfig(min_cleanable_dirty_ratio=0.5), 0)
    assert not is_due(now, TopicConfig(min_cleanable_dirty_ratio=0.6), 0)
    assert is_due(now, TopicConfig(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=10), 11)
    # What the cleaner was never at is dirty from its first record on.
    assert chain_of(added(known, segment(4, 300, 349))).first_dirty_offset == 250
    assert chain_of(added(RemoteSegments(), segment(4, 0, 99))).first_dirty_offset == 0


def test_keys_that_an_unclean_election_took_back_prove_nothing() -> None:
    claim = segment(1, 0, 99)._replace(compaction=Compaction(900, 1, True))
    known = added(RemoteSegments(), claim)
    assert chain_of(known, epochs_of((0, 0), (1, 500)), end=1000).first_dirty_offset == 900
    assert chain_of(known, epochs_of((0, 0), (1, 500), (2, 700)), end=1000).first_dirty_offset == 700
    # The leader of epoch 1 is unknown: its records were lost.
    assert chain_of(known, epochs_of((0, 0), (2, 500)), end=1000).first_dirty_offset == 500


def test_horizons_of_segments_that_the_store_has_not_compacted_do_not_count() -> None:
    known = added(
        RemoteSegments(),
        cleaned(segment(1, 0, 99), 300, is_passed=True),
        cleaned(segment(2, 100, 199), 200),
        cleaned(segment(3, 200, 299), 300, is_passed=True),
    )
    assert chain_of(known).horizons_below == 100


def test_groups_fit_into_a_segment() -> None:
    known = added(RemoteSegments(), *(segment(1 + at, 10 * at, 10 * at + 9) for at in range(7)))
    made = groups(chain_of(known), known, ONE, segment_bytes=250)
    assert [[each.segment.id.int for each in group.parts] for group in made] == [[1, 2], [3, 4], [5, 6], [7]]


def test_only_compaction_never_deletes_what_the_store_lacks() -> None:
    policy = local_policy(
        TopicConfig(cleanup_policy=("compact",), remote_log_copy_disable=True), copied_up_to=5, high_watermark=9
    )
    assert policy == (-1, -1, 5)
    both = TopicConfig(cleanup_policy=("compact", "delete"), retention_ms=7, retention_bytes=8)
    assert local_policy(both, copied_up_to=5, high_watermark=9) == (7, 8, 5)


histories = st.lists(st.integers(0, 3), min_size=5, max_size=60)


def stores(data: st.DataObject) -> tuple[RemoteSegments, list[int]]:
    """Return segments of a leader and of its predecessor, whose last records an election took back; and the log."""
    former = sorted(data.draw(histories))
    cut = data.draw(st.integers(1, len(former)))
    log = former[:cut] + [max(former) + 1] * data.draw(st.integers(1, 30))
    known, number = RemoteSegments(), 0
    for each in (former, log):
        bases = sorted({0, len(each), *data.draw(st.lists(st.integers(0, len(each)), max_size=5))})
        for start, end in itertools.pairwise(bases):
            number += 1
            epochs = epochs_between(compressed(each), start, end)
            added(known, segment(number, start, end - 1, *epochs, size=data.draw(st.integers(0, 200))))
    return known, log


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_chain_has_each_record_once_and_compaction_leaves_one_version(data: st.DataObject) -> None:
    known, log = stores(data)
    leader = compressed(log)
    made = chain_of(known, leader, end=len(log))
    covered = [offset for part in made.parts for offset in range(part.start_offset, part.end_offset)]
    assert covered == list(range(len(log)))
    for part in made.parts:
        for offset in range(part.start_offset, part.end_offset):
            epoch = next(e for e, start in reversed(part.segment.epochs) if start <= offset)
            assert epoch == log[offset], "a record that was taken back"
    number = 100
    for group in groups(made, known, leader, segment_bytes=300):
        number += 1
        start, end = group.start_offset, group.end_offset
        compaction = compaction_of(group, clean_up_to=len(log), leader=leader, log_end_offset=len(log))
        new = segment(number, start, end - 1, *epochs_between(leader, start, end))._replace(compaction=compaction)
        added(known, new)
        for offset, epoch in enumerate(log):
            assert known.find(epoch, offset) is not None, "a record is in no readable segment"
            if offset < end:
                assert found(known, offset, epoch) > 100, "an old version is read"  # type: ignore[operator]
    assert all(each.id.int > 100 for each in known.readable() if _is_found(each, log)), "an old version stays"
    again = chain_of(known, leader, end=len(log))
    assert again.first_dirty_offset == len(log), "it would be compacted for ever"


def _is_found(each: RemoteSegment, log: list[int]) -> bool:
    starts = dict(each.epochs)
    return any(log[offset] in starts for offset in range(each.start_offset, min(each.end_offset + 1, len(log))))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_two_leaders_that_compact_at_once_leave_one_version_at_any_moment(seed: int) -> None:
    """Records of both arrive in any order, and either may stop anywhere. Each offset has one readable segment."""
    rng, numbers = random.Random(seed), itertools.count(100)
    known = added(RemoteSegments(), *(segment(1 + at, 10 * at, 10 * at + 9) for at in range(8)))

    def compaction() -> Iterator[SegmentAdded | SegmentChanged]:
        for group in groups(chain_of(known), known, ONE, segment_bytes=rng.choice((100, 250, 400))):
            number, start, end = next(numbers), group.start_offset, group.end_offset
            new = compaction_of(group, clean_up_to=80, leader=ONE, log_end_offset=100)
            yield SegmentAdded(PLACE, segment(number, start, end - 1)._replace(compaction=new))
            yield change(
                number, rng.choice((SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED)), only_unfinished=True
            )
            yield change(number, SegmentState.COPY_FINISHED)
            for each in known.replaced():
                yield change(each.id.int, SegmentState.DELETE_STARTED)
                yield change(each.id.int, SegmentState.DELETE_FINISHED)

    running = [compaction(), compaction()]
    for _ in range(60):
        at = rng.randrange(2)
        event = None if rng.random() < 0.05 else next(running[at], None)
        if event is None:
            running[at] = compaction()
            continue
        known.apply(event)
        for offset in range(80):
            holders = [each for each in known.readable() if each.start_offset <= offset <= each.end_offset]
            assert len(holders) == 1, (seed, offset, holders)


async def test_blocks_in_memory_are_never_those_of_a_replaced_segment() -> None:
    """Both segments begin at one offset, and the cache holds the older one when the newer one is read."""
    runtime, store = LoopRuntime(asyncio.get_running_loop()), MemoryStore("memory://")
    cache = RemoteCache(runtime, size_bytes_max=1 << 20, reads_max=lambda: 4)
    cache.store = store
    for number, content in ((1, b"with an old value"), (2, b"compacted")):
        each = segment(number, 0, 9, size=len(content))
        key = segment_key("cluster", PLACE, 0, each.id)
        checksums = pack_checksums([crc32c(content)])
        await store.put(f"{key}.log", content, deadline_s=5)
        await store.put(f"{key}.idx", pack_parts({ObjectPart.BLOCK_CHECKSUMS: checksums}), deadline_s=5)
        for _ in range(2):
            indexes = await cache.indexes(key, each)
            assert await cache.block(key, each, 0, indexes) == content


def test_a_log_without_records_has_no_chain() -> None:
    assert chain(RemoteSegments(), LeaderEpochs(), log_start_offset=0, log_end_offset=0) == Chain((), 0)
