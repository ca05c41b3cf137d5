"""Which replica a consumer is sent to, and that no replica sends it back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from strandline.handlers.support.fetching.replica_selection import preferred_replica

TOPIC_ID = UUID(int=7)
START, COPIED, END = 10, 20, 30
LEADER, FOLLOWER = 1, 2


class Tier:
    def __init__(self, *, follows_index: bool) -> None:
        self.follows_index = follows_index

    def copied_up_to(self) -> int:
        return COPIED


def chosen(offset: int, tier: Tier | None, rack: str = "b") -> int:
    brokers = {LEADER: SimpleNamespace(is_active=True, rack="a"), FOLLOWER: SimpleNamespace(is_active=True, rack="b")}
    image = SimpleNamespace(leader=LEADER, leader_epoch=3, isr=(LEADER, FOLLOWER))
    node = SimpleNamespace(
        image=SimpleNamespace(brokers=brokers, topic_by_id=lambda _: SimpleNamespace(partitions=[image]))
    )
    follower = SimpleNamespace(log_start_offset=START, end_offset=END)
    partition = SimpleNamespace(
        topic_id=TOPIC_ID,
        index=0,
        leader_epoch=3,
        tier=tier,
        log_start_offset=START,
        high_watermark=END,
        in_sync=SimpleNamespace(followers={FOLLOWER: follower}),
    )
    return preferred_replica(cast("Any", node), cast("Any", partition), rack, offset)


@pytest.mark.parametrize("tier", [None, Tier(follows_index=False), Tier(follows_index=True)])
def test_a_consumer_is_sent_to_its_rack(tier: Tier | None) -> None:
    assert chosen(COPIED, tier) == FOLLOWER
    assert chosen(END, tier) == FOLLOWER
    assert chosen(COPIED, tier, "a") == -1, "the leader is there"
    assert chosen(COPIED, tier, "c") == -1, "no replica is there"


@pytest.mark.parametrize("offset", [START - 1, END + 1])
@pytest.mark.parametrize("tier", [None, Tier(follows_index=True)])
def test_only_the_leader_says_that_an_offset_is_out_of_range(tier: Tier | None, offset: int) -> None:
    assert chosen(offset, tier) == -1


def test_records_that_a_follower_may_have_in_the_store_alone_are_read_from_the_leader() -> None:
    assert chosen(COPIED - 1, Tier(follows_index=False)) == -1
    assert chosen(COPIED - 1, Tier(follows_index=True)) == FOLLOWER, "all of them read the store"
