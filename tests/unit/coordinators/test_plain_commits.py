"""OffsetCommit by the short way and by the general way: the same answers, the same log, the same state."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.peer import FakeTransport
from tests.unit.coordinators.world import World

from strandline.broker.coordinating.group_driver import GroupDriver
from strandline.broker.coordinating.group_topics import TopicsOfNode
from strandline.broker.network.connection import Connection
from strandline.broker.network.dispatch import Dispatcher
from strandline.broker.network.routes import routes
from strandline.codec.message import Message
from strandline.codec.message_codec import decode, encode
from strandline.codec.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from strandline.codec.messages.feature_level_record import FeatureLevelRecord
from strandline.codec.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_commit_response import OffsetCommitResponse
from strandline.codec.messages.sync_group_request import SyncGroupRequest
from strandline.coordinators.groups.group_shard import GroupShard
from strandline.errors import ErrorCode, NotLeader
from strandline.handlers import k08_offset_commit, k11_join_group, k14_sync_group, k68_consumer_group_heartbeat
from strandline.handlers.support import plain_commits

OFFSET_COMMIT = 8
FLEXIBLE_FROM = 8
ALL_VERSIONS = range(k08_offset_commit.VERSIONS[0], k08_offset_commit.VERSIONS[1] + 1)
SESSION_S = 30.0
STEPS = 250
CONNECTIONS = 4
TOPICS = ["t", "t", "t", "t", "t", "u", "u", "unknown"]


class Node:
    """A world behind a real dispatcher, with or without the short way."""

    def __init__(self, *, has_short_way: bool = True) -> None:
        self.world = world = World()
        world.image.apply(FeatureLevelRecord(name="group.version", feature_level=1))
        world.groups = GroupDriver(world.clock, world.config, world.offsets_topic, TopicsOfNode(lambda: world.image))
        self.topic_ids = {name: world.make_topic(name) for name in ("t", "u")}
        table = routes()
        self.route = table[OFFSET_COMMIT]
        node: Any = world
        self.dispatcher = Dispatcher(
            node,
            table,
            frame_size_max=100_000,
            inbox_bytes_max=1 << 30,
            clock_ns=lambda: round(world.clock.time_s * 1e9),
        )
        self.short = 0
        """Commits that went the short way."""
        self.route.load()
        start = self.route.plain
        assert start is not None
        self.route.plain = self.counted(start) if has_short_way else None
        self.sent: list[Any] = []
        self.connections = [self.connect() for _ in range(CONNECTIONS)]

    def counted(self, start: Callable[..., bool]) -> Callable[..., bool]:
        def start_counted(*arguments: Any) -> bool:
            is_started = start(*arguments)
            self.short += is_started
            return is_started

        return start_counted

    def connect(self) -> Connection:
        transport = FakeTransport()
        transport.sent = self.sent
        connection = Connection(self.dispatcher, transport)
        self.dispatcher.limits.welcome(connection)
        return connection

    def receive(self, data: bytes, number: int = 0) -> None:
        if self.connections[number].closed:
            self.connections[number] = self.connect()
        self.connections[number].receive(memoryview(bytearray(data)))

    def commit(self, request: OffsetCommitRequest, version: int, correlation_id: int = 1) -> None:
        self.receive(frame(request, version, correlation_id))

    def turn(self) -> None:
        self.world.clock.run()

    def shard(self, group_id: str) -> GroupShard:
        shard = self.world.groups.shard_of(group_id)
        assert shard is not None
        return shard

    def code(self, version: int) -> ErrorCode:
        """Of the only answer since it was last asked for."""
        (answer,) = self.sent
        self.sent.clear()
        response, _ = decode(OffsetCommitResponse, version, answer, 9 if version >= FLEXIBLE_FROM else 8)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    # What both ways must agree on

    def state(self) -> list[Any]:
        return [
            (group_id, topic, list(partitions.items()))
            for shard in self.world.groups.loaded_shards()
            for group_id in shard.offsets.group_ids()
            for topic, partitions in shard.offsets.of_group(group_id)
        ]

    def seen(self) -> list[Any]:
        meter = self.route.meter
        assert meter is not None
        return [
            self.sent,
            [connection.closed for connection in self.connections],
            self.state(),
            [partition.batches for partition in self.world.offsets_topic.partitions if partition is not None],
            sorted(timer.due for timer in self.world.clock.waiting),
            (meter.request_bytes, meter.response_bytes, meter.errors, meter.waited, meter.at_once, meter.unanswered),
            self.route.requests,
        ]


def frame(request: Message, version: int, correlation_id: int, *, end: bytes = b"") -> bytes:
    tags = b"\0" if version >= FLEXIBLE_FROM else b""
    content = struct.pack(">hhih", OFFSET_COMMIT, version, correlation_id, 2) + b"me" + tags
    content += encode(request, version) + end
    return struct.pack(">i", len(content)) + content


def one(
    node: Node,
    offset: int,
    *,
    group_id: str = "simple",
    topic: str = "t",
    partition: int = 0,
    leader_epoch: int = -1,
    metadata: str | None = "",
    **more: Any,
) -> OffsetCommitRequest:
    at = OffsetCommitRequestPartition(partition, offset, leader_epoch, metadata)
    topic_id = node.topic_ids.get(topic, node.topic_ids["t"])
    return OffsetCommitRequest(group_id=group_id, topics=[OffsetCommitRequestTopic(topic, topic_id, [at])], **more)


def join_classic(node: Node, group_id: str, instance_id: str | None = None) -> tuple[int, str]:
    """A stable group of one member: its generation and id."""
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=round(SESSION_S * 1000),
        rebalance_timeout_ms=60_000,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    joined = node.world.ask(k11_join_group, request, 5)
    if joined.is_answered and joined.response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = joined.response.member_id
        joined = node.world.ask(k11_join_group, request, 5)
    node.world.clock.run(3.0)
    answer = joined.response
    assert answer.error_code == ErrorCode.NONE
    sync = SyncGroupRequest(group_id=group_id, generation_id=answer.generation_id, member_id=answer.member_id)
    sync.group_instance_id = instance_id
    node.world.ask(k14_sync_group, sync, 3)
    node.turn()
    return answer.generation_id, answer.member_id


def join_consumer(node: Node, group_id: str, member_id: str) -> int:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    asked = node.world.ask(k68_consumer_group_heartbeat, request, 1)
    node.turn()
    epoch: int = asked.response.member_epoch
    return epoch


# ---- one case at a time


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_what_is_committed_again_goes_the_short_way(version: int) -> None:
    node = Node()
    for offset in (5, 6, 7):
        node.commit(one(node, offset, leader_epoch=3), version)
        node.turn()
        assert node.code(version) is ErrorCode.NONE
    assert node.short == 2
    value = node.shard("simple").offsets.get("simple", "t", 0)
    assert value is not None
    assert (value.offset, value.leader_epoch) == (7, 3 if version >= 6 else -1)


def test_a_commit_is_not_answered_before_its_record_is_committed() -> None:
    node = Node()
    node.commit(one(node, 1), 8)
    node.turn()
    node.sent.clear()
    partition = node.world.partition_of("simple")
    partition.commits_at_once = False
    node.commit(one(node, 2), 8)
    node.turn()
    assert (node.short, node.sent) == (1, [])
    partition.commit()
    assert node.code(8) is ErrorCode.NONE


def test_what_an_append_that_failed_would_have_moved_did_not_move() -> None:
    node = Node()
    node.commit(one(node, 1), 8)
    node.turn()
    node.sent.clear()
    partition = node.world.partition_of("simple")
    partition.error = NotLeader("another leads")
    node.commit(one(node, 2), 8)
    node.turn()
    assert node.short == 1
    assert node.code(8) is ErrorCode.NOT_COORDINATOR
    meter = node.route.meter
    assert meter is not None
    assert meter.errors == {ErrorCode.NOT_COORDINATOR: 1}
    partition.error = None
    node.commit(one(node, 3, partition=1), 8)
    node.turn()
    kept = node.shard("simple").offsets.get("simple", "t", 0)
    assert kept is not None
    assert kept.offset == 1


def test_commits_of_one_turn_share_a_batch() -> None:
    node = Node()
    for number in range(3):
        node.commit(one(node, 1, partition=number % 2), 8)
        node.turn()
    partition = node.world.partition_of("simple")
    del partition.batches[:]
    others = [Connection(node.dispatcher, FakeTransport()) for _ in range(4)]
    for number, connection in enumerate(others):
        connection.receive(memoryview(frame(one(node, 2, partition=number % 2), 8, 1)))
    node.turn()
    assert node.short == 1 + 4
    assert partition.record_counts == [4]


def test_a_commit_is_a_sign_of_life() -> None:
    node = Node()
    generation_id, member_id = join_classic(node, "g")
    for offset in range(6):
        node.commit(
            one(node, offset, group_id="g", generation_id_or_member_epoch=generation_id, member_id=member_id), 8
        )
        node.world.clock.run(SESSION_S * 0.9)
    assert node.short == 5
    assert member_id in node.shard("g").groups["g"].members
    node.world.clock.run(SESSION_S * 1.1)
    assert not node.shard("g").groups["g"].members


def test_who_was_let_pass_once_is_fenced_later() -> None:
    node = Node()
    generation_id, member_id = join_classic(node, "g")
    mine = one(node, 1, group_id="g", generation_id_or_member_epoch=generation_id, member_id=member_id)
    for _ in range(2):
        node.commit(mine, 8)
        node.turn()
        assert node.code(8) is ErrorCode.NONE
    node.world.clock.run(SESSION_S * 1.1)
    node.commit(mine, 8)
    node.turn()
    assert node.code(8) is ErrorCode.UNKNOWN_MEMBER_ID
    assert node.short == 1


def test_a_topic_made_again_is_another_topic() -> None:
    node = Node()
    for _ in range(2):
        node.commit(one(node, 9), 8)
        node.turn()
    node.world.remove_topic(node.topic_ids["t"])
    node.sent.clear()
    node.commit(one(node, 10), 8)
    node.turn()
    assert node.code(8) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic_id = node.world.make_topic("t")
    for offset in (11, 12):
        node.commit(one(node, offset), 8)
        node.turn()
        assert node.code(8) is ErrorCode.NONE
        value = node.shard("simple").offsets.get("simple", "t", 0)
        assert value is not None
        assert (value.offset, value.topic_id) == (offset, topic_id)
    assert node.short == 2


def test_what_is_remembered_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_commits, "PLAIN_COMMITS_MAX", 3)
    node = Node()
    for number in range(10):
        node.commit(one(node, 1, group_id=f"group-{number}"), 8)
        node.turn()
        assert len(node.world.groups.plain_commits) <= 3
    long_id = "g" * plain_commits.PLAIN_COMMIT_BYTES_MAX
    for _ in range(2):
        node.commit(one(node, 1, group_id=long_id), 8)
        node.turn()
    assert node.short == 0


def test_bytes_that_only_look_alike_go_the_general_way() -> None:
    """A tagged field at the end can hold what looks like the end of a plain commit."""
    node, general = Node(), Node(has_short_way=False)
    plain = one(node, 1)
    body = encode(plain, 8)
    assert body.endswith(b"\0")
    tagged = b"\1\5\x14" + struct.pack(">qi", 77, 1) + b"\0" * 8
    for both in (node, general):
        both.commit(plain, 8)
        both.turn()
        content = struct.pack(">hhih", OFFSET_COMMIT, 8, 1, 2) + b"me\0" + body[:-1] + tagged
        for _ in range(2):
            both.receive(struct.pack(">i", len(content)) + content)
            both.turn()
    assert node.short == 0
    assert node.seen() == general.seen()


@pytest.mark.parametrize("version", [5, 7, 8, 10])
@pytest.mark.parametrize("end", [b"\2x\0\0", b"\1\0\0\1", b"\1\1\0\0", b"\0\0\0\0", b"\0\0\0\1", b"\0\0\xff\xff"])
def test_what_ends_otherwise_is_read_whole(version: int, end: bytes) -> None:
    node, general = Node(), Node(has_short_way=False)
    for both in (node, general):
        request = one(both, 1)
        both.commit(request, version)
        both.turn()
        both.receive(frame(request, version, 2)[: -len(end)] + end)
        both.turn()
    assert node.seen() == general.seen()


# ---- both ways, side by side


class Walk:
    """The same requests to two nodes, of which one has no short way; some are wrong, some come at a bad time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.short, self.general = self.nodes = Node(), Node(has_short_way=False)
        senders = [(self.join(node)) for node in self.nodes]
        assert senders[0] == senders[1]
        self.senders = senders[0]
        self.correlation_id = 0
        self.known: list[tuple[int, dict[str, Any]]] = []
        """Who committed what in which version, to do so again."""

    @staticmethod
    def join(node: Node) -> list[dict[str, Any]]:
        generation, member = join_classic(node, "classic")
        static_generation, static_member = join_classic(node, "static", "instance")
        epoch = join_consumer(node, "consumer", "someone")

        def sender(group_id: str, epoch: int, member_id: str, instance_id: str | None = None) -> dict[str, Any]:
            return {
                "group_id": group_id,
                "generation_id_or_member_epoch": epoch,
                "member_id": member_id,
                "group_instance_id": instance_id,
            }

        return [
            sender("simple", -1, ""),
            sender("simple", -1, ""),
            sender("classic", generation, member),
            sender("classic", generation, member),
            sender("classic", generation + 1, member),
            sender("classic", -1, ""),
            sender("static", static_generation, static_member, "instance"),
            sender("static", static_generation, static_member, "another"),
            sender("static", static_generation, static_member),
            sender("consumer", epoch, "someone"),
            sender("consumer", epoch, "someone"),
            sender("consumer", epoch - 1, "someone"),
            sender("consumer", epoch, "nobody"),
            sender("new", 3, "nobody"),
        ]

    def step(self) -> None:
        kind = self.random.random()
        if kind < 0.72:
            self.commit()
        elif kind < 0.78:
            self.run(self.random.choice([*[0.5] * 20, SESSION_S]))
        elif kind < 0.84:
            self.commit_late()
        elif kind < 0.88:
            self.fail_append()
        elif kind < 0.92:
            self.recreate()
        elif kind < 0.96:
            self.stop_leading()
        else:
            self.hang_up()
        if self.random.random() < 0.7:
            self.run(0)
        assert self.short.seen() == self.general.seen()

    def commit(self) -> None:
        pick = self.random.choice
        data = b""
        for _ in range(pick([1, 1, 1, 3])):
            self.correlation_id += 1
            if not self.known or self.random.random() < 0.3:
                version = pick([8, 9, 10, *ALL_VERSIONS])
                fields = {**pick(self.senders), "topic": pick(TOPICS), "partition": pick([0, 0, 0, 1, 1, 1, 2, -1])}
                if version < 7:
                    fields["group_instance_id"] = None
                self.known.append((version, fields))
                del self.known[:-10]
            version, fields = pick(self.known)
            request = one(
                self.short,
                pick([-1, 0, 17, 2**63 - 1]),
                leader_epoch=pick([-1, 0, 4]),
                metadata=pick([*[""] * 9, None, "x", "é" * 70, "m" * 5_000]),
                retention_time_ms=pick([-1, -1, 60_000]) if version < 5 else -1,
                **fields,
            )
            if self.random.random() < 0.1:
                request.topics[0].partitions.append(OffsetCommitRequestPartition(1, 3))
            whole = bytearray(frame(request, version, self.correlation_id, end=pick([b"", b"", b"", b"\0\0\0"])))
            if self.random.random() < 0.05:
                whole[self.random.randrange(14, len(whole))] ^= 1 << self.random.randrange(8)
            data += whole
        number = self.random.randrange(CONNECTIONS)
        for node in self.nodes:
            node.receive(data, number)

    def run(self, duration_s: float) -> None:
        for node in self.nodes:
            node.world.clock.run(duration_s)

    def commit_late(self) -> None:
        """For some turns nothing that is appended counts yet."""
        partitions = [each for node in self.nodes for each in node.world.offsets_topic.partitions if each is not None]
        for partition in partitions:
            partition.commits_at_once = False
        for _ in range(4):
            self.commit()
            self.run(0)
            assert self.short.seen() == self.general.seen()
        for partition in partitions:
            partition.commits_at_once = True
            partition.commit()

    def fail_append(self) -> None:
        """Whatever is appended at the end of this turn is lost."""
        index = self.random.randrange(3)
        self.commit()
        for node in self.nodes:
            partition = node.world.offsets_topic.partitions[index]
            assert partition is not None
            partition.error = NotLeader("another leads")
            node.turn()
            partition.error = None

    def recreate(self) -> None:
        for node in self.nodes:
            node.world.remove_topic(node.topic_ids["u"])
            node.world.groups.on_topic_deleted("u", node.topic_ids["u"])
            node.topic_ids["u"] = node.world.make_topic("u")

    def stop_leading(self) -> None:
        index = self.random.randrange(3)
        for node in self.nodes:
            node.world.groups.stop_leading(index)

    def hang_up(self) -> None:
        number = self.random.randrange(CONNECTIONS)
        for node in self.nodes:
            node.connections[number].close()

    def end(self) -> None:
        self.run(0)
        assert self.short.seen() == self.general.seen()
        # What is in memory is what the log says, too: loaded again, the offsets are the same.
        before = self.short.state()
        for node in self.nodes:
            node.world.groups = GroupDriver(node.world.clock, node.world.config, node.world.offsets_topic)
            for index in range(3):
                node.world.groups.load(index)
            node.turn()
        assert sorted(self.short.state(), key=str) == sorted(self.general.state(), key=str)
        loaded = {(group_id, topic) for group_id, topic, _ in self.short.state()}
        assert {(group_id, topic) for group_id, topic, _ in before} <= loaded


@pytest.mark.parametrize("seed", range(5))
def test_both_ways_are_one(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    walk.end()
    assert walk.short.short > STEPS / 20, "the walk is about the short way"
