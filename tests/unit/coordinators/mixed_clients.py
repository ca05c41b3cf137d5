"""Consumers of both protocols around one coordinator, each behaving as the common clients do, without any of them.

A client believes the last answer it got and owns what it was assigned and has not given up yet. What it owns is judged
with the coordinator's own eyes: a client whose member id and epoch the coordinator accepts could commit, and for one
partition there must never be two of those.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from strandline.codec.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from strandline.codec.messages.consumer_group_heartbeat_request import TopicPartitions as OwnedById
from strandline.codec.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from strandline.codec.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from strandline.codec.messages.consumer_protocol_assignment import TopicPartition as Assigned
from strandline.codec.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from strandline.codec.messages.consumer_protocol_subscription import TopicPartition as Owned
from strandline.codec.messages.heartbeat_request import HeartbeatRequest
from strandline.codec.messages.heartbeat_response import HeartbeatResponse
from strandline.codec.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.codec.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from strandline.codec.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_commit_response import OffsetCommitResponse
from strandline.codec.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from strandline.codec.messages.sync_group_response import SyncGroupResponse
from strandline.coordinators.groups.classic.classic_group import ClassicGroup
from strandline.coordinators.groups.classic.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from strandline.coordinators.groups.consumer.consumer_group import INITIAL_ASSIGNMENT_EPOCH, ConsumerGroup
from strandline.coordinators.groups.events import (
    Append,
    CancelTimer,
    CommitOffsets,
    ConsumerHeartbeat,
    Event,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Loaded,
    Reply,
    StartTimer,
    SyncGroup,
    TimerFired,
)
from strandline.coordinators.groups.group_config import GroupConfig
from strandline.coordinators.groups.group_shard import GroupShard
from strandline.coordinators.groups.shard_terms import CoordinatorRecord, TimerKey, TimerKind
from strandline.coordinators.groups.topics import FixedTopics, TopicFacts
from strandline.errors import ErrorCode

GROUP = "orders"
SESSION_MS = 10_000
REBALANCE_MS = 30_000
TOPICS = (TopicFacts("t", uuid.UUID(int=1), 4), TopicFacts("u", uuid.UUID(int=2), 3))
NAMES = {topic.id: topic.name for topic in TOPICS}
IDS = {topic.name: topic.id for topic in TOPICS}
EVERYTHING = frozenset((topic.name, partition) for topic in TOPICS for partition in range(topic.partitions))

Partition = tuple[str, int]


@dataclass(frozen=True)
class Asked:
    """The token of one request: whose, and which; an answer to an older one is not listened to."""

    client: Client
    number: int


class Table:
    """The coordinator, its log, its timers and its clients."""

    def __init__(self, seed: int = 3, **config: object) -> None:
        self.config = GroupConfig(**{"initial_rebalance_delay_ms": 0, **config})  # type: ignore[arg-type]
        self.topics = FixedTopics(TOPICS)
        self.now_ms = 1_000_000
        self.records: list[CoordinatorRecord] = []
        self.timers: dict[TimerKey, int] = {}
        self.clients: list[Client] = []
        self.random = Random(seed)
        self.told: list[str] = []
        self.shard = self.loaded()

    def loaded(self) -> GroupShard:
        self.shard = GroupShard(self.config, self.random, self.topics)
        self.shard.load(self.records)
        self.step(Loaded())
        return self.shard

    def restart(self) -> None:
        """Another coordinator takes over: what waits is cut off, and the shard is what its records say."""
        self.timers.clear()
        for client in self.clients:
            client.cut_off()
        self.told.append("-- restart --")
        self.loaded()

    @property
    def group(self) -> ClassicGroup | ConsumerGroup | None:
        return self.shard.groups.get(GROUP)

    def step(self, event: Event) -> None:
        self.now_ms += 1
        replies: list[Reply] = []
        for effect in self.shard.step(event, self.now_ms):
            match effect:
                case Append(records=records):
                    self.records.extend(records)
                case StartTimer(key=key, delay_ms=delay_ms):
                    self.timers[key] = self.now_ms + delay_ms
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case Reply():
                    replies.append(effect)
                case _:
                    pass
        for reply in replies:
            assert isinstance(reply.token, Asked)
            reply.token.client.hear_if_waiting(reply.token, reply.response)
        self.check()

    def pass_ms(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while due := [(due_ms, key) for key, due_ms in self.timers.items() if due_ms <= end_ms]:
            due_ms, key = min(due)
            self.now_ms = max(self.now_ms, due_ms)
            del self.timers[key]
            self.step(TimerFired(key))
        self.now_ms = max(self.now_ms, end_ms)

    def rounds(self, count: int = 1, *, pause_ms: int = 1_100) -> None:
        """Each client in turn does what it has to do next; time goes on, as it does between two heartbeats."""
        for _ in range(count):
            for client in self.clients:
                if client.is_alive and not client.is_paused:
                    client.act()
            self.pass_ms(pause_ms)

    def owners(self) -> dict[Partition, list[str]]:
        owners: dict[Partition, list[str]] = {}
        for client in self.clients:
            if client.is_alive:
                for partition in sorted(client.owned):
                    owners.setdefault(partition, []).append(client.name)
        return owners

    def is_shared_out(self) -> bool:
        """Everything is owned, each partition once."""
        owners = self.owners()
        return owners.keys() == EVERYTHING and all(len(names) == 1 for names in owners.values())

    def check(self) -> None:
        committers: dict[Partition, str] = {}
        for client in self.clients:
            if client.may_commit():
                for partition in client.owned:
                    other = committers.setdefault(partition, client.name)
                    assert other == client.name, f"{partition} is owned by {other} and {client.name}"
        group = self.group
        if isinstance(group, ConsumerGroup):
            check_consumer_group(self, group)
        known = set() if group is None else set(group.members)
        pending = set(group.pending_join) if isinstance(group, ClassicGroup) else set()
        for key in self.timers:
            assert not key.member_id or key.member_id in known | pending, f"{key} outlives its member"
        for member_id in known:
            waits = isinstance(group, ClassicGroup) and (
                member_id in group.awaiting_join or member_id in group.awaiting_sync
            )
            assert waits or TimerKey(TimerKind.SESSION, GROUP, member_id) in self.timers, f"{member_id} for ever"


def check_consumer_group(table: Table, group: ConsumerGroup) -> None:
    assert group.group_epoch >= group.assignment_epoch
    owners: dict[tuple[uuid.UUID, int], str] = {}
    for member in group.members.values():
        assert member.member_epoch <= max(group.assignment_epoch, INITIAL_ASSIGNMENT_EPOCH)
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                assert partitions
                for partition in partitions:
                    assert (topic_id, partition) not in owners, "two owners"
                    owners[topic_id, partition] = member.member_id
                    assert group.owner(topic_id, partition) == member.member_id
    assert sum(len(each) for each in group.owners.values()) == len(owners)
    assert group.static_members == {
        member.instance_id: member.member_id for member in group.members.values() if member.instance_id is not None
    }


class Client:
    def __init__(self, table: Table, name: str, *, instance_id: str | None = None) -> None:
        self.table = table
        self.name = name
        self.instance_id = instance_id
        self.topics: tuple[str, ...] = ("t", "u")
        self.told_topics: tuple[str, ...] = ()
        """What it subscribed to when it spoke of it last."""
        self.member_id = ""
        self.epoch = -1
        self.owned: set[Partition] = set()
        self.is_alive = True
        self.is_paused = False
        self.is_deaf = False
        """The next answer gets lost."""
        self.waits: Asked | None = None
        self.errors: list[ErrorCode] = []
        self._asked = 0
        table.clients.append(self)

    def act(self) -> None:
        raise NotImplementedError

    def hear(self, response: object) -> None:
        raise NotImplementedError

    def ask(self) -> Asked:
        self._asked += 1
        self.waits = Asked(self, self._asked)
        return self.waits

    def hear_if_waiting(self, asked: Asked, response: object) -> None:
        if self.waits == asked and self.is_alive:
            if self.is_deaf:
                self.is_deaf = False
                self.cut_off()
                return
            self.waits = None
            if not isinstance(response, OffsetCommitResponse):
                self.hear(response)
            else:
                self.errors.append(ErrorCode(response.topics[0].partitions[0].error_code))

    def cut_off(self) -> None:
        self.waits = None

    def die(self) -> None:
        self.is_alive = False
        self.cut_off()

    def lose(self) -> None:
        """It was fenced: what it owned is another's."""
        self.owned.clear()

    def say(self, what: str) -> None:
        self.table.told.append(f"{self.name}: {what}")

    def may_commit(self) -> bool:
        group = self.table.group
        if group is None or not self.owned or not self.is_alive:
            return False
        if isinstance(group, ClassicGroup):
            return self.member_id in group.members and group.generation_id == self.epoch
        member = group.members.get(self.member_id)
        return member is not None and member.member_epoch == self.epoch

    def commit(self, partition: Partition, offset: int) -> ErrorCode:
        topic, index = partition
        self.table.step(
            CommitOffsets(
                self.ask(),
                OffsetCommitRequest(
                    group_id=GROUP,
                    generation_id_or_member_epoch=self.epoch,
                    member_id=self.member_id,
                    group_instance_id=self.instance_id,
                    retention_time_ms=-1,
                    topics=[
                        OffsetCommitRequestTopic(
                            name=topic,
                            topic_id=IDS[topic],
                            partitions=[OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)],
                        )
                    ],
                ),
                9,
            )
        )
        return self.errors[-1]


class ClassicClient(Client):
    """Joins, syncs and sends heartbeats; leads with a range assignment if it is told to."""

    def __init__(
        self,
        table: Table,
        name: str,
        *,
        instance_id: str | None = None,
        cooperative: bool = False,
        metadata_version: int = 1,
        join_version: int = 9,
    ) -> None:
        super().__init__(table, name, instance_id=instance_id)
        self.is_cooperative = cooperative
        self.metadata_version = metadata_version
        self.join_version = join_version
        self.protocol = "cooperative-sticky" if cooperative else "range"
        self.next = "join"
        self.is_leader = False
        self.members: list[JoinGroupResponseMember] = []

    def act(self) -> None:
        if self.waits is None:
            if self.next == "heartbeat" and self.told_topics != self.topics:
                self.next = "join"
            getattr(self, self.next)()

    def join(self) -> None:
        if not self.is_cooperative:
            self.owned.clear()
        self.told_topics = self.topics
        owned = [Owned(topic=topic, partitions=list(each)) for topic, each in by_topic(self.owned).items()]
        subscription = ConsumerProtocolSubscription(
            topics=list(self.topics), owned_partitions=owned, generation_id=self.epoch
        )
        self.table.step(
            JoinGroup(
                token=self.ask(),
                request=JoinGroupRequest(
                    group_id=GROUP,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=REBALANCE_MS,
                    member_id=self.member_id,
                    group_instance_id=self.instance_id,
                    protocol_type="consumer",
                    protocols=[
                        JoinGroupRequestProtocol(
                            name=self.protocol, metadata=encode_subscription(subscription, self.metadata_version)
                        )
                    ],
                ),
                api_version=self.join_version,
                client_id=self.name,
                client_host="/127.0.0.1",
            )
        )

    def sync(self) -> None:
        assignments = self.assign() if self.is_leader else {}
        self.table.step(
            SyncGroup(
                self.ask(),
                SyncGroupRequest(
                    group_id=GROUP,
                    generation_id=self.epoch,
                    member_id=self.member_id,
                    group_instance_id=self.instance_id,
                    protocol_type="consumer",
                    protocol_name=self.protocol,
                    assignments=[
                        SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                        for member_id, assignment in assignments.items()
                    ],
                ),
            )
        )

    def heartbeat(self) -> None:
        self.table.step(
            Heartbeat(
                self.ask(),
                HeartbeatRequest(
                    group_id=GROUP,
                    generation_id=self.epoch,
                    member_id=self.member_id,
                    group_instance_id=self.instance_id,
                ),
            )
        )

    def leave(self) -> None:
        self.die()
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        self.table.step(LeaveGroup(Asked(self, -1), LeaveGroupRequest(group_id=GROUP, members=[identity])))

    def cut_off(self) -> None:
        """No answer came: a client joins again rather than ask twice."""
        if self.waits is not None and self.next == "sync":
            self.next = "join"
        super().cut_off()

    def assign(self) -> dict[str, bytes]:
        """As the range assignor; if it is cooperative, what one still owns is not given to another in this round."""
        subscriptions = {each.member_id: decode_subscription(each.metadata) for each in self.members}
        owner_of = {
            (owned.topic, partition): member_id
            for member_id, subscription in subscriptions.items()
            for owned in subscription.owned_partitions
            for partition in owned.partitions
        }
        shares: dict[str, set[Partition]] = {member_id: set() for member_id in subscriptions}
        for topic in TOPICS:
            readers = sorted(each for each, subscription in subscriptions.items() if topic.name in subscription.topics)
            for partition in range(topic.partitions if readers else 0):
                member_id = readers[partition * len(readers) // topic.partitions]
                if not self.is_cooperative or owner_of.get((topic.name, partition), member_id) == member_id:
                    shares[member_id].add((topic.name, partition))
        return {member_id: encode_assignment(as_assignment(share), 1) for member_id, share in shares.items()}

    def hear(self, response: object) -> None:
        match response:
            case JoinGroupResponse(error_code=code):
                self.hear_join(response, ErrorCode(code))
            case SyncGroupResponse(error_code=code):
                self.hear_sync(response, ErrorCode(code))
            case HeartbeatResponse(error_code=code):
                self.hear_code(ErrorCode(code))

    def hear_join(self, response: JoinGroupResponse, code: ErrorCode) -> None:
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code is not ErrorCode.NONE:
            self.hear_code(code)
        else:
            self.member_id = response.member_id
            self.epoch = response.generation_id
            self.is_leader = response.leader == response.member_id and not response.skip_assignment
            self.members = response.members
            self.next = "sync"
            self.say(f"joined {response.generation_id}")

    def hear_sync(self, response: SyncGroupResponse, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            self.hear_code(code)
            return
        assigned = {
            (each.topic, partition)
            for each in decode_assignment(response.assignment).assigned_partitions
            for partition in each.partitions
        }
        gave_up = self.owned - assigned
        self.owned = assigned
        self.next = "join" if self.is_cooperative and gave_up else "heartbeat"
        self.say(f"owns {told(assigned)}")

    def hear_code(self, code: ErrorCode) -> None:
        self.errors.append(code)
        if code is ErrorCode.NONE:
            return
        self.say(code.name)
        self.next = "join"
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return
        self.lose()
        self.epoch = -1
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.die()
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""


class ConsumerClient(Client):
    """Sends ConsumerGroupHeartbeats; gives up what it has to before it takes what is new."""

    def __init__(
        self, table: Table, name: str, *, instance_id: str | None = None, member_id: str | None = None
    ) -> None:
        super().__init__(table, name, instance_id=instance_id)
        self.member_id = f"{name}-id" if member_id is None else member_id
        self.epoch = 0
        self.target: set[Partition] | None = None
        self.must_tell = True

    def act(self) -> None:
        if self.waits is not None:
            return
        if self.target is not None:
            self.reconcile()
        self.heartbeat()

    def reconcile(self) -> None:
        assert self.target is not None
        if self.owned - self.target:
            self.owned &= self.target
        else:
            self.owned = set(self.target)
            self.target = None
        self.must_tell = True

    def heartbeat(self) -> None:
        is_full = self.must_tell or self.epoch == 0 or self.told_topics != self.topics
        self.told_topics = self.topics
        self.table.step(
            ConsumerHeartbeat(
                token=self.ask(),
                request=ConsumerGroupHeartbeatRequest(
                    group_id=GROUP,
                    member_id=self.member_id,
                    member_epoch=self.epoch,
                    instance_id=self.instance_id,
                    rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
                    subscribed_topic_names=list(self.topics) if is_full else None,
                    topic_partitions=[
                        OwnedById(topic_id=IDS[topic], partitions=list(each))
                        for topic, each in by_topic(self.owned).items()
                    ]
                    if is_full
                    else None,
                ),
                api_version=1,
                client_id=self.name,
                client_host="/127.0.0.1",
            )
        )

    def leave(self, *, for_good: bool = True) -> None:
        self.die()
        self.table.step(
            ConsumerHeartbeat(
                token=Asked(self, -1),
                request=ConsumerGroupHeartbeatRequest(
                    group_id=GROUP,
                    member_id=self.member_id,
                    member_epoch=-1 if for_good else -2,
                    instance_id=self.instance_id,
                    rebalance_timeout_ms=-1,
                ),
                api_version=1,
                client_id=self.name,
                client_host="/127.0.0.1",
            )
        )

    def cut_off(self) -> None:
        self.must_tell = True
        super().cut_off()

    def hear(self, response: object) -> None:
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        code = ErrorCode(response.error_code)
        self.errors.append(code)
        if code is not ErrorCode.NONE:
            self.say(f"{code.name} {response.error_message or ''}".strip())
            self.lose()
            self.target = None
            was_member, self.epoch = self.epoch > 0, 0
            if code is ErrorCode.UNRELEASED_INSTANCE_ID or (code is ErrorCode.GROUP_ID_NOT_FOUND and was_member):
                # The common clients give up then: another member has its instance id, or the group is not what it was.
                self.die()
            return
        self.epoch = response.member_epoch
        self.must_tell = False
        if response.assignment is not None:
            self.target = {
                (NAMES[each.topic_id], partition)
                for each in response.assignment.topic_partitions
                for partition in each.partitions
            }
            self.say(f"epoch {self.epoch}, is to own {told(self.target)}")


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def as_assignment(partitions: Iterable[Partition]) -> ConsumerProtocolAssignment:
    return ConsumerProtocolAssignment(
        assigned_partitions=[Assigned(topic=topic, partitions=each) for topic, each in by_topic(partitions).items()]
    )


def told(partitions: Iterable[Partition]) -> str:
    return " ".join(f"{topic}{''.join(map(str, each))}" for topic, each in by_topic(partitions).items()) or "nothing"
