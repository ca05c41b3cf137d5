"""Members of the consumer protocol around one shard, on a clock of the story.

A client here says exactly what it is told to say, so that a test can lose its answers, repeat its requests and let it
lie. After each step it is checked that the coordinator lets no two members own a partition, and that the shard that
would be loaded from the log is the same as the one that runs.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from random import Random

from strandline.codec.messages.consumer_group_describe_response import DescribedGroup
from strandline.codec.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from strandline.codec.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_commit_response import OffsetCommitResponse
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from strandline.codec.messages.offset_fetch_response import OffsetFetchResponseGroup
from strandline.coordinators.groups.consumer.consumer_group import INITIAL_ASSIGNMENT_EPOCH, ConsumerGroup
from strandline.coordinators.groups.events import (
    Append,
    CancelTimer,
    CommitOffsets,
    ConsumerHeartbeat,
    DescribeConsumerGroup,
    Event,
    FetchOffsets,
    Loaded,
    Reply,
    StartTimer,
    TimerFired,
    TopicsChanged,
)
from strandline.coordinators.groups.group_config import ConsumerSettings, GroupConfig
from strandline.coordinators.groups.group_shard import GroupShard
from strandline.coordinators.groups.shard_terms import CoordinatorRecord, TimerKey, TimerKind
from strandline.coordinators.groups.topics import TopicFacts
from strandline.errors import ErrorCode

GROUP = "orders"
SESSION_MS = 45_000
REBALANCE_MS = 60_000

Owned = Mapping[str, Iterable[int]]


class ChangingTopics:
    """The topics of a cluster; a test makes and deletes them."""

    def __init__(self, **partitions: int) -> None:
        self.facts: dict[str, TopicFacts] = {}
        self._made = 0
        for name, count in partitions.items():
            self.make(name, count)

    def make(self, name: str, partitions: int) -> None:
        self._made += 1
        self.facts[name] = TopicFacts(name, uuid.UUID(int=self._made), partitions)

    def grow(self, name: str, partitions: int) -> None:
        self.facts[name] = TopicFacts(name, self.facts[name].id, partitions)

    def named(self, name: str) -> TopicFacts | None:
        return self.facts.get(name)

    def by_id(self, topic_id: uuid.UUID) -> TopicFacts | None:
        return next((facts for facts in self.facts.values() if facts.id == topic_id), None)

    def names(self) -> Iterable[str]:
        return self.facts


class ConsumerStory:
    def __init__(
        self, *, interval_ms: int = 0, seed: int = 5, topics: Mapping[str, int] | None = None, **config: object
    ):
        settings = ConsumerSettings(SESSION_MS, 5_000, interval_ms)
        self.config = GroupConfig(consumer=settings, **config)  # type: ignore[arg-type]
        self.topics = ChangingTopics(**({"t": 4} if topics is None else topics))
        self.seed = seed
        self.now_ms = 1_000_000
        self.records: list[CoordinatorRecord] = []
        self.timers: dict[TimerKey, int] = {}
        self.last: object = None
        self.steps_per_reload = 1
        self._steps = 0
        self._tokens = 0
        self.shard = GroupShard(self.config, Random(seed), self.topics)
        self.step(Loaded())

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    # ---- what members say

    def say(
        self,
        member_id: str,
        epoch: int,
        *,
        owns: Owned | None = None,
        names: Iterable[str] | None = None,
        pattern: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = -1,
        rack: str | None = None,
        group_id: str = GROUP,
        api_version: int = 1,
        client_id: str = "client",
    ) -> ConsumerGroupHeartbeatResponse:
        self._tokens += 1
        self.step(
            ConsumerHeartbeat(
                self._tokens,
                ConsumerGroupHeartbeatRequest(
                    group_id=group_id,
                    member_id=member_id,
                    member_epoch=epoch,
                    instance_id=instance_id,
                    rack_id=rack,
                    rebalance_timeout_ms=rebalance_ms,
                    subscribed_topic_names=None if names is None else list(names),
                    subscribed_topic_regex=pattern,
                    server_assignor=assignor,
                    topic_partitions=None if owns is None else self.owned(owns),
                ),
                api_version,
                client_id,
                "/127.0.0.1",
            )
        )
        assert isinstance(self.last, ConsumerGroupHeartbeatResponse)
        return self.last

    def owned(self, owns: Owned) -> list[TopicPartitions]:
        return [
            TopicPartitions(topic_id=self.topics.facts[name].id, partitions=list(partitions))
            for name, partitions in owns.items()
        ]

    def join(
        self, member_id: str, *, names: Iterable[str] | None = ("t",), rebalance_ms: int = REBALANCE_MS, **more: object
    ) -> ConsumerGroupHeartbeatResponse:
        names = None if more.get("pattern") is not None else names
        return self.say(member_id, 0, owns={}, names=names, rebalance_ms=rebalance_ms, **more)  # type: ignore[arg-type]

    def leave(self, member_id: str, **more: object) -> ConsumerGroupHeartbeatResponse:
        return self.say(member_id, -1, **more)  # type: ignore[arg-type]

    def commit(
        self, member_id: str, epoch: int, offset: int, *, topic: str = "t", partition: int = 0, api_version: int = 9
    ) -> ErrorCode:
        self._tokens += 1
        facts = self.topics.facts[topic]
        self.step(
            CommitOffsets(
                self._tokens,
                OffsetCommitRequest(
                    group_id=GROUP,
                    generation_id_or_member_epoch=epoch,
                    member_id=member_id,
                    topics=[
                        OffsetCommitRequestTopic(
                            name=topic,
                            topic_id=facts.id,
                            partitions=[
                                OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
                            ],
                        )
                    ],
                ),
                api_version,
            )
        )
        assert isinstance(self.last, OffsetCommitResponse)
        return ErrorCode(self.last.topics[0].partitions[0].error_code)

    def fetch(self, member_id: str | None = None, epoch: int = -1) -> OffsetFetchResponseGroup:
        self._tokens += 1
        asked = [OffsetFetchRequestTopics(name="t", topic_id=self.topics.facts["t"].id, partition_indexes=[0])]
        self.step(
            FetchOffsets(
                self._tokens,
                OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=asked),
            )
        )
        assert isinstance(self.last, OffsetFetchResponseGroup)
        return self.last

    def describe(self, group_id: str = GROUP) -> DescribedGroup:
        self._tokens += 1
        self.step(DescribeConsumerGroup(self._tokens, group_id))
        assert isinstance(self.last, DescribedGroup)
        return self.last

    # ---- what the world does

    def topics_changed(self, *names: str) -> None:
        self.step(TopicsChanged(frozenset(names)))

    def pass_ms(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while due := [(due_ms, key) for key, due_ms in self.timers.items() if due_ms <= end_ms]:
            due_ms, key = min(due)
            self.now_ms = max(self.now_ms, due_ms)
            del self.timers[key]
            self.step(TimerFired(key))
        self.now_ms = max(self.now_ms, end_ms)

    def restart(self) -> None:
        """Another coordinator takes over: the shard is what its records say."""
        self.timers.clear()
        self.shard = self.loaded()
        self.step(Loaded())

    def loaded(self) -> GroupShard:
        shard = GroupShard(self.config, Random(self.seed + 1), self.topics)
        shard.load(self.records)
        return shard

    def step(self, event: Event) -> None:
        self.now_ms += 1
        for effect in self.shard.step(event, self.now_ms):
            match effect:
                case Append(records=records):
                    assert records
                    self.records.extend(records)
                case StartTimer(key=key, delay_ms=delay_ms):
                    assert delay_ms >= 0
                    self.timers[key] = self.now_ms + delay_ms
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case Reply(response=response):
                    self.last = response
                case _:
                    pass
        self.check()

    def check(self) -> None:
        for group in self.shard.groups.values():
            if isinstance(group, ConsumerGroup):
                check_invariants(group, self.timers)
        self._steps += 1
        if self._steps % self.steps_per_reload == 0:
            self.check_reload()

    def check_reload(self) -> None:
        loaded = self.loaded()
        assert set(loaded.groups) == {group_id for group_id, group in self.shard.groups.items() if is_in_log(group)}
        for group_id, group in self.shard.groups.items():
            if isinstance(group, ConsumerGroup):
                again = loaded.groups[group_id]
                assert isinstance(again, ConsumerGroup)
                assert whole(again) == whole(group)


def is_in_log(group: object) -> bool:
    return isinstance(group, ConsumerGroup)


def check_invariants(group: ConsumerGroup, timers: Mapping[TimerKey, int]) -> None:
    assert group.group_epoch >= group.assignment_epoch
    owners: dict[tuple[uuid.UUID, int], str] = {}
    for member_id, member in group.members.items():
        assert member_id == member.member_id
        assert member.member_epoch <= max(group.assignment_epoch, INITIAL_ASSIGNMENT_EPOCH)
        for partitions_by_topic in (member.assigned, member.pending_revocation):
            for topic_id, partitions in partitions_by_topic.items():
                assert partitions
                for partition, epoch in partitions.items():
                    assert (topic_id, partition) not in owners, "two owners"
                    owners[topic_id, partition] = member_id
                    assert epoch <= group.assignment_epoch
        assert (member.state == 1) == bool(member.pending_revocation) or member.member_epoch == -2
        assert TimerKey(TimerKind.SESSION, group.group_id, member_id) in timers, "a member for ever"
        assert (TimerKey(TimerKind.REBALANCE, group.group_id, member_id) in timers) == bool(member.pending_revocation)
    assert owners == {
        (topic_id, partition): owner
        for topic_id, partitions in group.owners.items()
        for partition, owner in partitions.items()
    }
    targets: set[tuple[uuid.UUID, int]] = set()
    for member_id, target in group.target.items():
        assert member_id in group.members
        for topic_id, indexes in target.items():
            for index in indexes:
                assert (topic_id, index) not in targets, "two targets"
                targets.add((topic_id, index))
    assert {key.member_id for key in timers if key.member_id} <= set(group.members), "no timer outlives its member"
    assert group.static_members == {
        member.instance_id: member.member_id for member in group.members.values() if member.instance_id is not None
    }


def whole(group: ConsumerGroup) -> object:
    """All that the log must hold."""
    return (
        group.group_epoch,
        group.metadata_hash,
        group.assignment_epoch,
        group.assignment_timestamp_ms,
        {member_id: target for member_id, target in group.target.items() if target},
        group.regexes,
        group.static_members,
        group.owners,
        {
            member.member_id: tuple(
                getattr(member, name) for name in member.__dataclass_fields__ if name not in ("is_to_join",)
            )
            for member in group.members.values()
        },
    )


def told(response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    """The assignment by the number in the topic's id; None if the answer has none."""
    if response.assignment is None:
        return None
    return {str(topic.topic_id.int): topic.partitions for topic in response.assignment.topic_partitions}
