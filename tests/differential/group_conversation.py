"""A long conversation of several members with the coordinator of their groups, for a broker of any make.

Raw requests, so that what a client library would never send is asked too. Member ids are given short names in the
order in which they appear; what a broker may choose (the order of a list, a throttle time) is left out.
"""

from __future__ import annotations

import json
import socket
import struct
import uuid
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.brokers import Broker
from bench.kafka_jars import KAFKA_VERSION

from strandline.codec.message import Message
from strandline.codec.message_codec import decode_exact, encode
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.heartbeat_request import HeartbeatRequest
from strandline.codec.messages.index import INDEX
from strandline.codec.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.codec.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from strandline.codec.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment

SETTINGS = {
    "group.initial.rebalance.delay.ms": "1500",
    "group.min.session.timeout.ms": "6000",
    "offsets.topic.num.partitions": "3",
    "auto.create.topics.enable": "false",
}


Transcript = list[tuple[str, Any]]
"""What was asked, and the answer without what a broker may choose."""


RECORDED = Path(__file__).parent / "recorded" / "conversations" / "groups.json"


def recorded() -> Transcript:
    """The conversation with Apache Kafka."""
    content = json.loads(RECORDED.read_text())
    assert content["kafka"] == KAFKA_VERSION, f"recorded with Kafka {content['kafka']}"
    return [(label, answer) for label, answer in content["transcript"]]


def record(transcript: Transcript) -> None:
    lines = ",\n".join("  " + json.dumps(line, sort_keys=True) for line in transcript)
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(f'{{"kafka": "{KAFKA_VERSION}", "transcript": [\n{lines}\n]}}\n')


def response_class(request: Message) -> type[Message]:
    module, name = INDEX["response"][request.API_KEY]
    cls: type[Message] = getattr(import_module(f"strandline.codec.messages.{module}"), name)
    return cls


class Connection:
    def __init__(self, port: int, client_id: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.client_id = client_id.encode()
        self.sent: list[tuple[type[Message], int]] = []

    def send(self, request: Message, version: int) -> None:
        flexible = version >= request.FLEXIBLE_FROM
        head = struct.pack(">hhih", request.API_KEY, version, len(self.sent), len(self.client_id)) + self.client_id
        body = head + (b"\0" if flexible else b"") + encode(request, version)
        self.sent.append((response_class(request), version))
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def receive(self) -> Any:
        cls, version = self.sent.pop(0)
        (size,) = struct.unpack(">i", self._read(4))
        frame = self._read(size)
        return decode_exact(cls, version, frame[5 if version >= cls.FLEXIBLE_FROM else 4 :])

    def _read(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            more = self.socket.recv(size - len(got))
            assert more, "the broker closed the connection"
            got += more
        return got


class Conversation:
    """Talks as several clients and writes down what each of them was told."""

    def __init__(self, broker: Broker, group: str) -> None:
        self.broker = broker
        self.group = group
        self.connections: dict[str, Connection] = {}
        self.short_names: dict[str, str] = {}
        self.transcript: Transcript = []

    def send(self, client: str, request: Message, version: int) -> None:
        if client not in self.connections:
            self.connections[client] = Connection(self.broker.port, client)
        self.connections[client].send(request, version)

    def receive(self, client: str, label: str) -> Any:
        response = self.connections[client].receive()
        self.transcript.append((label, self.plain(response)))
        return response

    def ask(self, client: str, label: str, request: Message, version: int) -> Any:
        self.send(client, request, version)
        return self.receive(client, label)

    def close(self) -> None:
        for connection in self.connections.values():
            connection.socket.close()

    def plain(self, value: Any) -> Any:
        match value:
            case Message():
                if (member_id := getattr(value, "member_id", "")) and member_id.count("-") >= 5:
                    self.short_names.setdefault(member_id, f"member {len(self.short_names) + 1}")
                names = [field.name for field in value.FIELDS if field.name != "throttle_time_ms"]
                return {name: self.plain(getattr(value, name)) for name in names}
            case list():
                return sorted((self.plain(item) for item in value), key=str)
            case str():
                return self.short_names.get(value, value)
            case uuid.UUID():
                return "zero" if value.int == 0 else "an id"
            case bytes():
                return value.decode("latin-1")
        return value

    # ---- requests

    def join(self, member_id: str = "", **more: Any) -> JoinGroupRequest:
        protocols = [JoinGroupRequestProtocol(name=name) for name in more.pop("protocols", ("range",))]
        fields = {
            "group_id": self.group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        return JoinGroupRequest(**{**fields, **more})

    def sync(self, joined: Any, assignments: dict[str, bytes] | None = None, **more: Any) -> SyncGroupRequest:
        fields = {
            "group_id": self.group,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        }
        return SyncGroupRequest(**{**fields, **more})

    def heartbeat(self, joined: Any, **more: Any) -> HeartbeatRequest:
        fields = {"group_id": self.group, "generation_id": joined.generation_id, "member_id": joined.member_id}
        return HeartbeatRequest(**{**fields, **more})

    def leave(self, *members: MemberIdentity) -> LeaveGroupRequest:
        return LeaveGroupRequest(group_id=self.group, members=list(members))

    def commit(self, joined: Any = None, offset: int = 7, **more: Any) -> OffsetCommitRequest:
        partition = OffsetCommitRequestPartition(
            partition_index=more.pop("partition", 0),
            committed_offset=offset,
            committed_metadata=more.pop("metadata", None),
            committed_leader_epoch=more.pop("epoch", -1),
        )
        name, topic_id = more.pop("topic", "t"), more.pop("topic_id", uuid.UUID(int=0))
        fields: dict[str, Any] = {
            "group_id": self.group,
            "topics": [OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=[partition])],
        }
        if joined is not None:
            fields |= {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
        return OffsetCommitRequest(**{**fields, **more})

    def fetch(self, *partitions: int, topic: str = "t") -> OffsetFetchRequest:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))] if partitions else None
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group, topics=topics)])


def talk(broker: Broker) -> Transcript:
    """The whole conversation. It leaves the group "tills" stable."""
    prepare(broker)
    absent = Conversation(broker, "absent")
    nobody_there(absent)
    members = Conversation(broker, "orders")
    a, b = two_members(members)
    wrong_words(members, a)
    offsets(members, a)
    rebalancing(members, a, b)
    static = Conversation(broker, "tills")
    static_members(static)
    old = Conversation(broker, "old")
    old_versions(old)
    conversations = (absent, members, static, old)
    for conversation in conversations:
        conversation.close()
    return [line for conversation in conversations for line in conversation.transcript]


class Nobody:
    generation_id = 3
    member_id = "nobody"


def nobody_there(c: Conversation) -> None:
    c.ask("x", "sync, no group", c.sync(Nobody), 5)
    c.ask("x", "sync without a group id", c.sync(Nobody, group_id=""), 5)
    c.ask("x", "sync without a protocol, version 5", c.sync(Nobody, protocol_name=None), 5)
    c.ask("x", "heartbeat, no group", c.heartbeat(Nobody), 4)
    c.ask("x", "heartbeat without a group id", c.heartbeat(Nobody, group_id=""), 4)
    c.ask("x", "leave, no group", c.leave(MemberIdentity(member_id="nobody")), 5)
    c.ask("x", "leave without a group id", LeaveGroupRequest(members=[MemberIdentity(member_id="nobody")]), 5)
    c.ask("x", "commit, no group, version 8", c.commit(Nobody), 8)
    c.ask("x", "commit, no group, version 9", c.commit(Nobody), 9)
    c.ask("x", "fetch, no group", c.fetch(0, 1), 9)
    c.ask("x", "fetch all, no group", c.fetch(), 9)
    # Last, because Apache Kafka has the group from here on, refused or not.
    c.ask("x", "join with an id, no group", c.join("nobody"), 9)
    c.ask("x", "join without protocols, no group", c.join(protocols=()), 9)
    c.ask("x", "join without a protocol type, no group", c.join(protocol_type=""), 9)
    c.ask("x", "join without a group id", c.join(group_id=""), 9)
    c.ask("x", "session too short", c.join(session_timeout_ms=5_999), 9)
    c.ask("x", "session too long", c.join(session_timeout_ms=1_800_001), 9)
    c.ask("x", "bad session and no group id", c.join(session_timeout_ms=1, group_id=""), 9)


def two_members(c: Conversation) -> tuple[Any, Any]:
    """A and B, in one generation, A leads."""
    a = c.ask("a", "a must come back with an id", c.join(), 9)
    c.send("a", c.join(a.member_id), 9)
    b = c.ask("b", "b must come back with an id", c.join(), 9)
    c.send("b", c.join(b.member_id), 9)
    a = c.receive("a", "a joined")
    b = c.receive("b", "b joined")
    c.send("b", c.sync(b), 5)
    c.ask("a", "a assigned", c.sync(a, {a.member_id: b"p0", b.member_id: b"p1"}), 5)
    c.receive("b", "b assigned")
    return a, b


def wrong_words(c: Conversation, a: Any) -> None:
    c.ask("x", "join with other protocols", c.join(protocols=("x",)), 9)
    c.ask("x", "join with another type", c.join(protocol_type="connect"), 9)
    c.ask("x", "join as nobody", c.join("nobody"), 9)
    c.ask("x", "join as an unknown instance with an id", c.join(a.member_id, group_instance_id="i"), 9)
    c.ask("x", "sync as nobody", c.sync(Nobody), 5)
    c.ask("x", "sync in an old generation", c.sync(a, generation_id=0), 5)
    c.ask("x", "sync with another protocol", c.sync(a, protocol_name="x"), 5)
    c.ask("x", "sync with another type", c.sync(a, protocol_type="x"), 5)
    c.ask("x", "sync of an old generation with another protocol", c.sync(a, generation_id=9, protocol_name="x"), 5)
    c.ask("a", "sync again", c.sync(a), 5)
    c.ask("x", "heartbeat as nobody", c.heartbeat(Nobody), 4)
    c.ask("x", "heartbeat in an old generation", c.heartbeat(a, generation_id=0), 4)
    c.ask("x", "heartbeat of an unknown instance", c.heartbeat(a, group_instance_id="i"), 4)
    c.ask("a", "heartbeat", c.heartbeat(a), 4)
    c.ask("x", "leave as nobody", c.leave(MemberIdentity(member_id="nobody")), 5)
    c.ask("x", "leave without any id", c.leave(MemberIdentity()), 5)
    c.ask("x", "leave of an unknown instance", c.leave(MemberIdentity(group_instance_id="i")), 5)
    c.ask("x", "leave of nobody at all", c.leave(), 5)


def offsets(c: Conversation, a: Any) -> None:
    for version in range(2, 10):
        c.ask("a", f"commit, version {version}", c.commit(a, 10 + version), version)
    c.ask("a", "commit with metadata and epoch", c.commit(a, 50, partition=1, metadata="here", epoch=0), 9)
    c.ask("a", "commit of a retention time", c.commit(a, 51, retention_time_ms=3_600_000), 4)
    c.ask("x", "commit as nobody", c.commit(Nobody), 9)
    c.ask("x", "commit in an old generation", c.commit(a, generation_id_or_member_epoch=0), 9)
    c.ask("x", "commit of a member without a generation", c.commit(a, generation_id_or_member_epoch=-1), 9)
    c.ask("x", "commit of nobody in a group with members", c.commit(), 9)
    c.ask("x", "commit of an unknown instance", c.commit(a, group_instance_id="i"), 9)
    c.ask("a", "commit to an unknown topic", c.commit(a, topic="nowhere"), 9)
    c.ask("a", "commit to an unknown partition", c.commit(a, partition=9), 9)
    c.ask("a", "commit to a negative partition", c.commit(a, partition=-1), 9)
    c.ask("x", "unknown topic before unknown member", c.commit(Nobody, topic="nowhere"), 9)
    c.ask("a", "commit with too much metadata", c.commit(a, metadata="m" * 4_097), 9)
    c.ask("a", "commit with metadata of two-unit characters", c.commit(a, metadata="🌊" * 2_049), 9)
    c.ask("a", "commit of a negative offset", c.commit(a, -5, partition=1), 9)
    c.ask("a", "commit of nothing", OffsetCommitRequest(group_id=c.group), 9)
    topic_id = c.ask("x", "topic", MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12).topics[0].topic_id
    c.transcript.pop()  # Hosts and ports differ.
    c.ask("a", "commit by topic id", c.commit(a, 60, topic_id=topic_id), 10)
    c.ask("a", "commit by an unknown topic id", c.commit(a, topic_id=uuid.UUID(int=5)), 10)
    for version in range(1, 8):
        named = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1, 9])]
        c.ask("x", f"fetch, version {version}", OffsetFetchRequest(group_id=c.group, topics=named), version)
        if version >= 2:
            c.ask("x", f"fetch all, version {version}", OffsetFetchRequest(group_id=c.group, topics=None), version)
    for version in (8, 9):
        c.ask("x", f"fetch, version {version}", c.fetch(0, 1), version)
        c.ask("x", f"fetch all, version {version}", c.fetch(), version)
        c.ask("x", f"fetch of an unknown topic, version {version}", c.fetch(0, topic="nowhere"), version)
    by_id = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (topic_id, uuid.UUID(int=5))]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=by_id) for name in (c.group, "no")]
    c.ask("x", "fetch by topic ids", OffsetFetchRequest(groups=groups, require_stable=True), 10)
    c.ask("x", "fetch all by topic id", c.fetch(), 10)


def rebalancing(c: Conversation, a: Any, b: Any) -> None:
    c.ask("b", "b joins again unchanged", c.join(b.member_id), 9)
    c.send("a", c.join(a.member_id), 9)
    # The heartbeat is asked until the rebalance has begun: the two connections are served in any order.
    while c.ask("b", "b hears of it", c.heartbeat(b), 4).error_code == 0:
        c.transcript.pop()
    c.ask("b", "sync while others join", c.sync(b), 5)
    c.ask("b", "commit while others join", c.commit(b, 80), 9)
    c.send("b", c.join(b.member_id, protocols=("range", "other")), 9)
    a = c.receive("a", "a in generation 2")
    b = c.receive("b", "b in generation 2")
    c.ask("b", "heartbeat before the assignment", c.heartbeat(b), 4)
    c.ask("b", "commit before the assignment", c.commit(b, 81), 9)
    c.ask("b", "b missed the answer", c.join(b.member_id, protocols=("range", "other")), 9)
    c.ask("a", "assigns to a stranger only", c.sync(a, {"stranger": b"p9"}), 5)
    c.ask("b", "b gets nothing", c.sync(b), 5)
    n = c.ask("n", "a newcomer", c.join(), 9)
    c.ask("n", "a newcomer cannot be static", c.join(n.member_id, group_instance_id="i"), 9)
    c.ask("n", "the newcomer goes", c.leave(MemberIdentity(member_id=b.member_id), MemberIdentity(member_id="q")), 5)
    c.send("a", c.join(a.member_id), 9)
    c.send("n", c.join(n.member_id), 9)
    a = c.receive("a", "a in generation 3")
    c.receive("n", "n in generation 3")
    c.ask("b", "b is gone", c.heartbeat(b), 4)
    c.ask("x", "all leave", c.leave(MemberIdentity(member_id=a.member_id), MemberIdentity(member_id=n.member_id)), 5)
    c.ask("a", "heartbeat in an empty group", c.heartbeat(a), 4)
    c.ask("a", "sync in an empty group", c.sync(a), 5)
    c.ask("a", "join an empty group with an old id", c.join(a.member_id), 9)
    c.ask("a", "commit to an empty group with a generation", c.commit(a), 9)
    c.ask("x", "commit to an empty group by nobody", c.commit(None, 90), 9)
    c.ask("x", "fetch at the end", c.fetch(0, 1), 9)


def static_members(c: Conversation) -> None:
    s: dict[str, Any] = {"group_instance_id": "till-1"}
    c.send("s", c.join(**s), 9)
    first = c.receive("s", "s joined")
    c.ask("s", "s assigned", c.sync(first, {first.member_id: b"p0"}, **s), 5)
    c.ask("s", "s commits", c.commit(first, 4, **s), 9)
    again = c.ask("s2", "s returns", c.join(**s), 9)
    c.ask("s2", "s has its assignment", c.sync(again, **s), 5)
    c.ask("s", "the old process: heartbeat", c.heartbeat(first, **s), 4)
    c.ask("s", "the old process: sync", c.sync(first, **s), 5)
    c.ask("s", "the old process: commit", c.commit(first, 9, **s), 9)
    c.ask("s", "the old process: join", c.join(first.member_id, **s), 9)
    c.ask("s", "the old process: leave", c.leave(MemberIdentity(member_id=first.member_id, **s)), 5)
    older = c.ask("s3", "s returns, version 8", c.join(**s), 8)
    c.ask("s3", "s has its assignment", c.sync(older, **s), 5)
    c.send("s3", c.join(older.member_id, protocols=("sticky", "range"), **s), 9)
    changed = c.receive("s3", "s changes its protocols")
    c.send("s4", c.join(protocols=("sticky", "range"), **s), 9)
    last = c.receive("s4", "s returns before the assignment")
    c.ask("s3", "the old process is fenced", c.heartbeat(changed, **s), 4)
    c.ask("s4", "s assigned", c.sync(last, {last.member_id: b"p1"}, protocol_name="sticky", **s), 5)
    c.ask("x", "leave of an unknown instance", c.leave(MemberIdentity(group_instance_id="till-9")), 5)


def old_versions(c: Conversation) -> None:
    """Version 0 of everything: no member id first, no rebalance timeout, no instance ids."""
    for version in range(4):
        rebalance: dict[str, Any] = {} if version else {"rebalance_timeout_ms": -1}
        c.send("o", c.join(**rebalance), version)
        o = c.receive("o", f"joined, version {version}")
        plain: dict[str, Any] = {"protocol_type": None, "protocol_name": None}
        c.ask("o", f"assigned, version {version}", c.sync(o, {o.member_id: b"all"}, **plain), min(version, 3))
        c.ask("o", f"heartbeat, version {version}", c.heartbeat(o), min(version, 3))
        if version < 3:
            nobody = LeaveGroupRequest(group_id=c.group, member_id="nobody")
            c.ask("o", f"leave as nobody, version {version}", nobody, version)
            leave = LeaveGroupRequest(group_id=c.group, member_id=o.member_id)
        else:
            leave = c.leave(MemberIdentity(member_id=o.member_id))
        c.ask("o", f"left, version {version}", leave, version)


def prepare(broker: Broker) -> None:
    broker.create_topic("t", 2)
    connection = Connection(broker.port, "setup")
    for key in ("absent", "orders", "tills", "old", "no"):
        while True:
            # Apache Kafka creates the topic behind our back and says so; each question is one turn of its work.
            connection.send(FindCoordinatorRequest(key=key), 2)
            if connection.receive().error_code == 0:
                break
    while True:
        connection.send(OffsetFetchRequest(group_id="orders", topics=None), 7)
        if connection.receive().error_code == 0:
            break
    connection.socket.close()
