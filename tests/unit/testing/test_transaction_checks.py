"""Each anomaly of transactions by the smallest history that shows it, and by the nearest one that must not."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from tests.unit.testing.histories import history, poll

from strandline.testing.checker import check
from strandline.testing.history import Committed, Consumed, Op, Outcome, Send, load, save

LEDGER, MIRROR = "ledger-0", "mirror-0"


def txn(
    process: int, *sends: tuple[str, str, int], takes: tuple[int, int] | None = None, outcome: Outcome = "ok"
) -> Op:
    """A transaction that wrote (partition, value, offset), and took offsets of `orders-0`."""
    mops: list[Send | Consumed | Committed] = [Send(*each) for each in sends]
    if takes is not None:
        mops += [Consumed("copiers", "orders-0", *takes), Committed("copiers", "orders-0", takes[1])]
    return Op(process, outcome, "txn", tuple(mops))


def stands(offset: int) -> Op:
    mop = Committed("copiers", "orders-0", offset)
    return Op(9, "ok", "read_committed_offset", (mop,), final=True)


A, B = (LEDGER, "a", 0), (MIRROR, "b", 0)
BOTH = [txn(1, A, B)]
READ_A = poll(2, (0, "a"), partition=LEDGER)
FINAL_A = poll(8, (0, "a"), partition=LEDGER, final=True)
FINAL_B = poll(8, (0, "b"), partition=MIRROR, final=True)
NO_B = poll(8, partition=MIRROR, final=True)
NO_A = poll(8, partition=LEDGER, final=True)

# Name: the history, and every class it shows with its count.
CASES: dict[str, tuple[list[Op], dict[str, int]]] = {
    # torn, G1a
    "seen whole": ([*BOTH, FINAL_A, FINAL_B], {}),
    "unknown, and seen whole": ([txn(1, A, B, outcome="info"), FINAL_A, FINAL_B], {}),
    "unknown, and never seen": ([txn(1, A, B, outcome="info"), NO_A, NO_B], {}),
    "unknown, and torn": ([txn(1, A, B, outcome="info"), FINAL_A, NO_B], {"torn": 1}),
    "acknowledged, and torn": ([*BOTH, FINAL_A, NO_B], {"torn": 1, "unseen": 1}),
    "aborted, and not seen": ([txn(1, A, B, outcome="fail"), NO_A, NO_B], {}),
    "aborted, and read": ([txn(1, A, B, outcome="fail"), READ_A, FINAL_A, NO_B], {"G1a": 1}),
    "acknowledged, and never seen": ([*BOTH, NO_A, NO_B], {"unseen": 2}),
    # precommitted-read
    "read before its commit was asked for": ([READ_A, *BOTH, FINAL_A, FINAL_B], {"precommitted-read": 1}),
    "aborted and read before that": (
        [READ_A, txn(1, A, outcome="fail"), FINAL_A],
        {"G1a": 1},
    ),
    # doubled, skipped
    "side by side": (
        [txn(1, A, takes=(0, 5)), txn(2, B, takes=(5, 8)), FINAL_A, FINAL_B, stands(8)],
        {},
    ),
    "consumed twice": (
        [txn(1, A, takes=(0, 5)), txn(2, B, takes=(3, 8)), FINAL_A, FINAL_B, stands(8)],
        {"doubled": 1},
    ),
    "consumed once and tried once": (
        [txn(1, A, takes=(0, 5), outcome="info"), txn(2, B, takes=(0, 5)), NO_A, FINAL_B, stands(5)],
        {},
    ),
    "unknown, seen, and consumed again": (
        [txn(1, A, takes=(0, 5), outcome="info"), txn(2, B, takes=(0, 5)), FINAL_A, FINAL_B, stands(5)],
        {"doubled": 1},
    ),
    "a hole": (
        [txn(1, A, takes=(0, 5)), txn(2, B, takes=(6, 8)), FINAL_A, FINAL_B, stands(8)],
        {"skipped": 1},
    ),
    "a position without its transaction": ([txn(1, A, takes=(0, 5)), FINAL_A, stands(8)], {"skipped": 1}),
    "a transaction without its position": ([txn(1, A, takes=(0, 5)), FINAL_A, stands(0)], {"doubled": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_class_is_found_where_it_is_and_nowhere_else(name: str) -> None:
    ops, expected = CASES[name]
    assert dict(check(history(*ops)).counts) == expected


def test_a_read_that_ends_after_the_commit_was_asked_for_is_well() -> None:
    ops = history(READ_A, *BOTH, FINAL_A, FINAL_B)
    assert check([replace(ops[0], completed_ns=ops[1].invoked_ns), *ops[1:]]).ok


def test_a_transaction_that_reads_its_own_records_is_found() -> None:
    op = Op(1, "ok", "txn", (Send(*A), *poll(1, (0, "a"), partition=LEDGER).mops))
    assert dict(check(history(op, FINAL_A)).counts) == {"precommitted-read": 1}


def test_a_history_with_transactions_is_saved_and_read_back() -> None:
    ops = history(txn(1, A, B, takes=(0, 5)))
    file = io.StringIO()
    save(ops, file)
    file.seek(0)
    assert list(load(file)) == ops
