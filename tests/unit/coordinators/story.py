"""A shard of groups on a table: clients act by name, timers run on a clock of the story, and what happens is told.

The story keeps every record that was appended, so it can restart the shard from them at any point. Members get short
names in the trace (`A#1` is the first member id that client A was given), so that expected traces can be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from strandline.codec.internal_records import decode_coordinator_record
from strandline.codec.messages.group_metadata_key import GroupMetadataKey
from strandline.codec.messages.group_metadata_value import GroupMetadataValue
from strandline.codec.messages.heartbeat_request import HeartbeatRequest
from strandline.codec.messages.heartbeat_response import HeartbeatResponse
from strandline.codec.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.codec.messages.join_group_response import JoinGroupResponse
from strandline.codec.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from strandline.codec.messages.leave_group_response import LeaveGroupResponse
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_commit_response import OffsetCommitResponse
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from strandline.codec.messages.offset_fetch_response import OffsetFetchResponseGroup
from strandline.codec.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from strandline.codec.messages.sync_group_response import SyncGroupResponse
from strandline.coordinators.groups.events import (
    Append,
    AppendTransactional,
    CancelTimer,
    CommitOffsets,
    CommitTransactionalOffsets,
    Event,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Loaded,
    Reply,
    StartTimer,
    SyncGroup,
    TimerFired,
    TransactionEnded,
)
from strandline.coordinators.groups.group_config import GroupConfig
from strandline.coordinators.groups.group_shard import GroupShard
from strandline.coordinators.groups.replay import PendingRecord, Replayed
from strandline.coordinators.groups.shard_terms import CoordinatorRecord, TimerKey
from strandline.errors import ErrorCode
from strandline.ids import ZERO_UUID

SESSION_MS = 10_000
REBALANCE_MS = 60_000


@dataclass(eq=False)
class Client:
    """What one consumer process knows: it believes the last answer it got."""

    name: str
    instance_id: str | None = None
    member_id: str = ""
    generation_id: int = -1
    leader_id: str = ""
    members: list[str] = field(default_factory=list)
    assignment: bytes = b""
    protocol_name: str | None = None
    skip_assignment: bool = False
    errors: list[ErrorCode] = field(default_factory=list)

    @property
    def leads(self) -> bool:
        return self.leader_id == self.member_id


@dataclass(frozen=True)
class Call:
    """The story's token: whose request, and which."""

    client: Client
    number: int


class Story:
    def __init__(self, *, seed: int = 7, group: str = "orders", **config: int) -> None:
        self.config = GroupConfig(**config)
        self.group = group
        self.seed = seed
        self.now_ms = 1_000_000
        self.records: list[Replayed] = []
        self.trace: list[str] = []
        self.clients: dict[str, Client] = {}
        self.short_names: dict[str, str] = {}
        self.last: object = None
        self.timers: dict[TimerKey, int] = {}
        self.unanswered: set[Call] = set()
        self._calls = 0
        self.shard = GroupShard(self.config, Random(seed))
        self.step(Loaded())

    # ---- what clients do

    def client(self, name: str, *, instance_id: str | None = None) -> Client:
        return self.clients.setdefault(name, Client(name, instance_id))

    def call(self, name: str) -> Call:
        self._calls += 1
        call = Call(self.client(name), self._calls)
        self.unanswered.add(call)
        return call

    def join(
        self,
        name: str,
        *,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"topics"),),
        api_version: int = 9,
        member_id: str | None = None,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        protocol_type: str = "consumer",
    ) -> None:
        client = self.client(name)
        call = self.call(name)
        self.step(
            JoinGroup(
                token=call,
                request=JoinGroupRequest(
                    group_id=self.group,
                    session_timeout_ms=session_ms,
                    rebalance_timeout_ms=rebalance_ms,
                    member_id=client.member_id if member_id is None else member_id,
                    group_instance_id=client.instance_id,
                    protocol_type=protocol_type,
                    protocols=[JoinGroupRequestProtocol(name=p, metadata=metadata) for p, metadata in protocols],
                ),
                api_version=api_version,
                client_id=name,
                client_host="/127.0.0.1",
            )
        )

    def enter(self, name: str, **options: object) -> None:
        """Join as a client does: once for the member id, once with it."""
        self.join(name, **options)  # type: ignore[arg-type]
        if self.client(name).errors[-1:] == [ErrorCode.MEMBER_ID_REQUIRED]:
            self.join(name, **options)  # type: ignore[arg-type]

    def sync(
        self,
        name: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation_id: int | None = None,
        protocol_name: str | None = None,
    ) -> None:
        """`assignments` go by the names of clients."""
        client = self.client(name)
        self.step(
            SyncGroup(
                self.call(name),
                SyncGroupRequest(
                    group_id=self.group,
                    generation_id=client.generation_id if generation_id is None else generation_id,
                    member_id=client.member_id,
                    group_instance_id=client.instance_id,
                    protocol_type="consumer",
                    protocol_name=protocol_name or client.protocol_name,
                    assignments=[
                        SyncGroupRequestAssignment(member_id=self.client(who).member_id, assignment=assignment)
                        for who, assignment in (assignments or {}).items()
                    ],
                ),
            )
        )

    def heartbeat(self, name: str, *, generation_id: int | None = None) -> ErrorCode:
        client = self.client(name)
        self.step(
            Heartbeat(
                self.call(name),
                HeartbeatRequest(
                    group_id=self.group,
                    generation_id=client.generation_id if generation_id is None else generation_id,
                    member_id=client.member_id,
                    group_instance_id=client.instance_id,
                ),
            )
        )
        assert isinstance(self.last, HeartbeatResponse)
        return ErrorCode(self.last.error_code)

    def leave(self, *names: str) -> list[ErrorCode]:
        identities = [
            MemberIdentity(member_id=self.client(name).member_id, group_instance_id=self.client(name).instance_id)
            for name in names
        ]
        self.step(LeaveGroup(self.call(names[0]), LeaveGroupRequest(group_id=self.group, members=identities)))
        assert isinstance(self.last, LeaveGroupResponse)
        return [ErrorCode(member.error_code) for member in self.last.members]

    def step_leave_with_no_members(self) -> None:
        self.step(LeaveGroup(self.call("admin"), LeaveGroupRequest(group_id=self.group)))

    def commit(
        self,
        name: str,
        offset: int,
        *,
        topic: str = "t",
        topic_id: UUID = ZERO_UUID,
        partition: int = 0,
        generation_id: int | None = None,
        member_id: str | None = None,
        metadata: str | None = None,
        api_version: int = 9,
        retention_ms: int = -1,
    ) -> ErrorCode:
        client = self.client(name)
        self.step(
            CommitOffsets(
                self.call(name),
                OffsetCommitRequest(
                    group_id=self.group,
                    generation_id_or_member_epoch=client.generation_id if generation_id is None else generation_id,
                    member_id=client.member_id if member_id is None else member_id,
                    group_instance_id=client.instance_id,
                    retention_time_ms=retention_ms,
                    topics=[
                        OffsetCommitRequestTopic(
                            name=topic,
                            topic_id=topic_id,
                            partitions=[
                                OffsetCommitRequestPartition(
                                    partition_index=partition,
                                    committed_offset=offset,
                                    committed_leader_epoch=4,
                                    committed_metadata=metadata,
                                )
                            ],
                        )
                    ],
                ),
                api_version,
            )
        )
        assert isinstance(self.last, OffsetCommitResponse)
        return ErrorCode(self.last.topics[0].partitions[0].error_code)

    def commit_in_transaction(
        self,
        producer_id: int,
        offset: int,
        *,
        name: str | None = None,
        topic: str = "t",
        topic_id: UUID = ZERO_UUID,
        partition: int = 0,
        generation_id: int | None = None,
        member_id: str | None = None,
        metadata: str | None = None,
    ) -> ErrorCode:
        """A producer commits for the client with this name, or for no member."""
        client = Client("nobody") if name is None else self.client(name)
        committed = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=4, committed_metadata=metadata
        )
        self.step(
            CommitTransactionalOffsets(
                self.call(f"producer {producer_id}"),
                OffsetCommitRequest(
                    group_id=self.group,
                    generation_id_or_member_epoch=client.generation_id if generation_id is None else generation_id,
                    member_id=client.member_id if member_id is None else member_id,
                    group_instance_id=client.instance_id,
                    topics=[OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[committed])],
                ),
                producer_id,
                0,
            )
        )
        assert isinstance(self.last, OffsetCommitResponse)
        return ErrorCode(self.last.topics[0].partitions[0].error_code)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The marker comes to the partition."""
        ended = TransactionEnded(producer_id, is_commit)
        self.records.append(ended)
        self.step(ended)

    def committed(self, *, topic: str = "t", topic_id: UUID = ZERO_UUID, partition: int = 0) -> int:
        topics = [OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[partition])]
        return self.fetch(topics).topics[0].partitions[0].committed_offset

    def fetch(
        self, topics: list[OffsetFetchRequestTopics] | None = None, *, require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        request = OffsetFetchRequestGroup(group_id=self.group, topics=topics)
        self.step(FetchOffsets(self.call("reader"), request, require_stable))
        assert isinstance(self.last, OffsetFetchResponseGroup)
        return self.last

    # ---- what the world does

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass; timers fire in their order, each at its own time."""
        end_ms = self.now_ms + duration_ms
        while True:
            due = [(due_ms, key) for key, due_ms in self.timers.items() if due_ms <= end_ms]
            if not due:
                break
            due_ms, key = min(due)
            self.now_ms = max(self.now_ms, due_ms)
            del self.timers[key]
            self.step(TimerFired(key))
        self.now_ms = end_ms

    def restart(self) -> None:
        """The broker stops and starts: what waits is cut off, and the shard is what its records say."""
        self.timers.clear()
        self.unanswered.clear()
        self.trace.append("-- restart --")
        self.shard = GroupShard(self.config, Random(self.seed + 1))
        self.shard.load(self.records)
        self.step(Loaded())

    def step(self, event: Event) -> None:
        self.now_ms += 1
        for effect in self.shard.step(event, self.now_ms):
            match effect:
                case Append(records=records):
                    assert records
                    self.records.extend(records)
                    self.trace.extend(self.tell_record(record) for record in records)
                case AppendTransactional(records=records, producer_id=producer_id):
                    assert records
                    self.records.extend(PendingRecord(*record, producer_id) for record in records)
                    self.trace.extend(f"{self.tell_record(record)}, by {producer_id}" for record in records)
                case StartTimer(key=key, delay_ms=delay_ms):
                    assert delay_ms >= 0
                    self.timers[key] = self.now_ms + delay_ms
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case Reply(token=token, response=response):
                    assert isinstance(token, Call)
                    self.unanswered.remove(token)  # A request is answered once, and only if it was asked.
                    self.last = response
                    self.hear(token.client, response)
        check_invariants(self)

    # ---- what clients hear

    def hear(self, client: Client, response: object) -> None:
        match response:
            case JoinGroupResponse(error_code=code):
                client.errors.append(ErrorCode(code))
                if code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                    client.member_id = response.member_id
                    self.short_names.setdefault(
                        response.member_id,
                        f"{client.name}#{1 + sum(n.startswith(f'{client.name}#') for n in self.short_names.values())}",
                    )
                if code != ErrorCode.NONE:
                    self.tell(client, f"join {ErrorCode(code).name}")
                    return
                client.generation_id = response.generation_id
                client.leader_id = response.leader
                client.protocol_name = response.protocol_name
                client.members = [member.member_id for member in response.members]
                client.skip_assignment = response.skip_assignment
                role = "leads" if client.leads else "follows"
                self.tell(client, f"joined generation {response.generation_id}, {role}, {response.protocol_name}")
            case SyncGroupResponse(error_code=code, assignment=assignment):
                client.errors.append(ErrorCode(code))
                if code == ErrorCode.NONE:
                    client.assignment = assignment
                    self.tell(client, f"assigned {assignment.decode()}")
                else:
                    self.tell(client, f"sync {ErrorCode(code).name}")
            case HeartbeatResponse(error_code=code):
                client.errors.append(ErrorCode(code))
                self.tell(client, f"heartbeat {ErrorCode(code).name}")
            case LeaveGroupResponse(error_code=code, members=members):
                codes = " ".join(ErrorCode(member.error_code).name for member in members)
                self.tell(client, f"left {codes or ErrorCode(code).name}")
            case OffsetCommitResponse(topics=topics):
                codes = " ".join(
                    ErrorCode(partition.error_code).name for topic in topics for partition in topic.partitions
                )
                self.tell(client, f"commit {codes}")

    def tell(self, client: Client, what: str) -> None:
        self.trace.append(f"{self.short_names.get(client.member_id, client.name)}: {what}")

    def tell_record(self, record: CoordinatorRecord) -> str:
        key, value = decode_coordinator_record(record.key, record.value)
        if isinstance(value, GroupMetadataValue):
            members = ", ".join(
                f"{self.short_names.get(m.member_id, m.member_id)}={m.assignment.decode()}" for m in value.members
            )
            return f"log: {key.group} generation {value.generation} [{members}]"  # type: ignore[attr-defined]
        if isinstance(key, GroupMetadataKey):
            return f"log: {key.group} tombstone"
        what = "tombstone" if value is None else value.offset  # type: ignore[attr-defined]
        return f"log: {key.group} {key.topic}-{key.partition} = {what}"  # type: ignore[attr-defined]

    def told(self) -> list[str]:
        """The trace since it was last asked for."""
        trace, self.trace = self.trace, []
        return trace


def check_invariants(story: Story) -> None:
    """What holds between any two events."""
    for group in story.shard.groups.values():
        states = (group.state, len(group.members))
        assert (group.state in ("Empty", "Dead")) <= (not group.members), states
        assert set(group.awaiting_join) <= set(group.members)
        assert set(group.awaiting_sync) <= set(group.members)
        assert set(group.pending_sync) <= set(group.members)
        assert not set(group.pending_join) & set(group.members)
        assert not group.awaiting_join or group.state == "PreparingRebalance"
        assert not group.awaiting_sync or group.state == "CompletingRebalance"
        assert group.leader_id in group.members or not group.members
        assert set(group.static_members.values()) == {
            member.member_id for member in group.members.values() if member.group_instance_id is not None
        }
        # Every wait ends: each waiting client, and each member that could vanish, has a timer.
        if group.state == "PreparingRebalance":
            assert any(key.kind == "join" and key.group_id == group.group_id for key in story.timers), states
        for member_id in [*group.members, *group.pending_join]:
            waits = member_id in group.awaiting_join or member_id in group.awaiting_sync
            assert waits or any(key.member_id == member_id for key in story.timers), member_id
    known = {member_id for group in story.shard.groups.values() for member_id in [*group.members, *group.pending_join]}
    assert {key.member_id for key in story.timers if key.kind == "session"} <= known, "no timer outlives its member"
    waiting = {
        token
        for group in story.shard.groups.values()
        for token in [*group.awaiting_join.values(), *group.awaiting_sync.values()]
    }
    assert waiting == story.unanswered
