"""Why a record is not delivered: every state that a leader tells, in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.cli.common.failures import UsageFailed
from strandline.cli.doctor.queues import findings_of
from strandline.cli.queue.queue_state import QueueDelivery
from strandline.cli.queue.reasons import COPIED, TaskFacts, reason
from strandline.cli.queue.task_place import parse_task, task_name
from strandline.codec.messages.share_delivery_response import DeliveredRange, DeliveryNote, PartitionDelivery

NOW_MS = 1_000_000


def facts(offset: int = 5, *, held: list[DeliveredRange] | None = None, **fields: Any) -> TaskFacts:
    delivery = PartitionDelivery(start_offset=2, end_offset=10, log_start_offset=0, high_watermark=20)
    delivery.ranges = held or []
    delivery.events = fields.pop("events", [])
    for name in ("start_offset", "end_offset", "log_start_offset"):
        setattr(delivery, name, fields.pop(name, getattr(delivery, name)))
    known = {"members_reading": 1, "now_ms": NOW_MS, "members": {"m1": "mailer@host"}} | fields
    return TaskFacts(offset, delivery, 5, **known)


def state(state: int, count: int = 1, **fields: Any) -> list[DeliveredRange]:
    return [DeliveredRange(first_offset=4, last_offset=6, state=state, delivery_count=count, **fields)]


def event(what: str, count: int = 0) -> DeliveryNote:
    return DeliveryNote(at_ms=1, what=what, first_offset=5, last_offset=5, delivery_count=count, member_id="m1")


@pytest.mark.parametrize(
    ("known", "expected", "words"),
    [
        (facts(20), "absent", "the log ends at 20"),
        (facts(5, log_start_offset=6), "deleted", "the log begins at 6"),
        (facts(held=state(1, 2, member_id="m1", lock_ms=11_200)), "acquired", "mailer@host (m1) has it for 12 s more"),
        (facts(held=state(1, 2, member_id="m2", lock_ms=1)), "acquired", "member m2, which has left"),
        (facts(held=state(2)), "accepted", "records before it are not done"),
        (facts(held=state(3)), "archiving", "dead letters"),
        (facts(held=state(4, 5)), "archived", "delivered 5 times, as often as the group allows"),
        (facts(held=state(4, 2)), "archived", "delivered 2 times, and then rejected"),
        (facts(held=state(4, 2), events=[event("rejected")]), "rejected", "rejected by mailer@host (m1)"),
        (facts(held=state(5)), "none", "the log has no record there"),
        (facts(held=state(0, 0)), "available", "it waits for the next fetch of a member"),
        (facts(held=state(0, 3)), "available", "it was released after delivery 3 of 5"),
        (facts(held=state(0, 3, held=1)), "backed off", "it waits after delivery 3 of 5"),
        (facts(held=state(0, 0, held=2)), "behind", "share.order=key"),
        (facts(held=state(0, 0, held=1), due_ms=NOW_MS + 1_500), "delayed", "in 2 s"),
        (facts(12, due_ms=NOW_MS + 60_000), "delayed", "in 60 s"),
        (facts(12, due_ms=NOW_MS), "waiting", "2 records before it"),
        (facts(10), "waiting", "it is the next one"),
        (facts(held=state(0, 1), members_reading=0), "unread", "start a worker"),
        (facts(1), "done", "no longer remembers"),
        (facts(1, events=[event("acquired", 1), event("accepted")]), "accepted", "accepted by mailer@host (m1)"),
        (facts(1, events=[event("rejected")]), "rejected", "rejected by mailer@host (m1)"),
        (
            facts(1, events=[event("released"), event("archived", 5)]),
            "archived",
            "delivered 5 times, and never accepted",
        ),
        (
            facts(1, events=[event("rejected"), event(COPIED)]),
            "rejected",
            "rejected by mailer@host (m1); its copy is in the dead-letter topic",
        ),
        (facts(5, start_offset=-1, stored_start=3, members_reading=0), "unread", "start a worker"),
        (facts(2, start_offset=-1, stored_start=3, members_reading=0), "done", "it is done"),
    ],
)
def test_a_reason(known: TaskFacts, expected: str, words: str) -> None:
    found = reason(known)
    assert (found.state, words in found.text) == (expected, True), found.text
    assert found.is_dead == (expected in ("deleted", "archiving", "archived", "rejected"))


def test_names_of_tasks() -> None:
    assert parse_task("my-topic.v1-12@4711") == (("my-topic.v1", 12), 4711)
    assert task_name(("my-topic.v1", 12), 4711) == "my-topic.v1-12@4711"
    for wrong in ("mails", "mails-0", "mails@3", "mails-x@3", "mails-0@-1", "a b-0@1"):
        with pytest.raises(UsageFailed):
            parse_task(wrong)


def test_the_doctor_names_what_fails_again_and_again() -> None:
    poison = PartitionDelivery(ranges=[*state(0, 4), *state(1, 3), *state(4, 5)])
    (found,) = findings_of("workers", QueueDelivery(5, 30_000, NOW_MS, {("mails", 0): poison}))
    assert found.text == "share group workers has delivered 3 tasks 4 times or more: mails-0@4"
    ended = PartitionDelivery(events=[event("released"), event("archived", 5)])
    (found,) = findings_of("workers", QueueDelivery(5, 30_000, NOW_MS, {("mails", 0): ended}))
    assert found.text == "share group workers has lately given up 1 task: mails-0@5"
    assert "strandline queue why workers mails-0@5" in found.advice
    assert not list(findings_of("workers", QueueDelivery(5, 30_000, NOW_MS, {("mails", 0): PartitionDelivery()})))
