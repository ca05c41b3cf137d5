"""Delivery to share groups, each version: ShareFetch and ShareAcknowledge with their sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID

from tests.differential.case import Case, case, each
from tests.differential.cases_shares import (
    DESCRIBE_OFFSETS,
    LONG,
    ME,
    OTHER,
    altered,
    at,
    describe_offsets,
    joined,
    named,
)
from tests.differential.stage import READ
from tests.differential.talk import Talk
from tests.differential.words import Id, versions_of

FETCH, ACKNOWLEDGE = 78, 79
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
OPEN, CLOSE = 0, -1
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
NOWHERE = UUID(int=9)
WAIT_MS = 4_000
"""Longer than a broker takes to load a share partition. An answer with records comes as soon as they are there."""
NO_RECORDS_MS = 100

Story = Callable[[Talk, int, str], None]
Range = tuple[int, int, list[int]]
"""First and last offset, and the types of their acknowledgement."""


def cases() -> Iterator[Case]:
    yield from bad_fetches()
    yield from bad_acknowledgements()
    for api_key, listed in STORIES.items():
        for version in versions_of(api_key):
            for number, (what, story) in enumerate(listed.items()):
                if version >= FIRST_VERSION.get(story, 1):
                    group = f"s-{api_key}-{version}-{number}"
                    yield case(api_key, version, what, partial(story, version=version, group=group))


def bad_fetches() -> Iterator[Case]:
    zero = {"partition_index": 0}
    topics = [{"topic_id": Id(READ), "partitions": [zero]}]
    acknowledged = {"partition_index": 0, "acknowledgement_batches": ranges((0, 0, [ACCEPT]))}
    usual: dict[str, Any] = {
        "group_id": "s-fetch-none", "member_id": ME, "topics": topics, "max_records": 10, "batch_size": 10,
    }  # fmt: skip
    questions: dict[str, dict[str, Any]] = {
        "null group id": usual | {"group_id": None},
        "no group id": usual | {"group_id": "", "max_wait_ms": WAIT_MS},
        "null member id": usual | {"member_id": None},
        "no member id": usual | {"member_id": ""},
        "a member id of 37 characters": usual | {"member_id": "m" * 37},
        "no session": usual | {"share_session_epoch": 1},
        "closes no session": usual | {"share_session_epoch": CLOSE},
        "epoch -2": usual | {"share_session_epoch": -2},
        "opens with acknowledgements": usual | {"topics": [{"topic_id": Id(READ), "partitions": [acknowledged]}]},
        "opens with nothing": usual | {"topics": []},
    }
    for what, fields in questions.items():
        yield from each(FETCH, what, **fields)


def bad_acknowledgements() -> Iterator[Case]:
    part = {"partition_index": 0, "acknowledgement_batches": ranges((0, 0, [ACCEPT]))}
    usual: dict[str, Any] = {
        "group_id": "s-ack-none",
        "member_id": ME,
        "topics": [{"topic_id": Id(READ), "partitions": [part]}],
        "share_session_epoch": 1,
    }
    questions: dict[str, dict[str, Any]] = {
        "null group id": usual | {"group_id": None},
        "no group id": usual | {"group_id": ""},
        "null member id": usual | {"member_id": None},
        "no member id": usual | {"member_id": ""},
        "a member id of 37 characters": usual | {"member_id": "m" * 37},
        "an oversized group id": usual | {"group_id": LONG},
        "no session": usual,
        "closes no session": usual | {"share_session_epoch": CLOSE},
        "opens a session": usual | {"share_session_epoch": OPEN},
        "epoch -2": usual | {"share_session_epoch": -2},
        "nothing at all": usual | {"topics": []},
    }
    for what, fields in questions.items():
        yield from each(ACKNOWLEDGE, what, **fields)


# ---- a member with its session


def ranges(*batches: Range) -> list[dict[str, Any]]:
    return [{"first_offset": first, "last_offset": last, "acknowledge_types": types} for first, last, types in batches]


class Worker:
    """A member that reads partition 0 of a topic in a share session, and counts its epochs."""

    def __init__(self, talk: Talk, version: int, group: str, member_id: str = ME) -> None:
        self.talk = talk
        self.version = version
        self.group = group
        self.id = member_id
        self.epoch = OPEN

    def fetch(self, *batches: Range, wait_ms: int = WAIT_MS, partition: int = 0, **more: Any) -> None:
        part: dict[str, Any] = {"partition_index": partition}
        if batches:
            part["acknowledgement_batches"] = ranges(*batches)
        usual: dict[str, Any] = {
            "share_session_epoch": self.epoch, "max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1_000_000,
            "max_records": 100, "batch_size": 100, "topics": [{"topic_id": Id(READ), "partitions": [part]}],
        }  # fmt: skip
        self.ask(FETCH, usual | more)

    def acknowledge(self, *batches: Range, partition: int = 0, **more: Any) -> None:
        part = {"partition_index": partition, "acknowledgement_batches": ranges(*batches)}
        usual = {"share_session_epoch": self.epoch, "topics": [{"topic_id": Id(READ), "partitions": [part]}]}
        self.ask(ACKNOWLEDGE, usual | more)

    def ask(self, api_key: int, fields: dict[str, Any]) -> None:
        me = {"group_id": self.group, "member_id": self.id}
        answer = self.talk.ask(api_key, self.version, client=self.id, **me, **fields)
        if answer is not None and not answer.error_code:
            self.epoch += 1


def worker(talk: Talk, version: int, group: str, start_offset: int = 0) -> Worker:
    """A reader of a share group that begins at the offset. Leaders do not ask whether it has joined."""
    altered(talk, group, at(READ, {0: start_offset, 1: 0}))
    return Worker(talk, version, group)


def note_lag(talk: Talk, group: str) -> None:
    """Write down how many records are neither acknowledged nor archived."""
    answer = talk.look(DESCRIBE_OFFSETS, 1, groups=[{"group_id": group, "topics": [named(READ, 0)]}])
    talk.note({"lag": answer.groups[0].topics[0].partitions[0].lag})


# ---- fetching


def day(talk: Talk, version: int, group: str) -> None:
    """The ordinary way: fetch, accept with the next fetch, close."""
    me = worker(talk, version, group)
    me.fetch()
    me.fetch((0, 9, [ACCEPT]), wait_ms=NO_RECORDS_MS)
    note_lag(talk, group)
    me.fetch(wait_ms=NO_RECORDS_MS, share_session_epoch=CLOSE, topics=[])


def joined_first(talk: Talk, version: int, group: str) -> None:
    """The start offset is the end of the log, where a group begins by default."""
    joined(talk, group)
    me = Worker(talk, version, group)
    me.fetch(wait_ms=NO_RECORDS_MS)
    me.fetch(wait_ms=NO_RECORDS_MS, share_session_epoch=CLOSE, topics=[])


def wrong_epochs(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch()
    for epoch in (2, 7, -2, 2**31 - 1):
        me.fetch(wait_ms=NO_RECORDS_MS, share_session_epoch=epoch)
    me.fetch(wait_ms=NO_RECORDS_MS, share_session_epoch=1)
    me.fetch(wait_ms=NO_RECORDS_MS, share_session_epoch=1)


def opened_again(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch()
    me.epoch = OPEN
    me.fetch()
    me.fetch(wait_ms=NO_RECORDS_MS, share_session_epoch=1)


def limits(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch(max_records=1, batch_size=1)
    me.fetch(max_records=3, batch_size=1)
    me.fetch(max_records=100, batch_size=3)
    me.fetch(wait_ms=NO_RECORDS_MS)


def odd_limits(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch()
    me.acknowledge((0, 9, [RELEASE]))
    for odd in ({"max_records": 0}, {"max_records": -1}, {"batch_size": 0}, {"batch_size": -1}):
        me.fetch(wait_ms=NO_RECORDS_MS, **odd)
        me.acknowledge((0, 9, [RELEASE]))


def bytes_limited(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch(max_bytes=1)
    me.fetch(max_bytes=200)


def record_limit(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch(share_acquire_mode=RECORD_LIMIT, max_records=1)
    me.fetch(share_acquire_mode=RECORD_LIMIT, max_records=4)
    me.fetch(share_acquire_mode=RECORD_LIMIT, max_records=100, batch_size=2)


def odd_mode(talk: Talk, version: int, group: str) -> None:
    worker(talk, version, group).fetch(share_acquire_mode=7)


def unknown(talk: Talk, version: int, group: str) -> None:
    for partition in (7, -1):
        worker(talk, version, f"{group}-{partition}").fetch(partition=partition, wait_ms=NO_RECORDS_MS)


def unknown_topic(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch(topics=[{"topic_id": NOWHERE, "partitions": [{"partition_index": 0}]}], wait_ms=NO_RECORDS_MS)


def forgotten(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch(max_records=1, batch_size=1)
    gone = [{"topic_id": Id(READ), "partitions": [0]}]
    me.fetch(topics=[], forgotten_topics_data=gone, wait_ms=NO_RECORDS_MS)
    me.fetch(topics=[], wait_ms=NO_RECORDS_MS)
    me.fetch()
    me.fetch(topics=[], forgotten_topics_data=[{"topic_id": NOWHERE, "partitions": [3]}], wait_ms=NO_RECORDS_MS)


def empty_partition(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch(partition=1, wait_ms=500)
    me.fetch(partition=1, wait_ms=NO_RECORDS_MS)


def without_state(talk: Talk, version: int, group: str) -> None:
    """No coordinator has initialized the share partition."""
    Worker(talk, version, group).fetch()


def redelivered(talk: Talk, version: int, group: str) -> None:
    """Released until the limit of deliveries is reached."""
    me = worker(talk, version, group, start_offset=8)
    for _ in range(4):
        me.fetch()
        me.acknowledge((8, 8, [RELEASE]))
        me.acknowledge((9, 9, [RELEASE]))
    for _ in range(2):
        me.fetch()
    me.acknowledge((8, 9, [RELEASE]))
    me.fetch(wait_ms=NO_RECORDS_MS)
    note_lag(talk, group)


def acknowledged_while_fetching(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch(max_records=2, batch_size=2)
    me.fetch((0, 0, [RELEASE]), (1, 1, [REJECT]), max_records=2, batch_size=2)
    me.fetch((0, 9, [ACCEPT]), wait_ms=NO_RECORDS_MS)
    me.fetch((5, 3, [ACCEPT]), wait_ms=NO_RECORDS_MS)
    me.fetch((0, 0, [9]), wait_ms=NO_RECORDS_MS)
    me.fetch((0, 0, [ACCEPT]), share_session_epoch=CLOSE, wait_ms=NO_RECORDS_MS)


def renewed_while_fetching(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch()
    none = {"min_bytes": 0, "max_bytes": 0, "max_records": 0, "wait_ms": 0, "is_renew_ack": True}
    me.fetch((0, 9, [RENEW]), **none)
    me.fetch((0, 1, [RENEW]), (2, 3, [ACCEPT]), **none)
    for odd in ({"min_bytes": 1}, {"max_bytes": 1}, {"max_records": 1}, {"wait_ms": 1}):
        me.fetch((0, 1, [RENEW]), **(none | odd))
    me.fetch((0, 1, [RENEW]), wait_ms=NO_RECORDS_MS)
    me.fetch((4, 4, [ACCEPT]), **none)


# ---- acknowledging


def each_type(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch()
    me.acknowledge((0, 1, [ACCEPT]), (2, 2, [RELEASE]), (3, 3, [REJECT]), (4, 5, [GAP]))
    note_lag(talk, group)
    me.acknowledge((6, 9, [ACCEPT, RELEASE, REJECT, GAP]))
    note_lag(talk, group)
    me.fetch()
    me.acknowledge((2, 2, [ACCEPT]), (7, 7, [ACCEPT]))
    note_lag(talk, group)


def not_held(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch(max_records=4, batch_size=4)
    me.acknowledge((4, 4, [ACCEPT]))
    me.acknowledge((3, 4, [ACCEPT]))
    me.acknowledge((100, 101, [ACCEPT]))
    me.acknowledge((0, 1, [ACCEPT]))
    me.acknowledge((0, 1, [ACCEPT]))
    me.acknowledge((1, 2, [ACCEPT]))
    me.acknowledge((2, 2, [RELEASE]))
    me.acknowledge((2, 2, [ACCEPT]))
    me.acknowledge((3, 3, [ACCEPT]))
    note_lag(talk, group)


def of_another(talk: Talk, version: int, group: str) -> None:
    me, other = worker(talk, version, group), Worker(talk, version, group, OTHER)
    me.fetch(max_records=2, batch_size=2)
    other.fetch(max_records=2, batch_size=2)
    other.acknowledge((0, 1, [ACCEPT]))
    me.acknowledge((0, 3, [ACCEPT]))
    me.acknowledge((0, 1, [ACCEPT]))
    other.acknowledge((2, 3, [ACCEPT]))
    note_lag(talk, group)


def bad_ranges(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch()
    for batches in (
        [(5, 3, [ACCEPT])],
        [(0, 2, [ACCEPT]), (1, 3, [ACCEPT])],
        [(4, 5, [ACCEPT]), (0, 1, [ACCEPT])],
        [(0, 1, [ACCEPT]), (0, 1, [ACCEPT])],
        [(0, 3, [ACCEPT, ACCEPT])],
        [(0, 1, [ACCEPT, ACCEPT, ACCEPT])],
        [(0, 1, [])],
        [(0, 1, [5])],
        [(0, 1, [-1])],
        [(0, 1, [ACCEPT, 9])],
    ):
        me.acknowledge(*batches)
    note_lag(talk, group)


def touching(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch()
    me.acknowledge((0, 1, [ACCEPT]), (1, 2, [ACCEPT]))
    note_lag(talk, group)


def below_zero(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch()
    me.acknowledge((-1, 1, [ACCEPT]))
    note_lag(talk, group)


def below_start(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group, start_offset=4)
    me.fetch()
    me.acknowledge((2, 3, [ACCEPT]))
    me.acknowledge((2, 5, [ACCEPT]))
    note_lag(talk, group)


def no_ranges(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch()
    me.acknowledge()
    me.acknowledge(topics=[])
    me.acknowledge(topics=[{"topic_id": Id(READ), "partitions": []}])


def with_gaps(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch()
    for batches in ([(0, 0, [ACCEPT]), (5, 6, [ACCEPT]), (9, 9, [ACCEPT])], [(1, 4, [ACCEPT])], [(7, 8, [ACCEPT])]):
        me.acknowledge(*batches)
        note_lag(talk, group)


def start_moved(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch()
    for batch in ((0, 1, [ACCEPT]), (2, 4, [REJECT]), (5, 5, [RELEASE])):
        me.acknowledge(batch)
        describe_offsets(talk, group, [named(READ, 0)])


def elsewhere(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch()
    part = {"partition_index": 0, "acknowledgement_batches": ranges((0, 0, [ACCEPT]))}
    me.acknowledge(topics=[{"topic_id": NOWHERE, "partitions": [part]}])
    me.acknowledge((0, 0, [ACCEPT]), partition=7)


def never_fetched(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch()
    me.acknowledge((0, 0, [ACCEPT]), partition=1)


def epochs_acknowledged(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch()
    for epoch in (0, 2, 7, -2):
        me.acknowledge((0, 0, [ACCEPT]), share_session_epoch=epoch)
    me.acknowledge((0, 0, [ACCEPT]), share_session_epoch=1)
    me.acknowledge((1, 1, [ACCEPT]), share_session_epoch=1)


def closed(talk: Talk, version: int, group: str) -> None:
    """What was not acknowledged comes again, with a higher delivery count."""
    me = worker(talk, version, group)
    me.fetch()
    me.acknowledge((0, 3, [ACCEPT]), share_session_epoch=CLOSE)
    me.acknowledge((4, 4, [ACCEPT]), share_session_epoch=2)
    me.epoch = OPEN
    me.fetch()
    note_lag(talk, group)


def renewed(talk: Talk, version: int, group: str) -> None:
    me = worker(talk, version, group)
    me.fetch(max_records=4, batch_size=4)
    me.acknowledge((0, 3, [RENEW]), is_renew_ack=True)
    me.acknowledge((0, 1, [RENEW]), (2, 3, [ACCEPT]), is_renew_ack=True)
    me.acknowledge((0, 1, [RENEW, ACCEPT]), is_renew_ack=True)
    me.acknowledge((0, 0, [RENEW]), is_renew_ack=False)
    me.acknowledge((2, 2, [RENEW]), is_renew_ack=True)
    me.acknowledge((4, 4, [RENEW]), is_renew_ack=True)
    me.acknowledge((0, 0, [ACCEPT]), is_renew_ack=True)
    note_lag(talk, group)


def renewed_too_early(talk: Talk, version: int, group: str) -> None:
    """Version 1 does not know the type."""
    me = worker(talk, version, group)
    me.fetch()
    me.acknowledge((0, 1, [RENEW]))
    me.acknowledge((0, 1, [ACCEPT, RENEW]))


STORIES: dict[int, dict[str, Story]] = {
    FETCH: {
        "a member's day": day,
        "a member that has joined": joined_first,
        "epochs that are not the next": wrong_epochs,
        "a session opened again": opened_again,
        "limits of records": limits,
        "odd limits of records": odd_limits,
        "limits of bytes": bytes_limited,
        "the record limit mode": record_limit,
        "an unknown mode": odd_mode,
        "unknown partitions": unknown,
        "an unknown topic": unknown_topic,
        "a topic forgotten": forgotten,
        "a partition without records": empty_partition,
        "a share partition without state": without_state,
        "released again and again": redelivered,
        "acknowledgements": acknowledged_while_fetching,
        "renewals": renewed_while_fetching,
    },
    ACKNOWLEDGE: {
        "each type": each_type,
        "records that it does not hold": not_held,
        "records of another member": of_another,
        "ranges that cannot be": bad_ranges,
        "ranges that touch": touching,
        "a range from below 0": below_zero,
        "ranges from below the start": below_start,
        "no ranges": no_ranges,
        "ranges with gaps": with_gaps,
        "the start offset": start_moved,
        "unknown topics and partitions": elsewhere,
        "a partition that was never fetched": never_fetched,
        "epochs that are not the next": epochs_acknowledged,
        "the session closed": closed,
        "renewals": renewed,
        "renewals without the flag": renewed_too_early,
    },
}
FIRST_VERSION = {record_limit: 2, odd_mode: 2, renewed_while_fetching: 2, renewed: 2}
