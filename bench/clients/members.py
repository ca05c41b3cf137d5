"""`members` members of one group over `partitions` partitions, of either protocol: when are they stable, and what does
it cost the others when one leaves?

They are no library's: a few lines of asyncio each, so that a hundred of them are nothing beside the broker. The last to
join starts the clock. Stable is the group when all are in one generation or epoch and own every partition once.
"""

from __future__ import annotations

import asyncio
import struct
import time
from typing import Any
from uuid import UUID, uuid4

from bench.asking import ANSWER_BYTES_MAX, Question, answer_in, request_bytes
from bench.clients.turn import finish, task, wait_for_sign
from bench.group_members import assignment_of, find_coordinator, join_request
from strandline.codec.message import Message
from strandline.codec.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from strandline.codec.messages.heartbeat_request import HeartbeatRequest
from strandline.codec.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from strandline.coordinators.groups.classic.consumer_protocol import decode_assignment

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
CONSUMER_HEARTBEAT_VERSION = 1
METADATA_VERSION = 12
SESSION_TIMEOUT_MS = 30_000
MEMBER_ID_REQUIRED = 79
GIVE_UP_S = 60.0
LEAVING = -1


class Group:
    """What all members together own."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.name: str = options["group"]
        self.topic: str = options["topic"]
        self.partitions: int = options["partitions"]
        self.heartbeat_s: float = options["heartbeat_s"]
        self.members: list[Member] = []
        self.taken = 0
        """Partitions that were taken from somebody who stays."""
        self.is_stable = asyncio.Event()

    def look(self) -> None:
        owned = [partition for member in self.members for partition in member.owned]
        generations = {member.generation for member in self.members}
        stable = len(owned) == self.partitions == len(set(owned)) and len(generations) == 1
        # Who has just joined is in the epoch of the others, too, before the next assignment gives it anything.
        if stable and all(member.is_settled and member.owned for member in self.members):
            self.is_stable.set()
        else:
            self.is_stable.clear()


class Member:
    def __init__(self, group: Group) -> None:
        self.group = group
        self.member_id = ""
        self.generation = 0
        self.owned: frozenset[int] = frozenset()
        self.is_settled = False
        self.is_leaving = False

    async def connect(self, host: str, port: int) -> None:
        self.reader, self.writer = await asyncio.open_connection(host, port)

    async def ask(self, message: Message, version: int) -> Any:
        self.writer.write(request_bytes(message, version))
        (size_bytes,) = struct.unpack(">i", await self.reader.readexactly(4))
        if not 0 <= size_bytes <= ANSWER_BYTES_MAX:
            raise SystemExit(f"an answer of {size_bytes} bytes")
        return answer_in(type(message), version, await self.reader.readexactly(size_bytes))

    def own(self, partitions: frozenset[int]) -> None:
        self.group.taken += len(self.owned - partitions)
        self.owned = partitions
        self.group.look()

    async def live(self) -> None:
        raise NotImplementedError

    async def leave(self) -> None:
        raise NotImplementedError


class ClassicMember(Member):
    async def live(self) -> None:
        while not self.is_leaving:
            await self._join()
            while not self.is_leaving:
                await asyncio.sleep(self.group.heartbeat_s)
                heartbeat = HeartbeatRequest(
                    group_id=self.group.name, generation_id=self.generation, member_id=self.member_id
                )
                if self.is_leaving or (await self.ask(heartbeat, HEARTBEAT_VERSION)).error_code:
                    break

    async def _join(self) -> None:
        self.is_settled = False
        self.own(frozenset())
        request = join_request(self.group.name, self.group.topic, self.member_id, session_timeout_ms=SESSION_TIMEOUT_MS)
        answer = await self.ask(request, JOIN_VERSION)
        if answer.error_code:
            self.member_id = answer.member_id if answer.error_code == MEMBER_ID_REQUIRED else self.member_id
            return await self._join()
        self.member_id, self.generation = answer.member_id, answer.generation_id
        members = sorted(each.member_id for each in answer.members)
        shares = [range(number, self.group.partitions, len(members)) for number in range(len(members))]
        sync = SyncGroupRequest(
            group_id=self.group.name,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(name, assignment_of(self.group.topic, share))
                for name, share in zip(members, shares, strict=True)
            ],
        )
        answer = await self.ask(sync, SYNC_VERSION)
        if answer.error_code:
            return await self._join()
        topics = decode_assignment(bytes(answer.assignment)).assigned_partitions
        self.is_settled = True
        self.own(frozenset(index for topic in topics for index in topic.partitions))
        return None

    async def leave(self) -> None:
        identity = MemberIdentity(member_id=self.member_id)
        await self.ask(LeaveGroupRequest(group_id=self.group.name, members=[identity]), LEAVE_VERSION)


class ConsumerMember(Member):
    topic_id: UUID

    async def live(self) -> None:
        self.member_id = str(uuid4())
        says_owned = True
        while not self.is_leaving:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.group.name, member_id=self.member_id, member_epoch=self.generation
            )
            if self.generation == 0:
                request.rebalance_timeout_ms = 60_000
                request.subscribed_topic_names = [self.group.topic]
            if says_owned:
                owned = [TopicPartitions(topic_id=self.topic_id, partitions=sorted(self.owned))] if self.owned else []
                request.topic_partitions = owned
            answer = await self.ask(request, CONSUMER_HEARTBEAT_VERSION)
            if answer.error_code:
                raise SystemExit(f"ConsumerGroupHeartbeat: {answer.error_code} {answer.error_message}")
            self.generation = answer.member_epoch
            says_owned = answer.assignment is not None
            self.is_settled = not says_owned
            if answer.assignment is not None:
                told = frozenset(index for each in answer.assignment.topic_partitions for index in each.partitions)
                says_owned = told != self.owned
                self.is_settled = not says_owned
                self.own(told)
            self.group.look()
            if not says_owned:
                await asyncio.sleep(answer.heartbeat_interval_ms / 1000)

    async def leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group.name, member_id=self.member_id, member_epoch=LEAVING
        )
        await self.ask(request, CONSUMER_HEARTBEAT_VERSION)


async def play(options: dict[str, Any]) -> dict[str, float]:
    host, _, port = options["bootstrap"].partition(":")
    with Question(host, int(port), timeout_s=GIVE_UP_S) as peer:
        find_coordinator(peer, options["group"])
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=options["topic"])])
        ConsumerMember.topic_id = peer.ask(asked, METADATA_VERSION).topics[0].topic_id
    group = Group(options)
    kind = ClassicMember if options["protocol"] == "classic" else ConsumerMember
    group.members = [kind(group) for _ in range(options["members"])]
    for member in group.members:
        await member.connect(host, int(port))
    wait_for_sign()

    lives = []
    for member in group.members:
        lives.append(asyncio.create_task(member.live()))
        await asyncio.sleep(options["stagger_s"])
    joined_at = time.perf_counter()
    await asyncio.wait_for(group.is_stable.wait(), GIVE_UP_S)
    stable_s = time.perf_counter() - joined_at

    leaver, life = group.members.pop(), lives.pop()
    leaver.is_leaving = True
    await life
    group.taken = 0
    left_at = time.perf_counter()
    await leaver.leave()
    group.look()
    await asyncio.wait_for(group.is_stable.wait(), GIVE_UP_S)
    again_s = time.perf_counter() - left_at
    for life in lives:
        life.cancel()
    await asyncio.gather(*lives, return_exceptions=True)
    return {"stable_s": stable_s, "again_s": again_s, "taken": float(group.taken)}


def main() -> None:
    finish(**asyncio.run(play(task())))


if __name__ == "__main__":
    main()
