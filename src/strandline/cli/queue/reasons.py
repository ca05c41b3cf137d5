"""Why a record is not delivered, in one sentence (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from strandline.cli.common.plain_words import count
from strandline.codec.messages.share_delivery_response import DeliveredRange, DeliveryNote, PartitionDelivery

AVAILABLE: Final = 0
ACQUIRED: Final = 1
ACCEPTED: Final = 2
ARCHIVING: Final = 3
GAP: Final = 5
UNTIL_TIME: Final = 1
BEHIND_KEY: Final = 2
"""Why an available record is held back."""
NO_OFFSET: Final = -1

COPIED: Final = "copied to the dead letters"
_ENDS: Final = ("accepted", "rejected", "archived")
"""Events after which a record is not delivered again."""


@dataclass(frozen=True)
class TaskFacts:
    """What is known of one record and its delivery."""

    offset: int
    delivery: PartitionDelivery
    delivery_count_limit: int
    stored_start: int = NO_OFFSET
    """The first offset that is not done, as it was last stored."""
    members: Mapping[str, str] = field(default_factory=dict)
    """Names of members by their ids."""
    members_reading: int = 0
    """Members to which the partition is assigned."""
    due_ms: int | None = None
    """When the record is due, if its topic delays records; by the clock of this machine."""
    now_ms: int = 0

    def name(self, member_id: str | None) -> str:
        known = self.members.get(member_id or "")
        return f"{known} ({member_id})" if known else f"member {member_id}, which has left"

    @property
    def events(self) -> Sequence[DeliveryNote]:
        return self.delivery.events

    @property
    def range(self) -> DeliveredRange | None:
        return next(
            (each for each in self.delivery.ranges if each.first_offset <= self.offset <= each.last_offset), None
        )


@dataclass(frozen=True)
class TaskReason:
    """One sentence, a word for scripts, and whether the record will never be delivered although it was not accepted."""

    state: str
    text: str
    is_dead: bool = False


def reason(facts: TaskFacts) -> TaskReason:
    """Say what a record waits for, or what became of it."""
    delivery, offset = facts.delivery, facts.offset
    if offset >= delivery.high_watermark:
        return TaskReason("absent", f"there is no such record yet: the log ends at {delivery.high_watermark}")
    start = facts.stored_start if delivery.start_offset == NO_OFFSET else delivery.start_offset
    if start != NO_OFFSET and offset < start:
        return _done(facts)
    if offset < delivery.log_start_offset:
        return TaskReason("deleted", f"it was deleted: the log begins at {delivery.log_start_offset}", is_dead=True)
    found = facts.range
    if found is not None and found.state != AVAILABLE:
        return _held(facts, found)
    if facts.due_ms is not None and facts.due_ms > facts.now_ms:
        wait_s = (facts.due_ms - facts.now_ms + 999) // 1000
        return TaskReason("delayed", f"it is not due: its topic delays records until their timestamp, in {wait_s:,} s")
    if found is not None and found.held == BEHIND_KEY:
        return TaskReason("behind", "it waits for an earlier record of its key, because the group has share.order=key")
    if found is not None and found.held == UNTIL_TIME:
        return TaskReason("backed off", f"it waits after {_times(facts, found)}, before it is delivered again")
    if not facts.members_reading:
        return TaskReason("unread", "no member of the group reads its partition: start a worker")
    if found is not None:
        again = f"it was released after {_times(facts, found)}, and " if found.delivery_count else "it "
        return TaskReason("available", f"{again}waits for the next fetch of a member")
    before = offset - max(delivery.end_offset, start)
    return TaskReason(
        "waiting",
        f"it was not delivered yet: {count(before, 'record')} before it"
        if before > 0
        else "it is the next one to be delivered, when a member fetches and its partition has room for a lock",
    )


def _times(facts: TaskFacts, found: DeliveredRange) -> str:
    return f"delivery {found.delivery_count} of {facts.delivery_count_limit}"


def _held(facts: TaskFacts, found: DeliveredRange) -> TaskReason:
    if found.state == ACQUIRED:
        attempt = f"delivery {found.delivery_count} of {facts.delivery_count_limit}"
        wait_s = (found.lock_ms + 999) // 1000
        return TaskReason(
            "acquired",
            f"{facts.name(found.member_id)} has it for {wait_s:,} s more, unless it renews its lock ({attempt})",
        )
    if found.state == ACCEPTED:
        return TaskReason("accepted", "it was accepted; records before it are not done")
    if found.state == GAP:
        return TaskReason("none", "the log has no record there: a transaction marker, or it was compacted")
    if found.state == ARCHIVING:
        return TaskReason("archiving", "it goes to the dead letters", is_dead=True)
    return _done(facts, found.delivery_count)


def _done(facts: TaskFacts, delivery_count: int = 0) -> TaskReason:
    """Say how a record ended, and whether a copy of it is a dead letter."""
    found = _end(facts, delivery_count)
    is_copied = any(event.what == COPIED for event in facts.events)
    return replace(found, text=f"{found.text}; its copy is in the dead-letter topic") if is_copied else found


def _end(facts: TaskFacts, delivery_count: int) -> TaskReason:
    """Say how a record ended, from the last event that the leader remembers."""
    for event in reversed(facts.events):
        if event.what in _ENDS:
            if event.what == "accepted":
                return TaskReason("accepted", f"it was accepted by {facts.name(event.member_id)}")
            if event.what == "rejected":
                return TaskReason("rejected", f"it was rejected by {facts.name(event.member_id)}", is_dead=True)
            return TaskReason(
                "archived",
                f"it was archived: delivered {count(event.delivery_count, 'time')}, and never accepted",
                is_dead=True,
            )
    if delivery_count:
        at_limit = delivery_count >= facts.delivery_count_limit
        how = "as often as the group allows" if at_limit else "and then rejected"
        return TaskReason(
            "archived", f"it was archived: delivered {count(delivery_count, 'time')}, {how}", is_dead=True
        )
    return TaskReason(
        "done", "it is done: accepted, rejected or archived; its leader no longer remembers which of them"
    )
