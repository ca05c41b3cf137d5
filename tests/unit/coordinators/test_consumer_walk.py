"""Members of the consumer protocol that live at random: they come, go, fall silent, lose answers and come again.

What the coordinator believes is checked by the story after each step. Here it is checked with the members' own eyes:
no two of them that the coordinator listens to own a partition at the same time; and once the world is at peace, every
partition is owned, and balanced.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.coordinators.consumer_story import REBALANCE_MS, ConsumerStory

from strandline.codec.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroup
from strandline.errors import ErrorCode

SEEDS = range(12)
MORE_SEEDS = range(12, 150)
STEPS = 150


class Consumer:
    """What a sound client does: it gives up before it says so, and takes only what it was told."""

    def __init__(self, story: ConsumerStory, member_id: str, random: Random, instance_id: str | None) -> None:
        self.story = story
        self.member_id = member_id
        self.instance_id = instance_id
        self.random = random
        self.names = ["t"]
        self.is_calm = False
        """It loses no answer and acts at once on what it hears."""
        self.start_over()

    def start_over(self) -> None:
        self.epoch = 0
        self.owned: set[tuple[str, int]] = set()
        self.assigned: set[tuple[str, int]] | None = None
        """What it was told to own and has not acted upon yet."""
        self.is_unsure = True
        """An answer was lost or refused, so the next request says everything."""

    def owns(self) -> dict[str, list[int]]:
        owned: dict[str, list[int]] = {}
        for name, partition in sorted(self.owned):
            if name in self.story.topics.facts:
                owned.setdefault(name, []).append(partition)
        return owned

    def beat(self, *, is_heard: bool = True) -> None:
        is_full = self.epoch == 0 or self.is_unsure
        if is_full:
            # Who says that it owns nothing of what it was told must not take it afterwards. It will be told again.
            self.assigned = None
        if self.assigned is not None and (self.is_calm or self.random.random() < 0.8):
            self.owned = self.assigned
            self.assigned = None
            says_owned = True
        else:
            says_owned = self.assigned is None and self.random.random() < 0.2
        answer = self.story.say(
            self.member_id,
            self.epoch,
            owns=self.owns() if is_full or says_owned else None,
            names=self.names if is_full else None,
            rebalance_ms=REBALANCE_MS if is_full else -1,
            instance_id=self.instance_id,
        )
        if not is_heard or (not self.is_calm and self.random.random() < 0.15):
            self.is_unsure = True
        else:
            self.hear(answer)

    def hear(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        code = ErrorCode(answer.error_code)
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self.start_over()
            return
        if code is ErrorCode.UNRELEASED_INSTANCE_ID:
            return
        assert code is ErrorCode.NONE, (code, answer.error_message)
        self.is_unsure = False
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            told = {
                (facts.name, partition)
                for topic in answer.assignment.topic_partitions
                if (facts := self.story.topics.by_id(topic.topic_id)) is not None
                for partition in topic.partitions
            }
            # It stops to read at once what it lost; the rest it does in its own time.
            self.owned &= told
            self.assigned = told

    def go(self) -> None:
        if self.epoch:
            self.story.say(self.member_id, -1 if self.instance_id is None else -2, instance_id=self.instance_id)
        self.start_over()


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.story = ConsumerStory(interval_ms=self.random.choice((0, 1_000)), topics={"t": 5, "u": 3}, seed=seed)
        self.story.steps_per_reload = 25
        self.consumers: list[Consumer] = []
        self.made = 0

    def act(self) -> None:
        random, story = self.random, self.story
        match random.choices(
            ("beat", "come", "go", "die", "pass", "restart", "lose", "grow", "subscribe"),
            (60, 6, 3, 3, 12, 3, 3, 1, 4),
        )[0]:
            case "come" if len(self.consumers) < 5:
                self.come()
            case "go" if self.consumers:
                gone = self.consumers.pop(random.randrange(len(self.consumers)))
                gone.go()
            case "die" if self.consumers:
                self.consumers.pop(random.randrange(len(self.consumers)))
            case "pass":
                story.pass_ms(random.choice((100, 1_000, 5_000, 20_000, 50_000)))
            case "restart":
                story.restart()
            case "lose" if self.consumers:
                self.lose(random.choice(self.consumers))
            case "grow":
                facts = story.topics.facts["t"]
                story.topics.grow("t", min(facts.partitions + 1, 9))
                story.topics_changed("t")
            case "subscribe" if self.consumers:
                consumer = random.choice(self.consumers)
                consumer.names = random.choice((["t"], ["u"], ["t", "u"]))
                consumer.is_unsure = True
            case _:
                if self.consumers:
                    random.choice(self.consumers).beat()
        self.check()

    def lose(self, consumer: Consumer) -> None:
        """Kill the coordinator before its records are committed: no client knows them, and the next one does not."""
        committed = len(self.story.records)
        consumer.beat(is_heard=False)
        del self.story.records[committed:]
        self.story.restart()

    def come(self) -> None:
        self.made += 1
        taken = {consumer.instance_id for consumer in self.consumers}
        instance_id = self.random.choice((None, None, "i", "j"))
        if instance_id in taken:
            instance_id = None
        self.consumers.append(Consumer(self.story, f"m{self.made}", self.random, instance_id))

    def check(self) -> None:
        group = self.story.shard.groups.get("orders")
        owners: dict[tuple[str, int], str] = {}
        for consumer in self.consumers:
            member = group.members.get(consumer.member_id) if isinstance(group, ConsumerGroup) else None
            if member is None:
                continue
            assert not member.classic
            for partition in consumer.owned:
                assert owners.setdefault(partition, consumer.member_id) == consumer.member_id, f"{partition}: two"


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_the_same_with_more_seeds(seed: int) -> None:
    walk(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_partition_has_two_owners_and_none_is_left_in_the_end(seed: int) -> None:
    walk(seed)


def walk(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.act()
    if not world.consumers:
        world.come()
    for consumer in world.consumers:
        consumer.names = ["t"]
        consumer.is_unsure = True
        consumer.is_calm = True
    for _ in range(40):
        for consumer in world.consumers:
            consumer.beat()
            world.check()
        world.story.pass_ms(5_000)
    owned = sorted(partition for consumer in world.consumers for partition in consumer.owned)
    assert owned == [("t", index) for index in range(world.story.topics.facts["t"].partitions)], seed
    shares = [len(consumer.owned) for consumer in world.consumers]
    assert max(shares) - min(shares) <= 1
    assert world.story.group.state == "Stable"
