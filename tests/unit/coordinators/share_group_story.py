"""Members of a share group around one shard, on a clock of the story, with a share coordinator that a test answers for.

After each step it is checked that the shard that would be loaded from the log is the same as the one that runs, and
that only initialised partitions are assigned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from uuid import UUID

from tests.unit.coordinators.consumer_story import SESSION_MS, ChangingTopics

from strandline.codec.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from strandline.codec.messages.delete_groups_response import DeletableGroupResult
from strandline.codec.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from strandline.codec.messages.share_group_describe_response import DescribedGroup
from strandline.codec.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from strandline.codec.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from strandline.coordinators.groups.events import (
    AlterShareOffsets,
    Append,
    CancelTimer,
    DeleteGroup,
    DeleteShareOffsets,
    DeleteShareState,
    DescribeShareGroup,
    Event,
    InitializeShareState,
    Loaded,
    Reply,
    ShareHeartbeat,
    ShareStateAnswered,
    StartTimer,
    TimerFired,
    TopicDeleted,
    TopicsChanged,
)
from strandline.coordinators.groups.group_config import ConsumerSettings, GroupConfig
from strandline.coordinators.groups.group_shard import GroupShard
from strandline.coordinators.groups.shard_terms import CoordinatorRecord, TimerKey, TimerKind
from strandline.coordinators.groups.share.share_group import ShareGroup
from strandline.errors import ErrorCode

GROUP = "tasks"

Place = tuple[UUID, int]


class ShareStory:
    def __init__(self, *, interval_ms: int = 0, topics: Mapping[str, int] | None = None, **config: object) -> None:
        settings = ConsumerSettings(SESSION_MS, 5_000, interval_ms)
        self.config = GroupConfig(share=settings, **config)  # type: ignore[arg-type]
        self.topics = ChangingTopics(**({"t": 2} if topics is None else topics))
        self.now_ms = 1_000_000
        self.records: list[CoordinatorRecord] = []
        self.timers: dict[TimerKey, int] = {}
        self.asked: list[InitializeShareState | DeleteShareState] = []
        """What the share coordinator was asked for and has not answered."""
        self.replies: dict[object, object] = {}
        self._tokens = 0
        self.shard = GroupShard(self.config, Random(5), self.topics)
        self.step(Loaded())

    @property
    def group(self) -> ShareGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ShareGroup)
        return group

    # ---- what clients say

    def say(
        self,
        member_id: str,
        epoch: int,
        *,
        names: Iterable[str] | None = None,
        rack: str | None = None,
        group_id: str = GROUP,
        client_id: str = "client",
    ) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=rack,
            subscribed_topic_names=None if names is None else list(names),
        )
        reply = self.ask(ShareHeartbeat(self.token(), request, client_id, "/127.0.0.1"))
        assert isinstance(reply, ShareGroupHeartbeatResponse)
        return reply

    def join(self, member_id: str, names: Iterable[str] = ("t",), **more: object) -> ShareGroupHeartbeatResponse:
        return self.say(member_id, 0, names=names, **more)  # type: ignore[arg-type]

    def leave(self, member_id: str, **more: object) -> ShareGroupHeartbeatResponse:
        return self.say(member_id, -1, **more)  # type: ignore[arg-type]

    def beat(self, member_id: str) -> ShareGroupHeartbeatResponse:
        """Send the heartbeat of a member that heard of its present epoch."""
        return self.say(member_id, self.group.members[member_id].member_epoch)

    def describe(self, group_id: str = GROUP) -> DescribedGroup:
        reply = self.ask(DescribeShareGroup(self.token(), group_id))
        assert isinstance(reply, DescribedGroup)
        return reply

    def alter(self, starts: Mapping[str, Mapping[int, int]], *, group_id: str = GROUP) -> object:
        """Return the token of the request."""
        topics = [
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in partitions.items()
                ],
            )
            for name, partitions in starts.items()
        ]
        token = self.token()
        self.step(AlterShareOffsets(token, AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics)))
        return token

    def delete_offsets(self, *names: str, group_id: str = GROUP) -> object:
        """Return the token of the request."""
        topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
        token = self.token()
        self.step(DeleteShareOffsets(token, DeleteShareGroupOffsetsRequest(group_id=group_id, topics=topics)))
        return token

    def delete_group(self, group_id: str = GROUP) -> object:
        """Return the token of the request."""
        token = self.token()
        self.step(DeleteGroup(token, group_id))
        return token

    def deletion_code(self, token: object) -> ErrorCode | None:
        reply = self.replies.get(token)
        assert reply is None or isinstance(reply, DeletableGroupResult)
        return None if reply is None else ErrorCode(reply.error_code)

    def token(self) -> object:
        self._tokens += 1
        return self._tokens

    def ask(self, event: Event) -> object:
        self.step(event)
        return self.replies[event.token]  # type: ignore[union-attr]

    # ---- what the world does

    def answer(self, codes: Mapping[Place, ErrorCode] | None = None) -> InitializeShareState | DeleteShareState:
        """Let the share coordinator answer the oldest question, with these errors; the question."""
        asked = self.asked.pop(0)
        places = {(each.topic_id, each.partition) for each in asked.partitions}
        self.step(ShareStateAnswered(asked, {place: code for place, code in (codes or {}).items() if place in places}))
        return asked

    def refuse(self, code: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """Let the share coordinator refuse all of the oldest question."""
        self.answer({(each.topic_id, each.partition): code for each in self.asked[0].partitions})

    def place(self, name: str, partition: int) -> Place:
        return self.topics.facts[name].id, partition

    def delete_topic(self, name: str) -> None:
        facts = self.topics.facts.pop(name)
        self.step(TopicsChanged(frozenset((name,))))
        self.step(TopicDeleted(name, facts.id))

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
        """Another coordinator takes over. No answer of the share coordinator reaches it."""
        self.timers.clear()
        self.asked.clear()
        self.shard = self.loaded()
        self.step(Loaded())

    def loaded(self) -> GroupShard:
        shard = GroupShard(self.config, Random(6), self.topics)
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
                    self.timers[key] = self.now_ms + delay_ms
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case Reply(token=token, response=response):
                    assert token not in self.replies, "answered twice"
                    self.replies[token] = response
                case InitializeShareState() | DeleteShareState():
                    self.asked.append(effect)
                case _:
                    pass
        self.check()

    def check(self) -> None:
        loaded = self.loaded()
        assert set(loaded.groups) == set(self.shard.groups)
        for group_id, group in self.shard.groups.items():
            again = loaded.groups[group_id]
            assert isinstance(group, ShareGroup)
            assert isinstance(again, ShareGroup)
            assert whole(again) == whole(group)
            check_invariants(group, self.timers)
        asking = [group.conversation for group in self.shard.groups.values() if isinstance(group, ShareGroup)]
        assert [asked for asked in asking if asked is not None] == self.asked


def check_invariants(group: ShareGroup, timers: Mapping[TimerKey, int]) -> None:
    assert group.group_epoch >= group.assignment_epoch
    for member_id, member in group.members.items():
        assert 0 < member.member_epoch <= group.assignment_epoch
        assert TimerKey(TimerKind.SESSION, group.group_id, member_id) in timers, "a member for ever"
    sessions = {key.member_id for key in timers if key.kind is TimerKind.SESSION and key.group_id == group.group_id}
    assert sessions == set(group.members), "no timer outlives its member"
    assert set(group.target) <= set(group.members)
    for topics in (group.initializing, group.initialized):
        assert all(topic.partitions for topic in topics.values())


def whole(group: ShareGroup) -> object:
    """All that the log must hold."""
    return (
        group.group_epoch,
        group.metadata_hash,
        group.assignment_epoch,
        group.assignment_timestamp_ms,
        group.target,
        group.initializing,
        group.initialized,
        group.deleting,
        {
            member.member_id: tuple(getattr(member, name) for name in member.__dataclass_fields__)
            for member in group.members.values()
        },
    )


def told(response: ShareGroupHeartbeatResponse) -> dict[int, list[int]] | None:
    """The assignment by the number in the topic's id; None if the answer has none."""
    if response.assignment is None:
        return None
    return {topic.topic_id.int: topic.partitions for topic in response.assignment.topic_partitions}
