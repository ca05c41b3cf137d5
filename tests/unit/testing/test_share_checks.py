"""Each anomaly of a share group by the smallest history that shows it, and by the nearest one that must not."""

from __future__ import annotations

import io

import pytest
from tests.unit.testing.histories import P, history, poll, send

from strandline.testing.checker import check
from strandline.testing.history import Acknowledged, Acquired, Op, Outcome, SharePosition, load, save

LIMIT = 3


def given(process: int, *offsets: int, count: int = 1, key: str | None = None, early_ms: int = 0) -> Op:
    mops = tuple(Acquired("workers", P, offset, count, key, early_ms) for offset in offsets)
    return Op(process, "ok", "share_fetch", mops)


def unanswered(process: int) -> Op:
    return Op(process, "info", "share_fetch", (Acquired("workers", P, -1, 0),))


def done(process: int, offset: int, kind: str = "accept", *, count: int = 1, outcome: Outcome = "ok") -> Op:
    return Op(process, outcome, "share_acknowledge", (Acknowledged("workers", P, offset, count, kind),))


def start(offset: int) -> Op:
    return Op(8, "ok", "share_start", (SharePosition("workers", P, offset, LIMIT),), final=True)


WRITTEN = [send(0, "a", 0), send(0, "b", 1)]
FULL_READ = poll(9, (0, "a"), (1, "b"), final=True)

CASES: dict[str, tuple[list[Op], dict[str, int]]] = {
    "all accepted": ([given(1, 0, 1), done(1, 0), done(1, 1), start(2)], {}),
    "released and given to another": (
        [given(1, 0, 1), done(1, 0, "release"), done(1, 1), given(2, 0, count=2), done(2, 0, count=2), start(2)],
        {},
    ),
    "rejected": ([given(1, 0, 1), done(1, 0, "reject"), done(1, 1), start(2)], {}),
    # double-acquire
    "accepted by two": (
        [given(1, 0, 1), given(2, 0, count=2), done(1, 0), done(2, 0, count=2), done(1, 1), start(2)],
        {"double-acquire": 1},
    ),
    "given after it was accepted": (
        [given(1, 0, 1), done(1, 0), given(2, 0, count=2), done(2, 0, "release", count=2), done(1, 1), start(2)],
        {"double-acquire": 1},
    ),
    "given by a leader that was replaced": (
        [given(1, 0, 1), done(1, 0), given(2, 0), done(2, 0, outcome="fail"), done(1, 1), start(2)],
        {},
    ),
    # early-delay
    "given early": ([given(1, 0, early_ms=5), done(1, 0), given(1, 1), done(1, 1), start(2)], {"early-delay": 1}),
    # reordered-key
    "one key in order": ([given(1, 0, key="k"), done(1, 0), given(2, 1, key="k"), done(2, 1), start(2)], {}),
    "one key at once": (
        [given(1, 0, key="k"), given(2, 1, key="k"), done(1, 0), done(2, 1), start(2)],
        {"reordered-key": 1},
    ),
    "two keys at once": ([given(1, 0, key="k"), given(2, 1, key="l"), done(1, 0), done(2, 1), start(2)], {}),
    # lost-task and stuck-task
    "never given": ([given(1, 0), done(1, 0), start(2)], {"lost-task": 1}),
    "given as often as may be": ([given(1, 0, 1), done(1, 0), given(1, 1, count=LIMIT), start(2)], {}),
    "perhaps given as often as may be": (
        [given(1, 0, 1), done(1, 0), unanswered(1), unanswered(1), start(2)],
        {},
    ),
    "accepted perhaps": ([given(1, 0, 1), done(1, 0), done(1, 1, outcome="info"), start(2)], {}),
    "accepted for certain not": ([given(1, 0, 1), done(1, 0), done(1, 1, outcome="fail"), start(2)], {"lost-task": 1}),
    "not done": ([given(1, 0), done(1, 0), start(1)], {"stuck-task": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_anomalies(name: str) -> None:
    ops, counts = CASES[name]
    assert check(history(*WRITTEN, *ops, FULL_READ)).counts == counts


def test_a_history_is_saved_and_loaded() -> None:
    ops = history(*WRITTEN, *CASES["given early"][0])
    file = io.StringIO()
    save(ops, file)
    file.seek(0)
    assert list(load(file)) == ops
