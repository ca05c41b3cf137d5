"""Short words for the records of the commit log."""

from __future__ import annotations

import uuid

from strandline.tiers.wal.events import Key, LeadersClaimed, ObjectCommitted, ObjectId, ProducerNote, RangeCommit

TOPIC_A, TOPIC_B = uuid.UUID(int=1), uuid.UUID(int=2)
PLACE_A, PLACE_B = (TOPIC_A, 0), (TOPIC_B, 3)


def object_id(number: int, *, broker: int = 1, epoch: int = 10) -> ObjectId:
    return ObjectId(broker, epoch, number)


def claim(broker: int, broker_epoch: int, *places: Key, epoch: int = 0) -> LeadersClaimed:
    return LeadersClaimed(broker, broker_epoch, tuple((*each, epoch) for each in places))


def piece(
    place: Key, base: int, end: int, *, leader_epoch: int = 0, notes: tuple[ProducerNote, ...] = ()
) -> RangeCommit:
    return RangeCommit(*place, leader_epoch, base, end, 100, 50, 7, 1234, notes)


def commit(object_id: ObjectId, *ranges: RangeCommit) -> ObjectCommitted:
    return ObjectCommitted(object_id, 1000, 5000, ranges)


def note(kind: int, producer_id: int, sequence: int, last_offset: int, delta: int) -> ProducerNote:
    return ProducerNote(kind, producer_id, 0, sequence, last_offset, delta, 77)
