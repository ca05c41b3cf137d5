"""Dead letters as their headers describe them, and the marks of those that were handled."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from strandline.cli.queue.dead.letters import (
    ROUNDS,
    dead_letter_of,
    letter_filter,
    letter_object,
    rounds_of,
    with_redrive_headers,
)
from strandline.cli.queue.dead.marks import HandledOffsets, mark_headers, marked_spans
from strandline.cli.records.record import Headers, ReadRecord


def record(headers: Headers, *, key: bytes | None = None, value: bytes | None = None, offset: int = 7) -> ReadRecord:
    return ReadRecord("dlq.jobs", 1, offset, 1_000, key, value, headers)


SHARE: Headers = [
    ("__dlq.errors.topic", b"jobs"),
    ("__dlq.errors.partition", b"3"),
    ("__dlq.errors.offset", b"17"),
    ("__dlq.errors.group", b"workers"),
    ("__dlq.errors.delivery.count", b"5"),
    ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
]


def test_a_dead_letter_of_a_share_group() -> None:
    own: Headers = [
        ("strandline.dlq.timestamp", b"900"),
        ("strandline.dlq.member", b"ann"),
        ("strandline.dlq.ended", b"950"),
        ("strandline.dlq.header.tenant", b"acme"),
        ("strandline.dlq.header.strandline.redrive.rounds", b"2"),
    ]
    letter = dead_letter_of(record(SHARE + own, key=b"k", value=b"v"))
    assert letter is not None
    assert (letter.kind, letter.source, letter.by, letter.deliveries) == ("share group", "jobs-3@17", "workers", 5)
    assert (letter.member, letter.source_ms, letter.ended_ms, letter.rounds) == ("ann", 900, 950, 2)
    assert letter.has_copy
    assert letter.original_headers() == [("tenant", b"acme")]
    shown = letter_object(letter, is_handled=False)
    assert (shown["key"], shown["value"], shown["source_offset"]) == ("k", "v", 17)


def test_a_dead_letter_without_content_has_no_copy() -> None:
    letter = dead_letter_of(record(SHARE))
    assert letter is not None
    assert not letter.has_copy, "Kafka's, not copied"
    letter = dead_letter_of(record([*SHARE, ("strandline.dlq.copy", b"off"), ("strandline.dlq.timestamp", b"1")]))
    assert letter is not None
    assert not letter.has_copy
    letter = dead_letter_of(record([*SHARE, ("strandline.dlq.timestamp", b"1")]))
    assert letter is not None
    assert letter.has_copy, "a record that had neither key nor value"


def test_a_dead_letter_of_a_connector() -> None:
    headers: Headers = [
        ("trace", b"t-1"),
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", b"4"),
        ("__connect.errors.connector.name", b"to-postgres"),
        ("__connect.errors.stage", b"VALUE_CONVERTER"),
        ("__connect.errors.exception.message", b"no JSON"),
        (ROUNDS, b"1"),
    ]
    letter = dead_letter_of(record(headers, value=b"x"))
    assert letter is not None
    assert (letter.kind, letter.source, letter.by) == ("connector", "orders-0@4", "to-postgres")
    assert letter.reason == "VALUE_CONVERTER: no JSON"
    assert letter.rounds == 1
    assert letter.original_headers() == [("trace", b"t-1")]


def test_a_dead_letter_of_a_pipeline() -> None:
    headers: Headers = [
        ("source.topic", b"orders"),
        ("source.partition", b"2"),
        ("source.offset", b"9"),
        ("reason", b"amount is no number"),
    ]
    letter = dead_letter_of(record(headers, value=b"x"))
    assert letter is not None
    assert (letter.kind, letter.source, letter.reason) == ("pipeline", "orders-2@9", "amount is no number")
    assert letter.original_headers() == []


def test_other_records_are_no_dead_letters_and_odd_numbers_are_unknown() -> None:
    assert dead_letter_of(record([])) is None
    assert dead_letter_of(record([("source.topic", b"a")])) is None
    letter = dead_letter_of(record([("__dlq.errors.topic", b"\xff"), ("__dlq.errors.offset", b"many")]))
    assert letter is not None
    assert (letter.offset, letter.deliveries) == (-1, None)
    assert letter.source.endswith("@?")


def test_a_redriven_record_knows_its_round_and_where_it_was() -> None:
    letter = dead_letter_of(record(SHARE, key=b"k"))
    assert letter is not None
    headers = with_redrive_headers([("a", b"b"), (ROUNDS, b"7")], letter, 2)
    assert headers == [("a", b"b"), (ROUNDS, b"2"), ("strandline.redrive.from", b"dlq.jobs-1@7")]
    assert rounds_of(headers) == 2
    assert rounds_of([]) == 0


def test_conditions_are_all_to_hold() -> None:
    letter = dead_letter_of(record(SHARE, key=b"k"))
    assert letter is not None
    assert letter_filter(by="workers", topic="jobs", reason="COUNT", where=lambda each: each.key == b"k")(letter)
    assert not letter_filter(by="others", topic=None, reason=None, where=None)(letter)
    assert not letter_filter(by=None, topic="orders", reason=None, where=None)(letter)
    assert not letter_filter(by=None, topic=None, reason="rejected", where=None)(letter)
    assert not letter_filter(by=None, topic=None, reason=None, where=lambda each: False)(letter)


@given(seed=st.integers(0, 2**32))
def test_marks_say_which_offsets_were_handled(seed: int) -> None:
    rng = random.Random(seed)
    expected: set[int] = set()
    handled = HandledOffsets()
    for _ in range(rng.randint(1, 20)):
        offsets = {rng.randrange(40) for _ in range(rng.randint(1, 6))}
        spans = marked_spans(record(mark_headers(offsets, "redriven")))
        assert spans is not None
        assert {offset for first, last in spans for offset in range(first, last + 1)} == offsets
        expected |= offsets
        for span in spans:
            handled.add(*span)
    assert {offset for offset in range(-1, 45) if offset in handled} == expected
    for (_, last), (first, _) in zip(handled.spans(), handled.spans()[1:], strict=False):
        assert last + 1 < first, "ranges that touch are one"


def test_what_is_no_range_is_left_out() -> None:
    assert marked_spans(record([("strandline.dlq.handled", b"1,x,5-3,-2,7-9,")])) == [(1, 1), (7, 9)]
    assert marked_spans(record([("strandline.dlq.handled", None)])) is None
    assert marked_spans(record([])) is None
