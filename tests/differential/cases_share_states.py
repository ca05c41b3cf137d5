"""The APIs by which brokers keep the state of share groups, each version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID

from tests.differential.case import Case, case, each
from tests.differential.cases_shares import LONG
from tests.differential.stage import READ
from tests.differential.talk import Talk
from tests.differential.words import Id, versions_of

INITIALIZE, READ_STATE, WRITE, DELETE, SUMMARY = 83, 84, 85, 86, 87
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
NOWHERE = UUID(int=9)

Story = Callable[[Talk, int, str], None]


def cases() -> Iterator[Case]:
    for api_key in (INITIALIZE, READ_STATE, WRITE, DELETE, SUMMARY):
        yield from odd(api_key)
    for api_key, listed in STORIES.items():
        for version in versions_of(api_key):
            for number, (what, story) in enumerate(listed.items()):
                group = f"s-{api_key}-{version}-{number}"
                yield case(api_key, version, what, partial(story, version=version, group=group))


def odd(api_key: int) -> Iterator[Case]:
    """Questions that every one of these APIs can be asked, about share partitions that have no state."""
    zero = {"partition": 0}
    twice = {"topic_id": Id(READ), "partitions": [zero, zero]}
    questions: dict[str, dict[str, Any]] = {
        "no group id": {"group_id": "", "topics": [{"topic_id": Id(READ), "partitions": [zero]}]},
        "a blank group id": {"group_id": "   ", "topics": [{"topic_id": Id(READ), "partitions": [zero]}]},
        "an oversized group id": {"group_id": LONG, "topics": [{"topic_id": Id(READ), "partitions": [zero]}]},
        "no topics": {"topics": []},
        "a topic without partitions": {"topics": [{"topic_id": Id(READ), "partitions": []}]},
        "no topic id": {"topics": [{"topic_id": UUID(int=0), "partitions": [zero]}]},
        "an unknown topic id": {"topics": [{"topic_id": NOWHERE, "partitions": [zero]}]},
        "an unknown partition": {"topics": [{"topic_id": Id(READ), "partitions": [{"partition": 7}]}]},
        "partition -1": {"topics": [{"topic_id": Id(READ), "partitions": [{"partition": -1}]}]},
        "a share partition without state": {"topics": [{"topic_id": Id(READ), "partitions": [zero]}]},
        "a partition twice": {"topics": [twice]},
    }
    for number, (what, fields) in enumerate(questions.items()):
        yield from each(api_key, what, **({"group_id": f"s-odd-{api_key}-{number}"} | fields))


def about(group: str, partition: int = 0, **fields: Any) -> dict[str, Any]:
    parts = [{"partition": partition, **fields}]
    return {"group_id": group, "topics": [{"topic_id": Id(READ), "partitions": parts}]}


def initialize(talk: Talk, group: str, state_epoch: int, start_offset: int) -> None:
    talk.ask(INITIALIZE, 0, **about(group, state_epoch=state_epoch, start_offset=start_offset))


def read(talk: Talk, group: str, leader_epoch: int = 0) -> None:
    talk.ask(READ_STATE, 0, **about(group, leader_epoch=leader_epoch))


def summarize(talk: Talk, group: str, version: int = 1, leader_epoch: int = 0) -> None:
    talk.ask(SUMMARY, version, **about(group, leader_epoch=leader_epoch))


Batch = tuple[int, int, int, int]
"""First and last offset, state, delivery count."""


def write(talk: Talk, version: int, group: str, *batches: Batch, **more: Any) -> None:
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    stored = [dict(zip(names, batch, strict=True)) for batch in batches]
    usual = {"state_epoch": 1, "leader_epoch": 0, "start_offset": -1}
    if version:
        usual["delivery_complete_count"] = -1
    talk.ask(WRITE, version, **about(group, **(usual | more), state_batches=stored))


# ---- initialize


def again(talk: Talk, version: int, group: str) -> None:
    for state_epoch, start_offset in ((5, 3), (5, 3), (5, 4), (4, 5), (6, 5), (7, -1)):
        initialize(talk, group, state_epoch, start_offset)
        summarize(talk, group)
        read(talk, group)


def without_offset(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 6, 5)
    initialize(talk, group, 6, -1)
    summarize(talk, group)


def odd_numbers(talk: Talk, version: int, group: str) -> None:
    for state_epoch, start_offset in ((-1, 0), (0, -1), (3, 1_000), (2**31 - 1, 2**63 - 1)):
        initialize(talk, group, state_epoch, start_offset)
        summarize(talk, group)


def below_nothing(talk: Talk, version: int, group: str) -> None:
    for state_epoch, start_offset in ((1, -2), (2, -5)):
        initialize(talk, group, state_epoch, start_offset)


def over_batches(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 1, 0)
    write(talk, 1, group, (0, 3, ACKNOWLEDGED, 1), (4, 5, AVAILABLE, 2), leader_epoch=3)
    initialize(talk, group, 2, 2)
    read(talk, group, 3)
    summarize(talk, group)


# ---- read


def epochs_read(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 1, 3)
    for leader_epoch in (0, 5, 4, 5, 6, -1):
        read(talk, group, leader_epoch)
    summarize(talk, group)
    write(talk, 1, group, leader_epoch=5)
    write(talk, 1, group, leader_epoch=6)


def read_never_moved(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 1, -1)
    read(talk, group)
    summarize(talk, group)


def read_with_unknown(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 1, 3)
    parts = [{"partition": index, "leader_epoch": 0} for index in (0, 1, 7)]
    topics = [{"topic_id": Id(READ), "partitions": parts}, {"topic_id": NOWHERE, "partitions": parts[:1]}]
    talk.ask(READ_STATE, 0, group_id=group, topics=topics)


# ---- write


def batches_written(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 1, 0)
    write(talk, version, group, (0, 9, AVAILABLE, 1))
    read(talk, group)
    write(talk, version, group, (2, 4, ACKNOWLEDGED, 1), (7, 7, ARCHIVED, 1))
    read(talk, group)
    write(talk, version, group, (5, 6, ARCHIVED, 2), (8, 12, AVAILABLE, 2))
    read(talk, group)
    write(talk, version, group, (0, 1, ACKNOWLEDGED, 1), start_offset=8)
    read(talk, group)
    summarize(talk, group)


def neighbours(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 1, 0)
    write(talk, version, group, (2, 4, ACKNOWLEDGED, 1))
    write(talk, version, group, (5, 6, ACKNOWLEDGED, 1))
    read(talk, group)


def epochs_written(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 3, 0)
    read(talk, group, 5)
    for state_epoch, leader_epoch in ((2, 5), (4, 5), (3, 5), (3, 4), (2, 4), (4, 4), (3, -1), (-1, 5), (3, 0)):
        one = (0, 0, AVAILABLE, leader_epoch + 2)
        write(talk, version, group, one, state_epoch=state_epoch, leader_epoch=leader_epoch)
        summarize(talk, group)
    read(talk, group, 9)


def new_leader(talk: Talk, version: int, group: str) -> None:
    """A leader that writes without having read."""
    initialize(talk, group, 1, 0)
    for leader_epoch in (5, 4):
        write(talk, version, group, (0, 0, AVAILABLE, leader_epoch), leader_epoch=leader_epoch)
        summarize(talk, group)


def overlapping(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 1, 0)
    write(talk, version, group, (0, 5, AVAILABLE, 1), (3, 8, AVAILABLE, 2))
    read(talk, group)
    write(talk, version, group, (0, 8, ARCHIVED, 1))
    read(talk, group)
    write(talk, version, group, (6, 8, AVAILABLE, 1), (0, 2, ACKNOWLEDGED, 3))
    read(talk, group)


def bad_batches(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 1, 0)
    for batch in ((5, 3, AVAILABLE, 1), (0, 0, 9, 1), (0, 0, -1, 1), (0, 0, 1, 1), (-5, 2, AVAILABLE, 1)):
        write(talk, version, group, batch)


def starts_written(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 1, 3)
    for start_offset in (5, -1, 8):
        write(talk, version, group, start_offset=start_offset)
        summarize(talk, group)


def start_below_nothing(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 1, 3)
    write(talk, version, group, start_offset=-5)


def start_goes_back(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 1, 8)
    write(talk, version, group, start_offset=4)
    summarize(talk, group)


def completed(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 1, 0)
    more = {"delivery_complete_count": 2} if version else {}
    write(talk, version, group, (2, 3, ACKNOWLEDGED, 1), **more)
    summarize(talk, group)
    summarize(talk, group, version=0)
    write(talk, version, group, (4, 4, AVAILABLE, 1))
    summarize(talk, group)


def not_begun(talk: Talk, version: int, group: str) -> None:
    write(talk, version, group, (0, 1, ACKNOWLEDGED, 1), state_epoch=0, start_offset=0)
    summarize(talk, group)


# ---- delete, summarize


def deleted(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 4, 3)
    for _ in range(2):
        talk.ask(DELETE, version, **about(group))
        summarize(talk, group)
        read(talk, group)
    write(talk, 1, group, state_epoch=4)
    initialize(talk, group, 1, 7)
    summarize(talk, group)


def deleted_with_unknown(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 1, 3)
    parts = [{"partition": index} for index in (0, 1, 7)]
    topics = [{"topic_id": Id(READ), "partitions": parts}, {"topic_id": NOWHERE, "partitions": parts[:1]}]
    talk.ask(DELETE, version, group_id=group, topics=topics)


def summarized(talk: Talk, version: int, group: str) -> None:
    initialize(talk, group, 4, 3)
    for leader_epoch in (0, 5, -1):
        summarize(talk, group, version, leader_epoch)
    read(talk, group, 7)
    for leader_epoch in (0, 7, 8):
        summarize(talk, group, version, leader_epoch)
    write(talk, 1, group, (3, 3, ACKNOWLEDGED, 1), state_epoch=4, leader_epoch=7, start_offset=4)
    summarize(talk, group, version)


STORIES: dict[int, dict[str, Story]] = {
    INITIALIZE: {
        "again and again": again,
        "again without offset": without_offset,
        "odd numbers": odd_numbers,
        "offsets below -1": below_nothing,
        "over batches": over_batches,
    },
    READ_STATE: {
        "leader epochs": epochs_read,
        "a state without offset": read_never_moved,
        "known and unknown": read_with_unknown,
    },
    WRITE: {
        "batches": batches_written,
        "batches beside each other": neighbours,
        "state epochs and leader epochs": epochs_written,
        "a leader that did not read": new_leader,
        "batches that overlap": overlapping,
        "batches that cannot be": bad_batches,
        "start offsets": starts_written,
        "a start offset below -1": start_below_nothing,
        "a start offset that goes back": start_goes_back,
        "deliveries that are complete": completed,
        "before it is initialized": not_begun,
    },
    DELETE: {"a state": deleted, "known and unknown": deleted_with_unknown},
    SUMMARY: {"a state": summarized},
}
