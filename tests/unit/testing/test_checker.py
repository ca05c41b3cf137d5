"""Each class of anomaly by the smallest history that shows it, and by the nearest one that must not."""

from __future__ import annotations

import io
import time
from dataclasses import replace

import pytest
from tests.unit.testing.histories import (
    assign,
    commit,
    committed,
    crash,
    history,
    poll,
    producer_id,
    send,
    sends,
    subscribe,
    watermark,
)

from strandline.testing.checker import EVIDENCE_MAX, check
from strandline.testing.history import Op, Poll, Send, load, save

WRITTEN = [send(0, "a", 0), send(0, "b", 1), send(0, "c", 2)]
FULL_READ = poll(9, (0, "a"), (1, "b"), (2, "c"), final=True)

# Name: the history, and every class it shows with its count.
CASES: dict[str, tuple[list[Op], dict[str, int]]] = {
    "all read": ([*WRITTEN, poll(1, (0, "a"), (1, "b")), poll(1, (2, "c")), FULL_READ], {}),
    "nothing done": ([], {}),
    # inconsistent-offsets
    "offset with two values in two polls": (
        [send(0, "a", 0), send(1, "b", None, outcome="info"), poll(2, (0, "a")), poll(3, (0, "b"))],
        {"inconsistent-offsets": 1},
    ),
    "acknowledged offset holds another value": (
        [send(0, "a", 0), send(1, "b", None, outcome="info"), poll(2, (0, "b"))],
        # What stands in a's place was read, so a was to be read too.
        {"inconsistent-offsets": 1, "lost-write": 1, "unseen": 1},
    ),
    "a poll of unknown outcome still shows what was there": (
        [send(0, "a", 0), send(1, "b", None, outcome="info"), poll(2, (0, "a")), poll(3, (0, "b"), outcome="info")],
        {"inconsistent-offsets": 1},
    ),
    "one offset in two partitions": (
        [
            send(0, "a", 0),
            send(0, "b", 0, partition="orders-1"),
            poll(1, (0, "a")),
            poll(1, (0, "b"), partition="orders-1"),
        ],
        {},
    ),
    # duplicate
    "value at two offsets": (
        [send(0, "a", 0), poll(1, (0, "a"), (1, "a"))],
        {"duplicate": 1},
    ),
    "ack names another offset than the poll": (
        [send(0, "a", 5), poll(1, (0, "a"))],
        {"duplicate": 1},
    ),
    "value read twice at one offset": ([send(0, "a", 0), poll(1, (0, "a")), poll(2, (0, "a"))], {}),
    # lost-write
    "hole below a read": (
        [*WRITTEN, poll(1, (0, "a"), (2, "c"))],
        {"lost-write": 1, "unseen": 1, "int-poll-skip": 1},
    ),
    "a write of unknown outcome may be missing": (
        [send(0, "a", 0), send(0, "b", None, outcome="info"), send(0, "c", 2), poll(1, (0, "a"), (2, "c"))],
        {},
    ),
    "a record above all reads is not lost": ([*WRITTEN, poll(1, (0, "a"), (1, "b"))], {"unseen": 1}),
    "one unknown operation is proven by any of its values": (
        [
            replace(sends(0, (0, "a"), (1, "b")), outcome="info"),
            send(0, "c", 2),
            poll(1, (0, "a")),
            poll(2, (2, "c")),
        ],
        {"lost-write": 1},
    ),
    # unseen
    "acknowledged and never read": ([send(0, "a", 0), poll(1, final=True)], {"unseen": 1}),
    "acknowledged without an offset and never read": ([send(0, "a", None)], {"unseen": 1}),
    "acknowledged without an offset and read": ([send(0, "a", None), poll(1, (7, "a"))], {}),
    "read only by a poll that failed": ([send(0, "a", 0), poll(1, (0, "a"), outcome="fail")], {"unseen": 1}),
    "failed and never read": ([send(0, "a", outcome="fail")], {}),
    # vanished
    "read once, missing at the end": (
        [send(0, "a", None, outcome="info"), poll(1, (0, "a")), poll(9, final=True)],
        {"vanished": 1},
    ),
    "missing from one of two final reads": (
        [send(0, "a", 0), poll(8, (0, "a"), final=True), poll(9, final=True)],
        {"vanished": 1},
    ),
    "final read in several calls": (
        [*WRITTEN, poll(9, (0, "a"), final=True), poll(9, (1, "b"), (2, "c"), final=True)],
        {},
    ),
    # G1a and phantom
    "a failed write was read": ([send(0, "a", outcome="fail"), poll(1, (0, "a"))], {"G1a": 1}),
    "an unknown write was read": ([send(0, "a", outcome="info"), poll(1, (0, "a"))], {}),
    "read and never sent": ([poll(1, (0, "a"))], {"phantom": 1}),
    "sent to another partition": (
        [send(0, "a", 0, partition="orders-1"), poll(1, (0, "a"), partition="orders-1"), poll(1, (0, "a"))],
        {"phantom": 1},
    ),
    # poll-skip, nonmonotonic-poll
    "next call jumps": (
        [*WRITTEN, poll(1, (0, "a")), poll(1, (2, "c")), FULL_READ],
        {"poll-skip": 1},
    ),
    "next call steps back": (
        [*WRITTEN, poll(1, (0, "a"), (1, "b")), poll(1, (0, "a"), (1, "b"), (2, "c"))],
        {"nonmonotonic-poll": 1},
    ),
    "two consumers are not compared": ([*WRITTEN, poll(1, (0, "a"), (1, "b"), (2, "c")), poll(2, (0, "a"))], {}),
    "offsets without records are no skip": (
        [send(0, "a", 0), send(0, "b", 7), poll(1, (0, "a")), poll(1, (7, "b"))],
        {},
    ),
    "a crash forgets the position": (
        [*WRITTEN, poll(1, (0, "a"), (1, "b"), (2, "c")), crash(1), poll(1, (0, "a"))],
        {},
    ),
    "first record after assign from the start is missing": (
        [*WRITTEN, assign(1, 0), poll(1, (1, "b"), (2, "c")), FULL_READ],
        {"poll-skip": 1},
    ),
    "first record after assign is before the position": (
        [*WRITTEN, assign(1, 1), poll(1, (0, "a"), (1, "b"), (2, "c"))],
        {"nonmonotonic-poll": 1},
    ),
    "assign to an offset without a record": (
        [send(0, "a", 0), send(0, "b", 7), poll(2, (0, "a")), assign(1, 3), poll(1, (7, "b"))],
        {},
    ),
    "assign with a position starts again": (
        [*WRITTEN, FULL_READ, poll(1, (2, "c")), assign(1, 0), poll(1, (0, "a"))],
        {},
    ),
    "assign without a position goes on": (
        [*WRITTEN, FULL_READ, poll(1, (0, "a")), assign(1), poll(1, (2, "c"))],
        {"poll-skip": 1},
    ),
    "assign that drops the partition starts again": (
        [*WRITTEN, FULL_READ, poll(1, (0, "a")), assign(1, partition="orders-1"), poll(1, (2, "c"))],
        {},
    ),
    "a group member may be moved": ([*WRITTEN, FULL_READ, subscribe(1), poll(1, (0, "a")), poll(1, (2, "c"))], {}),
    "a poll without outcome moves no position": (
        [*WRITTEN, poll(1, (0, "a"), outcome="info"), poll(1, (0, "a"), (1, "b"), (2, "c"))],
        {},
    ),
    # int-poll-skip, int-nonmonotonic-poll
    "a call with a hole": ([*WRITTEN, FULL_READ, poll(1, (0, "a"), (2, "c"))], {"int-poll-skip": 1}),
    "a call with a hole, even in a group": (
        [*WRITTEN, FULL_READ, subscribe(1), poll(1, (0, "a"), (2, "c"))],
        {"int-poll-skip": 1},
    ),
    "a call that steps back": (
        [*WRITTEN, FULL_READ, poll(1, (1, "b"), (0, "a"))],
        {"int-nonmonotonic-poll": 1},
    ),
    "a call during which the partition was moved": (
        [*WRITTEN, FULL_READ, poll(1, (0, "a"), (2, "c"), rebalanced=("orders-0",))],
        {},
    ),
    # nonmonotonic-send
    "a later send stands earlier": (
        [send(0, "b", 1), send(0, "a", 0), poll(1, (0, "a"), (1, "b"))],
        {"nonmonotonic-send": 1},
    ),
    "two sends at one offset": (
        [send(0, "a", 0), send(0, "b", 0), poll(1, (0, "a"))],
        {"nonmonotonic-send": 1, "inconsistent-offsets": 1, "lost-write": 1, "unseen": 1},
    ),
    "two producers in any order": ([send(0, "b", 1), send(1, "a", 0), poll(2, (0, "a"), (1, "b"))], {}),
    "two partitions in any order": (
        [
            send(0, "b", 1),
            send(0, "a", 0, partition="orders-1"),
            poll(1, (1, "b")),
            poll(1, (0, "a"), partition="orders-1"),
        ],
        {},
    ),
    "an operation in which a later send stands earlier": (
        [sends(0, (1, "b"), (0, "a")), poll(1, (0, "a"), (1, "b"))],
        {"int-nonmonotonic-send": 1},
    ),
    "an operation with another's record between two sends": (
        [sends(0, (0, "a"), (2, "c")), send(1, "b", 1), poll(2, (0, "a"), (1, "b"), (2, "c"))],
        {},
    ),
    # nonmonotonic-commit
    "a committed offset goes back": ([commit(1, 5), commit(1, 7), committed(1, 5)], {"nonmonotonic-commit": 1}),
    "what was told once goes back": ([committed(1, 7), committed(1, 5)], {"nonmonotonic-commit": 1}),
    "a commit of unknown outcome may be there or not": (
        [commit(1, 5), commit(1, 7, outcome="info"), committed(1, 5), commit(1, 9, outcome="info"), committed(1, 9)],
        {},
    ),
    "a commit that was given up comes late": ([commit(1, 5, outcome="info"), commit(1, 7), committed(1, 5)], {}),
    "a committer that goes back by its own wish": ([commit(1, 7), commit(1, 5), committed(1, 5)], {}),
    # nonmonotonic-watermark
    "high watermark goes back": ([watermark(1, 5), watermark(1, 7), watermark(1, 6)], {"nonmonotonic-watermark": 1}),
    "high watermark stands and grows": ([watermark(1, 5), watermark(1, 5), watermark(1, 6)], {}),
    "high watermarks of two clients": ([watermark(1, 5), watermark(2, 4)], {}),
    # producer-id-twice
    "producer id given twice": ([producer_id(1, 1000), producer_id(2, 1000)], {"producer-id-twice": 1}),
    "producer ids given once": ([producer_id(1, 1000), producer_id(2, 1001)], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_anomalies(name: str) -> None:
    ops, expected = CASES[name]
    report = check(history(*ops))
    assert dict(report.counts) == expected, report
    assert report.ok == (not expected)


def test_sends_are_ordered_by_call_and_not_by_acknowledgement() -> None:
    # The second record was acknowledged first; both were in flight.
    ops = [
        Op(0, "ok", "send", (Send("t-0", "b", 1),), invoked_ns=2, completed_ns=3),
        Op(0, "ok", "send", (Send("t-0", "a", 0),), invoked_ns=1, completed_ns=4),
        poll(1, (0, "a"), (1, "b"), partition="t-0"),
    ]
    assert check(ops).ok
    swapped = [replace(ops[0], invoked_ns=1), replace(ops[1], invoked_ns=2), ops[2]]
    assert dict(check(swapped).counts) == {"nonmonotonic-send": 1}


def test_removing_any_one_record_from_what_was_read_is_noticed() -> None:
    # The planted bug: a log that loses one acknowledged record, wherever it stands.
    records = [(offset, f"v{offset}") for offset in range(10)]
    written = [send(0, value, offset) for offset, value in records]
    assert check(history(*written, poll(9, *records, final=True))).ok
    for offset, _ in records:
        rest = [record for record in records if record[0] != offset]
        report = check(history(*written, poll(9, *rest, final=True)))
        assert report.counts["unseen"] == 1, f"the loss of offset {offset} was not noticed: {report}"


def test_a_value_sent_twice_is_refused_because_it_no_longer_names_a_record() -> None:
    with pytest.raises(ValueError, match="'a' was sent by op 0 and by op 1"):
        check(history(send(0, "a", 0), send(1, "a", 1)))


def test_report_reads_as_evidence() -> None:
    report = check(history(*WRITTEN, poll(1, (0, "a"), (2, "c"))))
    text = str(report)
    assert "4 operations on 1 partitions; sends: 3 ok; 2 records read" in text
    assert "no final read of orders-0" in text
    assert "lost-write: orders-0: value 'b' at offset 1 was never read, though offset 2 was [op 1]" in text
    assert "int-poll-skip: orders-0: process 1 read offset 2 ('c') after offset 0: d = 2 where 1 is due [op 3]" in text


def test_report_says_what_clients_were_told() -> None:
    timed_out = replace(send(0, "a", outcome="info"), error="timed out")
    assert "1 x send info: timed out" in str(check(history(timed_out)))


def test_report_counts_all_and_keeps_the_first() -> None:
    ops = [send(0, f"v{offset}", offset) for offset in range(EVIDENCE_MAX + 5)]
    report = check(history(*ops))
    assert report.counts["unseen"] == EVIDENCE_MAX + 5
    assert len(report.anomalies) == EVIDENCE_MAX
    assert f"the first {EVIDENCE_MAX} of them" in str(report)


def test_history_survives_saving_and_loading() -> None:
    ops = history(
        *WRITTEN,
        replace(send(0, 'ä\n"', outcome="info"), error="timed out"),
        poll(1, (0, "a"), final=True, rebalanced=("orders-0",)),
        assign(1, 0),
        assign(1),
        subscribe(1),
        crash(1),
        watermark(1, 5),
        producer_id(2, 7),
    )
    file = io.StringIO()
    save(ops, file)
    assert file.getvalue().count("\n") == len(ops)
    file.seek(0)
    assert list(load(file)) == ops


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"process":1,"outcome":"ok","f":"send","mops":[["x"]]}'])
def test_a_line_that_is_no_operation_is_named(line: str) -> None:
    file = io.StringIO()
    save(WRITTEN, file)
    file.write(line + "\n")
    file.seek(0)
    with pytest.raises(ValueError, match="line 4 of the history"):
        list(load(file))


@pytest.mark.slow
def test_a_large_history_is_checked_in_one_pass_over_its_records() -> None:
    # 150,000 sends and 150,000 polls over four partitions, because a quadratic check shows only at such a size. Time is
    # not asserted; a quadratic check would hit the limit that pytest sets for a test.
    ops: list[Op] = []
    for partition in range(4):
        name = f"orders-{partition}"
        for offset in range(37_500):
            value = f"{partition}:{offset}"
            ops.append(Op(partition, "ok", "send", (Send(name, value, offset),), invoked_ns=len(ops)))
            records = tuple((read, f"{partition}:{read}") for read in range(max(0, offset - 4), offset + 1))
            ops.append(Op(1000 + len(ops), "ok", "poll", (Poll(name, records),), invoked_ns=len(ops)))
    started_s = time.perf_counter()
    report = check(ops)
    print(f"{len(ops)} operations, {report.reads} reads: {time.perf_counter() - started_s:.2f} s")
    assert report.ok, report
    assert report.reads > 700_000


def test_the_lag_of_a_reader_counts_from_when_its_next_record_was_known() -> None:
    # Calls and outcomes take turns: the first send is over at 1, the second at 3, and so on.
    followed = history(send(0, "a", 0), poll(1, (0, "a")), send(0, "b", 1), poll(1, (1, "b")))
    assert check(followed).realtime_lag_ns == 1
    late = history(send(0, "a", 0), send(0, "b", 1), poll(2, (0, "a"), (1, "b")), poll(1, (0, "a")), poll(1, (1, "b")))
    # Process 1 asks at 6 for what was there at 1, and at 8 for what was there at 3.
    assert check(late).realtime_lag_ns == 8 - 3
    again = history(send(0, "a", 0), poll(1, (0, "a")), assign(1, 0), poll(1, (0, "a")))
    assert check(again).realtime_lag_ns == 1
