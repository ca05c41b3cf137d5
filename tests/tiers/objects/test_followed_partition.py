"""What a follower of an object topic shows: what is committed as far as it has read the commit log, and no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.tiers.objects.commit_log import PLACE_A, claim, commit, note, object_id, piece

from strandline.broker.tiering.objects.followed_partition import FollowedPartition
from strandline.errors import ErrorCode, NotLeader
from strandline.handlers.support.fetching.tiered_fetch import TieredReads
from strandline.partition.tier import FollowedState, RemoteRecords
from strandline.tiers.wal.commit_fold import CommitFold
from strandline.tiers.wal.events import ABORTED, STARTS, TRANSACTIONAL, OffsetsMoved

START, STABLE, END = 10, 20, 30
KEY = ("orders", 0)


class FollowerTier:
    """A tier that counts what is read of it."""

    follows_index = True

    def __init__(self, state: FollowedState | None) -> None:
        self._state = state
        self.read_offsets: list[int] = []

    def followed(self) -> FollowedState:
        if self._state is None:
            raise NotLeader("the commit log is not read yet")
        return self._state

    def read(self, offset: int, *, then: Any, **_: object) -> None:
        self.read_offsets.append(offset)
        then(RemoteRecords((b"batch",)), None)


def answer(offset: int, tier: FollowerTier, *, committed: bool = False) -> Any:
    log = SimpleNamespace(log_start_offset=0, log_end_offset=1000)
    partition = SimpleNamespace(tier=tier, is_leader=False, log=log, log_start_offset=0)
    refuse = lambda entry, code: SimpleNamespace(error_code=code, records=None)  # noqa: E731
    fetch = SimpleNamespace(refuse=refuse, isolation_level=int(committed), wait_ms=0, on_tiered=lambda: None)
    entry = SimpleNamespace(key=KEY, fetch_offset=offset, size_bytes_max=1000)
    return TieredReads(cast("Any", fetch)).read(cast("Any", partition), cast("Any", entry), 1000, at_least_one=True)


@pytest.mark.parametrize(
    ("offset", "committed", "code", "is_read"),
    [
        (START - 1, False, ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (START, False, ErrorCode.NONE, True),
        (END - 1, False, ErrorCode.NONE, True),
        (END, False, ErrorCode.NONE, False),
        (END + 1, False, ErrorCode.OFFSET_NOT_AVAILABLE, False),
        (STABLE - 1, True, ErrorCode.NONE, True),
        (STABLE, True, ErrorCode.NONE, False),
        (END, True, ErrorCode.NONE, False),
    ],
)
def test_a_follower_serves_what_is_committed_as_far_as_it_knows(
    offset: int, committed: bool, code: ErrorCode, is_read: bool
) -> None:
    tier = FollowerTier(FollowedState(START, END, STABLE))
    found = answer(offset, tier, committed=committed)
    assert found.error_code == code
    assert (found.records is not None) is is_read
    assert tier.read_offsets == ([offset] if is_read else [])
    if code == ErrorCode.NONE:
        assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (END, STABLE, START)


def test_a_follower_that_knows_nothing_sends_its_reader_to_the_leader() -> None:
    assert answer(START, FollowerTier(None)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_open_transaction_holds_back_the_last_stable_offset_of_a_follower() -> None:
    fold = CommitFold()
    fold.apply(claim(1, 10, PLACE_A))
    fold.apply(commit(object_id(1), piece(PLACE_A, 0, 9, notes=(note(TRANSACTIONAL, 4, 0, 7, 0),))))
    partition = cast("Any", SimpleNamespace(topic="orders", topic_id=PLACE_A[0], index=0, runtime=None))

    def state() -> tuple[int, int, int]:
        return tuple(FollowedPartition(partition, fold.partitions[PLACE_A]).state)

    assert state() == (0, 9, 7)
    fold.apply(OffsetsMoved(STARTS, ((*PLACE_A, 0, 8),)))
    assert state() == (8, 9, 8), "the beginning of the transaction was deleted"
    fold.apply(commit(object_id(2), piece(PLACE_A, 9, 10, notes=(note(ABORTED, 4, 0, 9, 0),))))
    assert state() == (8, 10, 10)
