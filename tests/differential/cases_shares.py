"""Share groups, each version: their members and offsets, and what the other APIs of groups say to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.differential.case import Case, case, each
from tests.differential.cases_group_admin import stable
from tests.differential.stage import READ
from tests.differential.talk import PATIENCE_S, Talk
from tests.differential.words import versions_of

BEAT, DESCRIBE, DESCRIBE_OFFSETS, ALTER_OFFSETS, DELETE_OFFSETS = 76, 77, 90, 91, 92
COMMIT, FETCH, JOIN, DESCRIBE_CLASSIC, LIST, DELETE = 8, 9, 11, 15, 16, 42
OFFSET_DELETE, CONSUMER_BEAT, DESCRIBE_CONSUMER = 47, 68, 69
OTHER_TOPIC = "three"
ME, OTHER = "c2hhcmUtbWVtYmVyLTAwMQ", "c2hhcmUtbWVtYmVyLTAwMg"
"""Member ids as clients make them: a UUID in base 64."""
JOIN_EPOCH, LEAVE_EPOCH = 0, -1
LONG = "g" * 32_767
"""The longest text that a request can carry."""

Story = Callable[[Talk, str], None]


def cases() -> Iterator[Case]:
    yield from bad_heartbeats()
    yield from stories(BEAT, LIVES)
    yield from descriptions()
    yield from bad_descriptions_of_offsets()
    yield from stories(DESCRIBE_OFFSETS, OFFSETS_DESCRIBED)
    yield from bad_alterations()
    yield from stories(ALTER_OFFSETS, OFFSETS_ALTERED)
    yield from bad_deletions()
    yield from stories(DELETE_OFFSETS, OFFSETS_DELETED)
    yield from other_apis()


def stories(api_key: int, listed: dict[str, Story]) -> Iterator[Case]:
    for version in versions_of(api_key):
        for number, (what, story) in enumerate(listed.items()):
            group = f"s-{api_key}-{version}-{number}"
            yield case(api_key, version, what, partial(story, group=group))


# ---- groups that questions are about


class Member:
    """A member of a share group that remembers its epoch and its partitions."""

    def __init__(self, talk: Talk, group: str, member_id: str = ME, topics: tuple[str, ...] = (READ,)) -> None:
        self.talk = talk
        self.group = group
        self.id = member_id
        self.topics = topics
        self.epoch = JOIN_EPOCH
        self.owned = 0

    def join(self, *, tell: bool = True, **more: Any) -> None:
        self.beat(tell=tell, **{"member_epoch": JOIN_EPOCH, "subscribed_topic_names": [*self.topics], **more})

    def leave(self, *, tell: bool = True) -> None:
        self.beat(tell=tell, member_epoch=LEAVE_EPOCH)

    def beat(self, *, tell: bool = True, **fields: Any) -> None:
        usual = {"group_id": self.group, "member_id": self.id, "member_epoch": self.epoch}
        answer = self.talk.look(BEAT, 1, client=self.id, **(usual | fields))
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = sum(len(topic.partitions) for topic in answer.assignment.topic_partitions)
        if tell:
            self.talk.note(self.talk.words.plain(answer))

    def settle(self, partitions: int, *others: Member) -> None:
        """Send heartbeats until it owns so many partitions: a broker decides when it initializes and assigns them."""
        deadline = time.monotonic() + PATIENCE_S
        while self.owned != partitions:
            assert time.monotonic() < deadline, f"{self.id} owns {self.owned} partitions"
            for member in (self, *others):
                member.beat(tell=False)


def joined(talk: Talk, group: str, topics: tuple[str, ...] = (READ,), partitions: int = 2) -> Member:
    member = Member(talk, group, topics=topics)
    member.join(tell=False)
    member.settle(partitions)
    return member


def left(talk: Talk, group: str) -> None:
    joined(talk, group).leave(tell=False)


def classic(talk: Talk, group: str) -> None:
    stable(talk, group)


def consumers(talk: Talk, group: str) -> None:
    answer = talk.look(
        CONSUMER_BEAT, 1, group_id=group, member_id=ME, member_epoch=0, rebalance_timeout_ms=60_000,
        subscribed_topic_names=[READ], topic_partitions=[],
    )  # fmt: skip
    assert not answer.error_code


def describe(talk: Talk, group: str) -> None:
    talk.ask(DESCRIBE, 1, group_ids=[group])


def describe_offsets(talk: Talk, group: str, topics: list[dict[str, Any]] | None = None) -> None:
    talk.ask(DESCRIBE_OFFSETS, 1, groups=[{"group_id": group, "topics": topics}])


def named(topic: str, *partitions: int) -> dict[str, Any]:
    return {"topic_name": topic, "partitions": [*partitions]}


def at(topic: str, offsets: dict[int, int]) -> dict[str, Any]:
    parts = [{"partition_index": index, "start_offset": offset} for index, offset in offsets.items()]
    return {"topic_name": topic, "partitions": parts}


# ---- membership


def bad_heartbeats() -> Iterator[Case]:
    usual: dict[str, Any] = {"group_id": "s-none", "member_id": ME, "subscribed_topic_names": [READ]}
    bare = {"group_id": "s-none", "member_id": ME}
    questions: dict[str, dict[str, Any]] = {
        "no group id": {**usual, "group_id": ""},
        "a blank group id": {**usual, "group_id": "  "},
        "an oversized group id": {**usual, "group_id": LONG},
        "an unknown group": {**bare, "member_epoch": 5},
        "leaves an unknown group": {**bare, "member_epoch": LEAVE_EPOCH},
        "epoch -2": {**bare, "member_epoch": -2},
        "no member id": {**usual, "member_id": ""},
        "a blank member id": {**usual, "member_id": "  "},
        "a member id of 37 characters": {**usual, "member_id": "m" * 37},
        "joins without subscription": bare,
        "joins with the empty subscription": {**usual, "subscribed_topic_names": []},
        "joins with the empty rack": {**usual, "rack_id": ""},
    }
    for what, fields in questions.items():
        yield from each(BEAT, what, **fields)
    others = {"classic": classic, "consumer": consumers}
    for version in versions_of(BEAT):
        for kind, prepare in others.items():
            yield case(BEAT, version, f"joins a {kind} group", partial(to_other, kind=kind, prepare=prepare))


def to_other(talk: Talk, kind: str, prepare: Story) -> None:
    group = f"s-beat-{kind}"
    prepare(talk, group)
    member = Member(talk, group)
    member.join()
    member.beat(member_epoch=5)
    member.leave()


def life(talk: Talk, group: str) -> None:
    member = Member(talk, group)
    member.join()
    member.settle(2)
    describe(talk, group)
    member.beat()
    member.beat(subscribed_topic_names=[READ])
    # The first answer may have been lost.
    member.join()
    member.leave()
    describe(talk, group)
    member.beat(member_epoch=2)
    member.leave()


def fenced(talk: Talk, group: str) -> None:
    member = joined(talk, group)
    now = member.epoch
    for epoch in (now + 1, now + 7, now - 1, now - 2):
        member.beat(member_epoch=epoch)
    member.beat(member_id=OTHER)
    member.beat(member_id=OTHER, member_epoch=LEAVE_EPOCH)
    member.beat(member_epoch=-2)
    member.beat(subscribed_topic_names=[])
    member.beat(rack_id="")
    member.beat(rack_id="r")
    describe(talk, group)


def two(talk: Talk, group: str) -> None:
    first, second = joined(talk, group), Member(talk, group, OTHER)
    second.join(tell=False)
    second.settle(1, first)
    first.settle(1, second)
    second.leave()
    first.settle(2)


def changes(talk: Talk, group: str) -> None:
    member = joined(talk, group)
    member.beat(tell=False, subscribed_topic_names=[READ, OTHER_TOPIC])
    member.settle(5)
    member.beat(tell=False, subscribed_topic_names=[OTHER_TOPIC])
    member.settle(3)


def nothing(talk: Talk, group: str) -> None:
    member = Member(talk, group, topics=("nowhere",))
    member.join()
    describe(talk, group)


LIVES: dict[str, Story] = {
    "a member's life": life,
    "epochs that are not its own": fenced,
    "two members": two,
    "a subscription that changes": changes,
    "topics that do not exist": nothing,
}


def descriptions() -> Iterator[Case]:
    for what, groups in {
        "no group": [],
        "the empty id": [""],
        "an oversized id": [LONG],
        "an unknown group": ["s-none-1"],
        "two strangers": ["s-none-1", "s-none-2"],
        "a stranger twice": ["s-none-1", "s-none-1"],
    }.items():
        yield from each(DESCRIBE, what, group_ids=groups)
    for version in versions_of(DESCRIBE):
        for kind, prepare in {"classic": classic, "consumer": consumers}.items():
            yield case(DESCRIBE, version, f"a {kind} group", partial(describe_other, kind=kind, prepare=prepare))
        yield case(DESCRIBE, version, "a group with a member", describe_member)


def describe_other(talk: Talk, kind: str, prepare: Story) -> None:
    prepare(talk, f"s-describe-{kind}")
    describe(talk, f"s-describe-{kind}")


def describe_member(talk: Talk) -> None:
    Member(talk, "s-describe", topics=("nowhere",)).join(tell=False, rack_id="r")
    talk.ask(DESCRIBE, 1, group_ids=["s-describe"], include_authorized_operations=True)


# ---- offsets


def bad_descriptions_of_offsets() -> Iterator[Case]:
    questions: dict[str, list[dict[str, Any]]] = {
        "no group": [],
        "the empty id": [{"group_id": "", "topics": None}],
        "an oversized id": [{"group_id": LONG, "topics": None}],
        "an unknown group": [{"group_id": "s-none", "topics": None}],
        "an unknown group, no topics": [{"group_id": "s-none", "topics": []}],
        "an unknown group's topics": [{"group_id": "s-none", "topics": [named(READ, 0, 1)]}],
        "an unknown group twice": [{"group_id": "s-none", "topics": None}, {"group_id": "s-none", "topics": None}],
    }
    for what, groups in questions.items():
        yield from each(DESCRIBE_OFFSETS, what, groups=groups)
    of_a_group: dict[str, list[dict[str, Any]] | None] = {
        "all that a group has": None,
        "no topics": [],
        "a partition with a state": [named(READ, 0)],
        "a partition without state": [named(READ, 1, 0), named(OTHER_TOPIC, 0)],
        "a topic without partitions": [named(READ)],
        "a partition twice": [named(READ, 0, 0)],
        "an unknown partition": [named(READ, 7)],
        "partition -1": [named(READ, -1)],
        "unknown topics": [named("nowhere", 0), named("", 0)],
    }
    for version in versions_of(DESCRIBE_OFFSETS):
        for what, topics in of_a_group.items():
            script = partial(offsets_described, version=version, topics=topics)
            yield case(DESCRIBE_OFFSETS, version, what, script)


def offsets_described(talk: Talk, version: int, topics: list[dict[str, Any]] | None) -> None:
    group = f"s-90-described-{version}"
    altered(talk, group, at(READ, {0: 4}))
    talk.ask(DESCRIBE_OFFSETS, version, groups=[{"group_id": group, "topics": topics}])


def offsets_of_members(talk: Talk, group: str) -> None:
    member = joined(talk, group)
    describe_offsets(talk, group)
    describe_offsets(talk, group, [named(READ, 0, 1)])
    member.leave(tell=False)
    describe_offsets(talk, group)


def offsets_of_classic(talk: Talk, group: str) -> None:
    classic(talk, group)
    describe_offsets(talk, group)
    describe_offsets(talk, group, [named(READ, 0)])


def offsets_of_consumers(talk: Talk, group: str) -> None:
    consumers(talk, group)
    describe_offsets(talk, group)
    describe_offsets(talk, group, [named(READ, 0)])


OFFSETS_DESCRIBED: dict[str, Story] = {
    "a group with a member": offsets_of_members,
    "a classic group": offsets_of_classic,
    "a consumer group": offsets_of_consumers,
}


def altered(talk: Talk, group: str, *topics: dict[str, Any]) -> None:
    answer = talk.look(ALTER_OFFSETS, 0, group_id=group, topics=[*topics])
    assert not answer.error_code
    assert not any(part.error_code for topic in answer.responses for part in topic.partitions)


def bad_alterations() -> Iterator[Case]:
    sound = [at(READ, {0: 4})]
    questions: dict[str, dict[str, Any]] = {
        "no group id": {"group_id": "", "topics": sound},
        "a blank group id": {"group_id": "  ", "topics": sound},
        "an oversized group id": {"group_id": LONG, "topics": sound},
        "no topics": {"group_id": "s-alter-1", "topics": []},
        "a topic without partitions": {"group_id": "s-alter-2", "topics": [at(READ, {})]},
        "an unknown topic": {"group_id": "s-alter-3", "topics": [at("nowhere", {0: 4})]},
        "the empty topic": {"group_id": "s-alter-4", "topics": [at("", {0: 4})]},
        "an unknown partition": {"group_id": "s-alter-5", "topics": [at(READ, {7: 4})]},
        "partition -1": {"group_id": "s-alter-6", "topics": [at(READ, {-1: 4})]},
        "known and unknown": {"group_id": "s-alter-7", "topics": [at(READ, {0: 1, 7: 4}), at("nowhere", {0: 4})]},
    }
    for what, fields in questions.items():
        yield from each(ALTER_OFFSETS, what, **fields)


def offsets_altered(talk: Talk, group: str) -> None:
    for offset in (0, 4, 10, 2):
        talk.ask(ALTER_OFFSETS, 0, group_id=group, topics=[at(READ, {0: offset})])
        describe_offsets(talk, group)
    talk.ask(ALTER_OFFSETS, 0, group_id=group, topics=[at(READ, {1: 0}), at(OTHER_TOPIC, {2: 0})])
    describe_offsets(talk, group)


def group_altered(talk: Talk, group: str) -> None:
    for _ in range(2):
        talk.ask(ALTER_OFFSETS, 0, group_id=group, topics=[at(READ, {0: 4})])
        describe(talk, group)


def odd_offsets(talk: Talk, group: str) -> None:
    for offset in (11, 2**63 - 1, -1):
        talk.ask(ALTER_OFFSETS, 0, group_id=group, topics=[at(READ, {0: offset})])
        describe_offsets(talk, group, [named(READ, 0)])


def offsets_below_nothing(talk: Talk, group: str) -> None:
    for offset in (-2, -5):
        talk.ask(ALTER_OFFSETS, 0, group_id=group, topics=[at(READ, {0: offset})])


def offsets_altered_twice(talk: Talk, group: str) -> None:
    twice = [{"partition_index": 0, "start_offset": offset} for offset in (3, 5)]
    talk.ask(ALTER_OFFSETS, 0, group_id=group, topics=[{"topic_name": READ, "partitions": twice}])
    describe_offsets(talk, group)


def topic_altered_twice(talk: Talk, group: str) -> None:
    talk.ask(ALTER_OFFSETS, 0, group_id=group, topics=[at(READ, {0: 6}), at(READ, {1: 0})])
    describe_offsets(talk, group)


def offsets_altered_of_members(talk: Talk, group: str) -> None:
    member = joined(talk, group)
    talk.ask(ALTER_OFFSETS, 0, group_id=group, topics=[at(READ, {0: 4})])
    member.leave(tell=False)
    talk.ask(ALTER_OFFSETS, 0, group_id=group, topics=[at(READ, {0: 4})])
    describe_offsets(talk, group)


def offsets_altered_of_classic(talk: Talk, group: str) -> None:
    classic(talk, group)
    talk.ask(ALTER_OFFSETS, 0, group_id=group, topics=[at(READ, {0: 4})])


def offsets_altered_of_consumers(talk: Talk, group: str) -> None:
    consumers(talk, group)
    talk.ask(ALTER_OFFSETS, 0, group_id=group, topics=[at(READ, {0: 4})])


OFFSETS_ALTERED: dict[str, Story] = {
    "more than once": offsets_altered,
    "the epochs of the group": group_altered,
    "offsets that are not in the log": odd_offsets,
    "offsets below -1": offsets_below_nothing,
    "a partition twice": offsets_altered_twice,
    "a topic twice": topic_altered_twice,
    "a group with a member": offsets_altered_of_members,
    "a classic group": offsets_altered_of_classic,
    "a consumer group": offsets_altered_of_consumers,
}


def bad_deletions() -> Iterator[Case]:
    sound = [{"topic_name": READ}]
    for what, group in {"no group id": "", "an unknown group": "s-none", "an oversized group id": LONG}.items():
        yield from each(DELETE_OFFSETS, what, group_id=group, topics=sound)
    yield from each(DELETE_OFFSETS, "an unknown group, no topics", group_id="s-none", topics=[])


def offsets_deleted(talk: Talk, group: str) -> None:
    altered(talk, group, at(READ, {0: 4, 1: 0}), at(OTHER_TOPIC, {1: 0}))
    for topics in ([], ["nowhere"], [""], [READ, READ], [READ], [OTHER_TOPIC, "nowhere"]):
        talk.ask(DELETE_OFFSETS, 0, group_id=group, topics=[{"topic_name": topic} for topic in topics])
        describe_offsets(talk, group)
    altered(talk, group, at(READ, {0: 2}))
    describe_offsets(talk, group)


def offsets_deleted_of_members(talk: Talk, group: str) -> None:
    member = joined(talk, group)
    talk.ask(DELETE_OFFSETS, 0, group_id=group, topics=[{"topic_name": READ}])
    member.leave(tell=False)
    talk.ask(DELETE_OFFSETS, 0, group_id=group, topics=[{"topic_name": READ}])
    describe_offsets(talk, group)


def offsets_deleted_of_classic(talk: Talk, group: str) -> None:
    classic(talk, group)
    talk.ask(DELETE_OFFSETS, 0, group_id=group, topics=[{"topic_name": READ}])


def offsets_deleted_of_consumers(talk: Talk, group: str) -> None:
    consumers(talk, group)
    talk.ask(DELETE_OFFSETS, 0, group_id=group, topics=[{"topic_name": READ}])


OFFSETS_DELETED: dict[str, Story] = {
    "some topics": offsets_deleted,
    "a group with a member": offsets_deleted_of_members,
    "a classic group": offsets_deleted_of_classic,
    "a consumer group": offsets_deleted_of_consumers,
}


# ---- the other APIs


def other_apis() -> Iterator[Case]:
    commit = [{"name": READ, "partitions": [{"partition_index": 0, "committed_offset": 3}]}]
    read_zero = [{"name": READ, "partition_indexes": [0]}]
    asks: dict[int, Callable[[Talk, str], Any]] = {
        COMMIT: lambda talk, group: talk.ask(COMMIT, 9, group_id=group, topics=commit),
        FETCH: lambda talk, group: talk.ask(FETCH, 9, groups=[{"group_id": group, "topics": read_zero}]),
        JOIN: lambda talk, group: talk.ask(
            JOIN, 9, group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
            protocol_type="consumer", protocols=[{"name": "range", "metadata": b""}],
        ),
        DESCRIBE_CLASSIC: lambda talk, group: talk.ask(DESCRIBE_CLASSIC, 6, groups=[group]),
        LIST: list_one,
        DELETE: lambda talk, group: talk.ask(DELETE, 2, groups_names=[group]),
        OFFSET_DELETE: lambda talk, group: talk.ask(
            OFFSET_DELETE, 0, group_id=group, topics=[{"name": READ, "partitions": [{"partition_index": 0}]}]
        ),
        CONSUMER_BEAT: lambda talk, group: talk.ask(
            CONSUMER_BEAT, 1, group_id=group, member_id=OTHER, rebalance_timeout_ms=60_000,
            subscribed_topic_names=[READ], topic_partitions=[],
        ),
        DESCRIBE_CONSUMER: lambda talk, group: talk.ask(DESCRIBE_CONSUMER, 1, group_ids=[group]),
    }  # fmt: skip
    for api_key, ask in asks.items():
        version = versions_of(api_key)[-1]
        yield case(api_key, version, "a member of a share group", partial(with_member, ask=ask, api_key=api_key))
        yield case(api_key, version, "left by a share group", partial(without_member, ask=ask, api_key=api_key))


def with_member(talk: Talk, ask: Callable[[Talk, str], Any], api_key: int) -> None:
    joined(talk, f"s-with-{api_key}")
    ask(talk, f"s-with-{api_key}")


def without_member(talk: Talk, ask: Callable[[Talk, str], Any], api_key: int) -> None:
    group = f"s-without-{api_key}"
    left(talk, group)
    ask(talk, group)
    talk.note(talk.look(DESCRIBE, 1, group_ids=[group]).groups[0].group_state)


def list_one(talk: Talk, group: str) -> None:
    for types in ([], ["share"], ["consumer"]):
        answer = talk.look(LIST, 5, types_filter=types)
        answer.groups = [group_found for group_found in answer.groups if group_found.group_id == group]
        talk.note(talk.words.plain(answer))
