"""A live group that moves between the protocols, and members of the classic protocol in a consumer group."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.differential.case import Case, case
from tests.differential.cases_consumer_groups import BEAT, COMMIT, DESCRIBE, HEARTBEAT, JOIN, LEAVE, SYNC, Member
from tests.differential.cases_group_admin import OTHER_TOPIC, TOPIC
from tests.differential.talk import PATIENCE_S, Talk

from strandline.codec.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from strandline.codec.messages.consumer_protocol_assignment import TopicPartition as Assigned
from strandline.codec.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from strandline.codec.messages.consumer_protocol_subscription import TopicPartition as Owned
from strandline.coordinators.groups.classic.consumer_protocol import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from strandline.errors import ErrorCode

LEAVE_EPOCH = -1


def cases() -> Iterator[Case]:
    stories: dict[str, tuple[int, Callable[[Talk, str], None]]] = {
        "joins a live classic group": (BEAT, upgrade),
        "joins a classic group without assignment": (BEAT, upgrade_early),
        "joins a classic group with an assignor of its own": (BEAT, upgrade_custom),
        "joins a classic group with odd metadata": (BEAT, upgrade_odd),
        "the last member of the consumer protocol leaves": (HEARTBEAT, downgrade),
        "a classic member of a consumer group": (JOIN, classic_life),
        "bad classic members of a consumer group": (JOIN, bad_members),
        "a static classic member of a consumer group": (JOIN, static),
        "asks a consumer group for its assignment": (SYNC, bad_syncs),
        "leaves a consumer group": (LEAVE, leaves),
        "commits in a mixed group": (COMMIT, commits),
    }
    newest = {BEAT: 1, HEARTBEAT: 4, JOIN: 9, SYNC: 5, LEAVE: 5, COMMIT: 9}
    for number, (what, (api_key, story)) in enumerate(stories.items()):
        group = f"g-migration-{number}"
        yield case(api_key, newest[api_key], what, partial(told, story=story, group=group))


def told(talk: Talk, story: Callable[[Talk, str], None], group: str) -> None:
    story(talk, group)


class Classic:
    """A member of the classic protocol that does as it is told; it leads alone if it is asked to."""

    def __init__(self, talk: Talk, group: str, name: str, *, instance_id: str | None = None) -> None:
        self.talk = talk
        self.group = group
        self.name = name
        self.instance_id = instance_id
        self.id = ""
        self.generation = -1
        self.owned: dict[str, list[int]] = {}
        self.topics = [TOPIC]

    def fields(self, **more: Any) -> dict[str, Any]:
        mine = {"group_id": self.group, "member_id": self.id, "generation_id": self.generation}
        return {**mine, **({} if self.instance_id is None else {"group_instance_id": self.instance_id}), **more}

    def join(self, *, tell: bool = True, **more: Any) -> Any:
        owned = [Owned(topic=topic, partitions=partitions) for topic, partitions in self.owned.items()]
        subscription = ConsumerProtocolSubscription(topics=self.topics, owned_partitions=owned)
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.id,
            "group_instance_id": self.instance_id,
            "session_timeout_ms": 300_000,
            "rebalance_timeout_ms": 300_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "cooperative-sticky", "metadata": encode_subscription(subscription, 1)}],
        }
        answer = self.talk.look(JOIN, 9, client=self.name, **(fields | more))
        if answer.member_id:
            self.talk.words.members[answer.member_id] = self.name
        if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.id = answer.member_id
            self.generation = answer.generation_id
        if tell:
            self.talk.note(self.talk.words.plain(answer))
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return self.join(tell=tell, **more)
        return answer

    def sync(self, *, tell: bool = True, assignment: bytes | None = None, reads: bool = True, **more: Any) -> Any:
        named = {"protocol_type": "consumer", "protocol_name": "cooperative-sticky"}
        share = [] if assignment is None else [{"member_id": self.id, "assignment": assignment}]
        answer = self.talk.look(SYNC, 5, client=self.name, **self.fields(assignments=share, **(named | more)))
        if tell:
            self.talk.note(self.talk.words.plain(answer))
        if not answer.error_code and reads:
            found = decode_assignment(answer.assignment).assigned_partitions
            self.owned = {each.topic: list(each.partitions) for each in found}
        return answer

    def beat(self, *, tell: bool = True, **more: Any) -> ErrorCode:
        answer = self.talk.look(HEARTBEAT, 4, client=self.name, **(self.fields() | more))
        if tell:
            self.talk.note(self.talk.words.plain(answer))
        return ErrorCode(answer.error_code)

    def alone(self, topics: dict[str, list[int]], *, tell: bool = False, user_data: bytes | None = None) -> None:
        """Join a classic group and take what it wants."""
        self.join(tell=tell)
        assigned = [Assigned(topic=topic, partitions=partitions) for topic, partitions in topics.items()]
        said = ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=user_data)
        self.sync(tell=tell, assignment=encode_assignment(said, 1))

    def live(self) -> None:
        """One round: a heartbeat, and what follows if it is told to join again."""
        if self.beat(tell=False) is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join(tell=False)
            self.sync(tell=False)

    def owns(self) -> int:
        return sum(len(partitions) for partitions in self.owned.values())


def settle(talk: Talk, *shares: tuple[Classic | Member, int]) -> None:
    """Until each owns so many. How many rounds that takes is the broker's business."""
    deadline = time.monotonic() + PATIENCE_S
    while any(member.owns() != share for member, share in shares):
        assert time.monotonic() < deadline, [(member.name, member.owned) for member, _ in shares]
        for member, _ in shares:
            if isinstance(member, Classic):
                member.live()
            else:
                member.beat(tell=False, topic_partitions=member.owned)


def describe(talk: Talk, group: str) -> None:
    talk.ask(DESCRIBE, 1, group_ids=[group])


def mixed(talk: Talk, group: str, *, instance_id: str | None = None) -> tuple[Classic, Member]:
    """A consumer group with one member of each kind, and a partition for each."""
    new = Member(talk, 1, group, "new")
    new.join(tell=False)
    old = Classic(talk, group, "old", instance_id=instance_id)
    old.join(tell=False)
    old.sync(tell=False)
    settle(talk, (old, 1), (new, 1))
    return old, new


# ---- there


def upgrade(talk: Talk, group: str) -> None:
    old = Classic(talk, group, "old")
    old.alone({TOPIC: [0, 1]})
    new = Member(talk, 1, group, "new")
    new.join(tell=False)
    old.beat()
    settle(talk, (old, 1), (new, 1))
    describe(talk, group)
    old.beat()
    talk.ask(15, 6, groups=[group])


def upgrade_early(talk: Talk, group: str) -> None:
    """The member of the classic group waits for nothing but has not assigned anything yet."""
    old = Classic(talk, group, "old")
    old.join(tell=False)
    new = Member(talk, 1, group, "new")
    new.join(tell=False)
    old.sync()
    old.beat()
    settle(talk, (old, 1), (new, 1))
    # Which of the two each has got is left to the assignor.
    talk.note({"epochs": [old.generation, new.epoch]})


def upgrade_custom(talk: Talk, group: str) -> None:
    old = Classic(talk, group, "old")
    old.join(tell=False, protocols=[{"name": "mine", "metadata": encode_subscription(subscription(TOPIC), 1)}])
    said = ConsumerProtocolAssignment(user_data=b"plans")
    old.sync(tell=False, assignment=encode_assignment(said, 1), reads=False, protocol_name="mine")
    Member(talk, 1, group, "new").join()
    old.beat()


def upgrade_odd(talk: Talk, group: str) -> None:
    old = Classic(talk, group, "old")
    old.join(tell=False)
    old.sync(tell=False, assignment=b"odd", reads=False)
    Member(talk, 1, group, "new").join()
    old.beat()


def subscription(*topics: str) -> ConsumerProtocolSubscription:
    return ConsumerProtocolSubscription(topics=list(topics))


# ---- and back


def downgrade(talk: Talk, group: str) -> None:
    old, new = mixed(talk, group)
    new.beat(member_epoch=LEAVE_EPOCH)
    old.beat()
    new.beat()
    joined = old.join()
    talk.note({"leads": joined.leader == old.id})
    assigned = ConsumerProtocolAssignment(assigned_partitions=[Assigned(topic=TOPIC, partitions=[0, 1])])
    old.sync(assignment=encode_assignment(assigned, 1))
    old.beat()
    talk.ask(15, 6, groups=[group])
    talk.ask(DESCRIBE, 1, group_ids=[group])


# ---- in between


def classic_life(talk: Talk, group: str) -> None:
    old, new = mixed(talk, group)
    old.beat()
    old.join()
    old.sync()
    old.sync()
    old.topics = [TOPIC, OTHER_TOPIC]
    old.join(tell=False)
    old.sync(tell=False)
    settle(talk, (old, 2), (new, 2))
    describe(talk, group)


def bad_members(talk: Talk, group: str) -> None:
    old, new = mixed(talk, group)
    metadata = encode_subscription(subscription(TOPIC), 1)
    sound = {"name": "cooperative-sticky", "metadata": metadata}
    for more in (
        {"protocol_type": "connect"},
        {"protocol_type": ""},
        {"protocols": []},
        {"protocols": [{"name": "else", "metadata": metadata}]},
        {"session_timeout_ms": 1},
        {"group_instance_id": "nobody", "member_id": "somebody"},
    ):
        stranger = Classic(talk, group, "stranger")
        stranger.join(**{"protocols": [sound], **more})
    for generation in (old.generation - 1, old.generation + 1, -1):
        old.beat(generation_id=generation)
    old.beat(member_id="somebody")
    old.beat(member_id=new.id, generation_id=new.epoch)
    old.beat(group_instance_id="nobody")
    new.beat(member_id=old.id, member_epoch=old.generation + 5)
    describe(talk, group)


def static(talk: Talk, group: str) -> None:
    old, new = mixed(talk, group, instance_id="till")
    again = Classic(talk, group, "again", instance_id="till")
    again.join(tell=False)
    again.sync()
    old.beat()
    old.join()
    old.sync()
    new.beat()
    describe(talk, group)
    third = Member(talk, 1, group, "third", instance_id="till")
    third.join(tell=False)
    settle(talk, (third, 1), (new, 1))
    again.beat()
    describe(talk, group)


def bad_syncs(talk: Talk, group: str) -> None:
    old, new = mixed(talk, group)
    for more in (
        {"protocol_name": "else"},
        {"protocol_type": "connect"},
        {"protocol_name": None, "protocol_type": None},
        {"generation_id": 99},
        {"member_id": "somebody"},
        {"member_id": new.id, "generation_id": new.epoch},
        {"group_instance_id": "nobody"},
    ):
        old.sync(reads=False, **more)


def leaves(talk: Talk, group: str) -> None:
    old, new = mixed(talk, group, instance_id="till")
    talk.ask(LEAVE, 5, group_id=group, members=[])
    members = [
        {"member_id": "somebody"},
        {"member_id": "", "group_instance_id": "nobody"},
        {"member_id": "somebody", "group_instance_id": "till"},
        {"member_id": ""},
    ]
    talk.ask(LEAVE, 5, group_id=group, members=members)
    old.beat()
    talk.ask(LEAVE, 5, group_id=group, members=[{"member_id": "", "group_instance_id": "till"}])
    old.beat()
    settle(talk, (new, 2))
    describe(talk, group)
    talk.ask(LEAVE, 5, group_id=group, members=[{"member_id": new.id}])
    new.beat()


def commits(talk: Talk, group: str) -> None:
    old, new = mixed(talk, group)
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 3}]}]
    for member_id, epoch in ((old.id, old.generation), (new.id, new.epoch)):
        for version in (8, 9):
            for at in (epoch, epoch + 1, -1):
                mine = {"member_id": member_id, "generation_id_or_member_epoch": at}
                talk.ask(COMMIT, version, group_id=group, topics=topics, **mine)
