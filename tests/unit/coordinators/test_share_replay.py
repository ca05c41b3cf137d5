"""Whatever happens to share partitions, the log alone brings them back: random histories, reloaded at every prefix."""

from __future__ import annotations

import random

import pytest
from tests.unit.coordinators.share_story import KEYS, ORDERS, PAYMENTS, ShareStory, memory_of

from strandline.coordinators.groups.events import TopicDeleted
from strandline.coordinators.shares.share_shard import LoggedRecord
from strandline.coordinators.shares.share_state import StateBatch

STEPS = 150


def act(story: ShareStory, choice: random.Random) -> None:
    key = choice.choice(KEYS)
    share = story.shard.shares.get(key)
    epoch = choice.randrange(4) if share is None else max(0, share.state_epoch + choice.choice((-1, 0, 0, 0, 1)))
    leader = 0 if share is None else max(-1, share.leader_epoch + choice.choice((-1, 0, 0, 0, 1)))
    match choice.randrange(14):
        case 0 | 1:
            story.initialize(key, epoch=epoch, start=choice.choice((-1, choice.randrange(50))))
        case 2:
            story.read(key, leader=leader)
        case 3:
            if choice.random() < 0.3:
                story.delete(key)
        case 4:
            story.pass_ms(choice.randrange(2_000))
        case 5 if choice.random() < 0.1:
            story.topics = [ORDERS]
            story.step(TopicDeleted("payments", PAYMENTS.id))
        case 6 if choice.random() < 0.3:
            story.restart()
        case _:
            first = choice.randrange(60)
            batches = [
                StateBatch(first, first + choice.randrange(6), choice.choice((0, 2, 4)), choice.randrange(1, 5))
                for _ in range(choice.randrange(4))
            ]
            start = choice.choice((-1, -1, choice.randrange(60)))
            story.write(*batches, key=key, epoch=epoch, leader=leader, start=start)


@pytest.mark.parametrize("seed", range(8))
def test_every_prefix_of_the_log_is_what_memory_was(seed: int) -> None:
    choice = random.Random(seed)
    story = ShareStory(
        updates_per_snapshot=choice.choice((0, 1, 4)),
        prune_interval_ms=700,
        cold_interval_ms=choice.choice((900, 5_000)),
    )
    for _ in range(STEPS):
        act(story, choice)
        assert memory_of(story.loaded_shard(story.log)) == memory_of(story.shard)
    assert story.next_offset > STEPS // 4


@pytest.mark.parametrize("seed", range(4))
def test_pruning_takes_nothing_that_a_later_prefix_needs(seed: int) -> None:
    """The log as it would be without pruning says the same as the one that is left."""
    choice = random.Random(100 + seed)
    story = ShareStory(updates_per_snapshot=2, prune_interval_ms=300, cold_interval_ms=800)
    whole: dict[int, LoggedRecord] = {}
    for _ in range(STEPS):
        act(story, choice)
        whole.update((record.offset, record) for record in story.log)
        left = story.loaded_shard(story.log)
        assert memory_of(left) == memory_of(story.loaded_shard(list(whole.values())))
    assert len(story.log) < len(whole)
