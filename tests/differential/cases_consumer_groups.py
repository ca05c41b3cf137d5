"""Groups of the consumer protocol, each version: ConsumerGroupHeartbeat, ConsumerGroupDescribe, and what the other APIs
of groups say to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID

from tests.differential.case import Case, carries, case
from tests.differential.cases_group_admin import OTHER_TOPIC, TOPIC, of, stable
from tests.differential.talk import PATIENCE_S, Talk
from tests.differential.words import Id, versions_of

COMMIT, FETCH, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 11, 12, 13, 14
DESCRIBE_CLASSIC, LIST, DELETE, OFFSET_DELETE, BEAT, DESCRIBE = 15, 16, 42, 47, 68, 69
ME = "me"
JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2


def cases() -> Iterator[Case]:
    yield from bad_heartbeats()
    yield from lives()
    yield from descriptions()
    yield from other_apis()


def joining(group: str, **more: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "group_id": group,
        "member_id": ME,
        "member_epoch": JOIN_EPOCH,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
    }
    return usual | more


def bad_heartbeats() -> Iterator[Case]:
    bare = {"group_id": "g-beat-none", "member_id": ME}
    questions: dict[str, dict[str, Any]] = {
        "no group id": joining(""),
        "a blank group id": joining("  "),
        "an unknown group": {**bare, "member_epoch": 5},
        "leaves an unknown group": {**bare, "member_epoch": LEAVE_EPOCH},
        "leaves an unknown group for a while": {
            **bare, "member_epoch": STATIC_LEAVE_EPOCH, "instance_id": "till",
        },
        "leaves for a while without instance": {**bare, "member_epoch": STATIC_LEAVE_EPOCH},
        "epoch -3": {**bare, "member_epoch": -3},
        "no member id": {**bare, "member_id": "", "member_epoch": 5},
        "joins without rebalance timeout": joining("g-beat-none", rebalance_timeout_ms=-1),
        "joins with rebalance timeout 0": joining("g-beat-none", rebalance_timeout_ms=0),
        "joins with rebalance timeout -2": joining("g-beat-none", rebalance_timeout_ms=-2),
        "joins without subscription": joining("g-beat-none", subscribed_topic_names=None),
        "joins without partitions": joining("g-beat-none", topic_partitions=None),
        "joins with partitions": joining(
            "g-beat-none", topic_partitions=[{"topic_id": Id(TOPIC), "partitions": [0]}]
        ),
        "joins with the empty instance": joining("g-beat-none", instance_id=""),
        "joins with the empty rack": joining("g-beat-none", rack_id=""),
        "joins with an unknown assignor": joining("g-beat-none", server_assignor="nonsense"),
        "joins with the empty assignor": joining("g-beat-none", server_assignor=""),
        "joins with a bad pattern": joining("g-beat-none", subscribed_topic_names=None, subscribed_topic_regex="a("),
        "joins with a look-ahead": joining("g-beat-none", subscribed_topic_names=None, subscribed_topic_regex="(?=a)"),
    }  # fmt: skip
    for version in versions_of(BEAT):
        for number, (what, fields) in enumerate(questions.items()):
            if fields["group_id"] == "g-beat-none":
                fields = {**fields, "group_id": f"g-beat-{version}-{number}"}
            if carries(BEAT, version, fields):
                yield case(BEAT, version, what, partial(asked, version=version, fields=fields))
        for what, fields in {
            "joins a group of the classic protocol": joining("g-beat-classic"),
            "a heartbeat to a classic group": {**bare, "group_id": "g-beat-classic", "member_epoch": 5},
        }.items():
            yield case(BEAT, version, what, partial(to_connectors, version=version, fields=fields))


def asked(talk: Talk, version: int, fields: dict[str, Any]) -> None:
    talk.ask(BEAT, version, **fields)


def to_connectors(talk: Talk, version: int, fields: dict[str, Any]) -> None:
    """Members that are no consumers cannot be taken over."""
    if not any(group.group_id == "g-beat-classic" for group in talk.look(LIST, 4).groups):
        stable(talk, "g-beat-classic", protocol_type="connect", metadata=b"whatever")
    talk.ask(BEAT, version, **fields)


# ---- lives


class Member:
    """One member that does as it is told, and remembers its epoch."""

    def __init__(self, talk: Talk, version: int, group: str, name: str = ME, **more: Any) -> None:
        self.talk = talk
        self.version = version
        self.group = group
        self.id = name if version else ""
        self.name = name
        self.epoch = JOIN_EPOCH
        self.owned: list[dict[str, Any]] = []
        self.more = more

    def join(self, *, tell: bool = True) -> Any:
        fields = joining(self.group, member_id=self.id, **self.more)
        answer = self.talk.look(BEAT, self.version, client=self.name, **fields)
        # A member id that the coordinator made up is not the same twice.
        if answer.member_id:
            self.id = answer.member_id
            self.talk.words.members[self.id] = self.name
        return self.hear(answer, tell=tell)

    def beat(self, *, tell: bool = True, **fields: Any) -> Any:
        usual = {"group_id": self.group, "member_id": self.id, "member_epoch": self.epoch}
        return self.hear(self.talk.look(BEAT, self.version, client=self.name, **(usual | fields)), tell=tell)

    def hear(self, answer: Any, *, tell: bool) -> Any:
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                topics = answer.assignment.topic_partitions
                self.owned = [{"topic_id": each.topic_id, "partitions": each.partitions} for each in topics]
        if tell:
            self.talk.note(self.talk.words.plain(answer))
        return answer

    def owns(self) -> int:
        return sum(len(topic["partitions"]) for topic in self.owned)

    def rest(self) -> None:
        """Go on until the group is at rest."""
        deadline = time.monotonic() + PATIENCE_S
        while self.talk.look(DESCRIBE, 1, group_ids=[self.group]).groups[0].group_state != "Stable":
            assert time.monotonic() < deadline, f"{self.group} is not stable"
            self.beat(tell=False, topic_partitions=self.owned)

    def settle(self, partitions: int, *others: Member) -> None:
        """Go on until it owns so many; when a change is acted on is up to the broker."""
        deadline = time.monotonic() + PATIENCE_S
        while self.owns() != partitions:
            assert time.monotonic() < deadline, f"{self.name} owns {self.owned}"
            for each in (self, *others):
                each.beat(tell=False, topic_partitions=each.owned)


def lives() -> Iterator[Case]:
    stories: dict[str, Callable[[Talk, int, str], None]] = {
        "a member's life": life,
        "epochs that are not its own": fenced,
        "a static member": static,
        "two members": two,
        "a subscription that changes": changes,
        "a pattern": pattern,
        "the range assignor": assignor,
        "positions of a member": positions,
        "topics that do not exist": nothing,
    }
    for version in versions_of(BEAT):
        for number, (what, story) in enumerate(stories.items()):
            group = f"g-life-848-{version}-{number}"
            yield case(BEAT, version, what, partial(told, story=story, version=version, group=group))


def told(talk: Talk, story: Callable[[Talk, int, str], None], version: int, group: str) -> None:
    story(talk, version, group)


def describe(talk: Talk, group: str) -> None:
    talk.ask(DESCRIBE, 1, group_ids=[group])


def life(talk: Talk, version: int, group: str) -> None:
    member = Member(talk, version, group)
    member.join()
    describe(talk, group)
    member.beat()
    member.beat(topic_partitions=member.owned)
    describe(talk, group)
    # The first answer was lost, perhaps.
    member.epoch = JOIN_EPOCH
    member.join()
    member.beat(member_epoch=LEAVE_EPOCH)
    describe(talk, group)
    member.beat(member_epoch=3)
    member.beat(member_epoch=LEAVE_EPOCH)


def fenced(talk: Talk, version: int, group: str) -> None:
    member = Member(talk, version, group)
    member.join()
    for epoch in (member.epoch + 1, member.epoch + 7):
        member.beat(member_epoch=epoch)
    member.beat(member_id="somebody")
    member.beat(server_assignor="nonsense")
    member.beat(topic_partitions=[{"topic_id": UUID(int=9), "partitions": [0]}])
    member.beat(subscribed_topic_names=[])
    member.beat(rebalance_timeout_ms=0)
    member.beat(instance_id="till")
    member.rest()
    describe(talk, group)


def static(talk: Talk, version: int, group: str) -> None:
    member = Member(talk, version, group, instance_id="till")
    member.join()
    again = Member(talk, version, group, "again", instance_id="till")
    again.join()
    member.beat(member_epoch=STATIC_LEAVE_EPOCH, instance_id="till")
    describe(talk, group)
    again.join()
    describe(talk, group)
    member.beat(member_epoch=1, instance_id="till")
    member.beat(member_epoch=LEAVE_EPOCH, instance_id="till")
    again.beat(member_epoch=LEAVE_EPOCH, instance_id="till")
    describe(talk, group)


def two(talk: Talk, version: int, group: str) -> None:
    first, second = Member(talk, version, group), Member(talk, version, group, "other")
    first.join()
    second.join(tell=False)
    second.settle(1, first)
    first.settle(1, second)
    describe(talk, group)
    second.beat(member_epoch=LEAVE_EPOCH)
    first.settle(2)
    describe(talk, group)


def changes(talk: Talk, version: int, group: str) -> None:
    member = Member(talk, version, group)
    member.join()
    member.beat(tell=False, subscribed_topic_names=[TOPIC, OTHER_TOPIC])
    member.settle(4)
    member.rest()
    describe(talk, group)
    member.beat(tell=False, subscribed_topic_names=[OTHER_TOPIC])
    member.rest()
    describe(talk, group)


def pattern(talk: Talk, version: int, group: str) -> None:
    if not version:
        return
    member = Member(talk, version, group, subscribed_topic_names=None, subscribed_topic_regex="group.*")
    member.join(tell=False)
    member.settle(2)
    describe(talk, group)


def assignor(talk: Talk, version: int, group: str) -> None:
    Member(talk, version, group, server_assignor="range").join()
    describe(talk, group)


def nothing(talk: Talk, version: int, group: str) -> None:
    member = Member(talk, version, group, subscribed_topic_names=["nowhere"])
    member.join()
    describe(talk, group)


def positions(talk: Talk, version: int, group: str) -> None:
    member = Member(talk, version, group)
    member.join()
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 3}]}]
    wanted = [{"name": TOPIC, "partition_indexes": [0]}]
    me = {"group_id": group, "member_id": member.id}
    for commit_version in (8, 9):
        for epoch in (member.epoch, member.epoch - 1, member.epoch + 1, -1):
            talk.ask(COMMIT, commit_version, topics=topics, generation_id_or_member_epoch=epoch, **me)
        talk.ask(COMMIT, commit_version, topics=topics, group_id=group)
        stranger = {"member_id": "somebody", "generation_id_or_member_epoch": member.epoch}
        talk.ask(COMMIT, commit_version, topics=topics, group_id=group, **stranger)
    for epoch in (member.epoch, member.epoch - 1, member.epoch + 1, -1):
        talk.ask(
            FETCH, 9, groups=[{"group_id": group, "topics": wanted, "member_id": member.id, "member_epoch": epoch}]
        )
    talk.ask(FETCH, 9, groups=[{"group_id": group, "topics": wanted}])
    talk.ask(FETCH, 9, groups=[{"group_id": group, "topics": wanted, "member_id": "somebody", "member_epoch": 1}])
    member.beat(member_epoch=LEAVE_EPOCH)
    talk.ask(COMMIT, 9, topics=topics, group_id=group)
    talk.ask(COMMIT, 9, topics=topics, generation_id_or_member_epoch=1, **me)


# ---- the other APIs


def descriptions() -> Iterator[Case]:
    for version in versions_of(DESCRIBE):
        for what, groups in {
            "no group": [],
            "the empty id": [""],
            "an unknown group": ["g-none-1"],
            "two strangers": ["g-none-1", "g-none-2"],
            "a stranger twice": ["g-none-1", "g-none-1"],
        }.items():
            yield case(DESCRIBE, version, what, partial(described, version=version, groups=groups))
        yield case(DESCRIBE, version, "a group of connectors", partial(describe_classic, version=version))
        yield case(DESCRIBE, version, "a group with a member", partial(describe_member, version=version))


def described(talk: Talk, version: int, groups: list[str]) -> None:
    talk.ask(DESCRIBE, version, group_ids=groups)


def describe_classic(talk: Talk, version: int) -> None:
    group = f"g-describe-848-{version}-classic"
    stable(talk, group, protocol_type="connect", metadata=b"whatever")
    talk.ask(DESCRIBE, version, group_ids=[group])


def describe_member(talk: Talk, version: int) -> None:
    group = f"g-describe-848-{version}"
    Member(talk, 1, group, rack_id="r", instance_id="till").join(tell=False)
    talk.ask(DESCRIBE, version, group_ids=[group], include_authorized_operations=True)


def other_apis() -> Iterator[Case]:
    asks: dict[int, Callable[[Talk, str], None]] = {
        DESCRIBE_CLASSIC: lambda talk, group: talk.ask(DESCRIBE_CLASSIC, 6, groups=[group]),
        LIST: list_one,
        DELETE: lambda talk, group: talk.ask(DELETE, 2, groups_names=[group]),
        OFFSET_DELETE: lambda talk, group: talk.ask(
            OFFSET_DELETE, 0, group_id=group, topics=[of(TOPIC, 0), of(OTHER_TOPIC, 0)]
        ),
        HEARTBEAT: lambda talk, group: talk.ask(HEARTBEAT, 4, group_id=group, generation_id=1, member_id=ME),
        SYNC: lambda talk, group: talk.ask(
            SYNC, 5, group_id=group, generation_id=1, member_id=ME, protocol_type="consumer", protocol_name="range"
        ),
        LEAVE: lambda talk, group: talk.ask(LEAVE, 5, group_id=group, members=[{"member_id": "somebody"}]),
    }
    for api_key, ask in asks.items():
        version = versions_of(api_key)[-1]
        yield case(api_key, version, "a member of the other protocol", partial(with_member, ask=ask, api_key=api_key))
        yield case(api_key, version, "left by the other protocol", partial(without_member, ask=ask, api_key=api_key))
    oldest = versions_of(DESCRIBE_CLASSIC)[0]
    yield case(DESCRIBE_CLASSIC, oldest, "a member of the other protocol", describe_oldest)


def list_one(talk: Talk, group: str) -> None:
    answer = talk.look(LIST, 5)
    answer.groups = [each for each in answer.groups if each.group_id == group]
    talk.note(talk.words.plain(answer))


def with_member(talk: Talk, ask: Callable[[Talk, str], None], api_key: int) -> None:
    group = f"g-848-with-{api_key}"
    Member(talk, 1, group).join(tell=False)
    ask(talk, group)


def without_member(talk: Talk, ask: Callable[[Talk, str], None], api_key: int) -> None:
    group = f"g-848-without-{api_key}"
    member = Member(talk, 1, group)
    member.join(tell=False)
    member.beat(tell=False, member_epoch=LEAVE_EPOCH)
    ask(talk, group)


def describe_oldest(talk: Talk) -> None:
    Member(talk, 1, "g-848-oldest").join(tell=False)
    talk.ask(DESCRIBE_CLASSIC, 0, groups=["g-848-oldest"])
