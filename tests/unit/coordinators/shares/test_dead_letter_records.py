"""What is written for a dead letter, to which topics it may go, and what a note says."""

from __future__ import annotations

from uuid import UUID

import pytest

from strandline.codec.columns import Record
from strandline.coordinators.shares.dead_letters.covered_offsets import (
    CoveredOffsets,
    decode_note,
    encode_note,
    joined,
    sink_of_share,
)
from strandline.coordinators.shares.dead_letters.dead_letter_records import DeadSource, dead_letter, size_of
from strandline.coordinators.shares.dead_letters.dead_letter_rules import why_refused
from strandline.coordinators.shares.delivery.dead_ranges import DeadRange, DeathCause
from strandline.coordinators.shares.share_state import SharePartitionKey
from strandline.coordinators.transactions.batches import SINK_ID_CHARACTERS_MAX, is_sink_id

SOURCE = DeadSource("workers", "jobs", 3, delivery_count_limit=5, is_copied=True)
RECORD = Record(17, 900, b"k", b"v", (("a", b"1"), ("a", None)))
ALLOWED = {"errors.deadletterqueue.group.enable": "TRUE"}


def test_a_copy_has_the_headers_of_kafka_and_ours() -> None:
    letter = DeadRange(17, 17, 2, DeathCause.REJECTED, "ann", acquired_ms=950, ended_ms=960)
    written = dead_letter(SOURCE, letter, 17, RECORD, now_ms=1_000)
    assert (written.timestamp_ms, written.key, written.value) == (1_000, b"k", b"v")
    assert written.headers == (
        ("__dlq.errors.topic", b"jobs"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"17"),
        ("__dlq.errors.group", b"workers"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"Offset rejected by client."),
        ("strandline.dlq.timestamp", b"900"),
        ("strandline.dlq.member", b"ann"),
        ("strandline.dlq.acquired", b"950"),
        ("strandline.dlq.ended", b"960"),
        ("strandline.dlq.header.a", b"1"),
        ("strandline.dlq.header.a", None),
    )
    assert size_of(written) > sum(len(name) for name, _ in written.headers)


@pytest.mark.parametrize(
    ("source", "letter", "record", "why"),
    [
        (SOURCE._replace(is_copied=False), DeadRange(17, 17, 5), RECORD, b"off"),
        (SOURCE, DeadRange(17, 17, 5), None, b"gone"),
        (SOURCE, DeadRange(17, 17, 5, is_bare=True), RECORD, b"too large"),
    ],
)
def test_without_content_it_says_why(source: DeadSource, letter: DeadRange, record: Record | None, why: bytes) -> None:
    written = dead_letter(source, letter, 17, record, now_ms=1)
    assert (written.key, written.value, dict(written.headers)["strandline.dlq.copy"]) == (None, None, why)
    assert not any(name.startswith("strandline.dlq.header.") for name, _ in written.headers)


@pytest.mark.parametrize(
    ("count", "message"),
    [(4, b"Offset rejected by client."), (5, b"Offset delivery count exceeded the threshold.")],
)
def test_after_a_change_of_leaders_the_cause_is_inferred(count: int, message: bytes) -> None:
    written = dead_letter(SOURCE, DeadRange(1, 1, count), 1, None, now_ms=1)
    assert dict(written.headers)["__dlq.errors.message"] == message


@pytest.mark.parametrize(
    ("name", "settings", "prefix", "is_created", "words"),
    [
        ("dlq.jobs", ALLOWED, "dlq.", False, None),
        ("dead", ALLOWED, "", False, None),
        ("dlq.jobs", None, "dlq.", True, None),
        ("dlq.jobs", None, "dlq.", False, "does not exist"),
        ("dlq.jobs", {}, "dlq.", True, "takes no dead letters"),
        ("dead", ALLOWED, "dlq.", True, "does not begin with"),
        ("__dlq.jobs", ALLOWED, "", True, "begins with __"),
        ("jobs", ALLOWED, "", True, "the topic that the group reads"),
    ],
)
def test_which_topics_may_take_dead_letters(
    name: str, settings: dict[str, str] | None, prefix: str, is_created: bool, words: str | None
) -> None:
    found = why_refused(name, settings, source="jobs", prefix=prefix, is_created=is_created)
    assert found is None if words is None else found is not None and words in found


def test_a_note_is_read_as_it_was_written() -> None:
    covered = CoveredOffsets(3, ((1, 4), (9, 9)))
    assert decode_note(encode_note(covered, group_id="w", topic="jobs", partition=0)) == covered
    assert decode_note(b"") is None
    for other in (b"{", b"[]", b"{}", b'{"state_epoch":1,"offsets":[1]}', b'{"state_epoch":"x","offsets":[]}'):
        with pytest.raises(ValueError, match=r".+"):
            decode_note(other)
    assert joined([(5, 6), (1, 2), (3, 3), (6, 9)]) == ((1, 3), (5, 9))


def test_every_share_partition_has_a_sink_of_its_own() -> None:
    keys = [
        SharePartitionKey(group, UUID(int=topic), partition)
        for group in ("a", "a#b", "ö" * 249, "x" * 60_000)
        for topic in (1, 2)
        for partition in (0, 1)
    ]
    sinks = {sink_of_share(key) for key in keys}
    assert len(sinks) == len(keys)
    assert all(is_sink_id(each) and len(each) <= SINK_ID_CHARACTERS_MAX for each in sinks)
