"""Share groups that live at random: members come, go and fall silent, topics grow, the share coordinator refuses.

After each step the story checks that the log says the same as the shard. Once the world is at peace, every partition
of a topic that a member subscribes to has a state and members, and members have even shares.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.coordinators.consumer_story import SESSION_MS
from tests.unit.coordinators.share_group_story import GROUP, ShareStory

from strandline.coordinators.groups.events import InitializeShareState
from strandline.coordinators.groups.share.initialization import PAUSE_MS
from strandline.coordinators.groups.share.share_group import ShareGroup
from strandline.errors import ErrorCode

STEPS = 120
TOPICS = ("t", "u", "v")


class Walk:
    """One story at random, and the epochs with which states were made, as the share coordinator sees them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.story = ShareStory(interval_ms=self.random.choice((0, 1_000)), topics={"t": 2, "u": 1})
        self.late: list[InitializeShareState] = []
        """Requests of coordinators that are gone, or that were answered with an error: they may arrive any time."""

    def run(self) -> None:
        often = [self.join, self.beat, self.beat, self.answer]
        seldom = [self.leave, self.refuse, self.grow, self.wait, self.silence, self.restart]
        admin = [self.alter, self.delete_offsets, self.delete_group]
        for _ in range(STEPS):
            self.random.choice(often + often + seldom + admin)()
            if GROUP not in self.story.shard.groups:
                # Its states are deleted with it, and the next group of this name begins with the first epoch.
                self.late.clear()
        self.calm_down()

    @property
    def members(self) -> list[str]:
        group = self.story.shard.groups.get(GROUP)
        return sorted(group.members) if isinstance(group, ShareGroup) else []

    def names(self) -> list[str]:
        return self.random.sample(TOPICS, self.random.randint(1, 3))

    def join(self) -> None:
        self.story.join(f"m{self.random.randrange(6)}", self.names())

    def beat(self) -> None:
        if self.members:
            member_id = self.random.choice(self.members)
            epoch = self.story.group.members[member_id].member_epoch
            assert self.story.say(member_id, epoch).error_code == ErrorCode.NONE

    def leave(self) -> None:
        if self.members:
            self.story.leave(self.random.choice(self.members))

    def answer(self) -> None:
        if self.story.asked:
            asked = self.story.answer()
            if isinstance(asked, InitializeShareState):
                self.check_epoch(asked)

    def check_epoch(self, made: InitializeShareState) -> None:
        """A request that comes late must be fenced by the state that was made since."""
        places = {(each.topic_id, each.partition) for each in made.partitions}
        for late in self.late:
            if not places.isdisjoint((each.topic_id, each.partition) for each in late.partitions):
                assert late.state_epoch < made.state_epoch

    def refuse(self) -> None:
        if self.story.asked:
            asked = self.story.asked[0]
            refused = [each for each in asked.partitions if self.random.random() < 0.5]
            self.story.answer({(each.topic_id, each.partition): ErrorCode.REQUEST_TIMED_OUT for each in refused})
            if isinstance(asked, InitializeShareState):
                self.late.append(InitializeShareState(asked.group_id, asked.state_epoch, tuple(refused), asked.request))

    def grow(self) -> None:
        name = self.random.choice(TOPICS)
        facts = self.story.topics.facts.get(name)
        if facts is None:
            self.story.topics.make(name, self.random.randint(1, 3))
        elif self.random.random() < 0.3:
            self.story.delete_topic(name)
            return
        elif facts.partitions < 5:
            self.story.topics.grow(name, facts.partitions + 1)
        self.story.topics_changed(name)

    def wait(self) -> None:
        self.story.pass_ms(self.random.choice((100, PAUSE_MS, 5_000)))

    def silence(self) -> None:
        if self.random.random() < 0.2:
            self.story.pass_ms(SESSION_MS)

    def restart(self) -> None:
        self.late += (asked for asked in self.story.asked if isinstance(asked, InitializeShareState))
        self.story.restart()

    def alter(self) -> None:
        self.story.alter({self.random.choice(TOPICS): {0: self.random.randrange(9)}})

    def delete_offsets(self) -> None:
        self.story.delete_offsets(*self.names())

    def delete_group(self) -> None:
        existing = GROUP in self.story.shard.groups
        token = self.story.delete_group()
        if not existing:
            assert self.story.deletion_code(token) is ErrorCode.GROUP_ID_NOT_FOUND

    def calm_down(self) -> None:
        story = self.story
        story.join("last", TOPICS)
        for _ in range(6):
            while story.asked:
                self.answer()
            story.pass_ms(PAUSE_MS + 1)
            for member_id in self.members:
                story.beat(member_id)
        group = story.group
        wanted = {name: facts for name in TOPICS if (facts := story.topics.facts.get(name)) is not None}
        for facts in wanted.values():
            everything = set(range(facts.partitions))
            assert group.initialized[facts.id].partitions == everything
            assert {index for each in group.members.values() for index in each.assigned.get(facts.id, ())} == everything
        sizes: dict[frozenset[str], list[int]] = {}
        for member in group.members.values():
            names = member.subscribed_topic_names.intersection(wanted)
            sizes.setdefault(names, []).append(sum(map(len, member.assigned.values())))
            assert {story.topics.by_id(topic_id).name for topic_id in member.assigned} <= names  # type: ignore[union-attr]
        if len(sizes) == 1:
            assert all(max(counts) - min(counts) <= 1 for counts in sizes.values())


@pytest.mark.parametrize(
    "seed",
    [
        *range(2),
        *(pytest.param(seed, marks=pytest.mark.lengthy("random walks beside a model")) for seed in range(2, 12)),
    ],
)
def test_share_groups_at_random(seed: int) -> None:
    Walk(seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 120))
def test_more_share_groups_at_random(seed: int) -> None:
    Walk(seed).run()
