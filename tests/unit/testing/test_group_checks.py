"""Each anomaly of a group by the smallest history that shows it, and by the nearest one that must not."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from tests.unit.testing.histories import commit, committed, history, member, poll, send

from strandline.testing.checker import check
from strandline.testing.history import Op, load, save

WRITTEN = [send(0, "a", 0), send(0, "b", 1), send(0, "c", 2)]
A, B, C = (0, "a"), (1, "b"), (2, "c")
FULL_READ = poll(9, A, B, C, final=True)
TWO = [*WRITTEN, member(1), member(2)]
ALL_BY_FIRST = poll(1, A, B, C)

# Name: the history without its full read, and every class it shows with its count.
CASES: dict[str, tuple[list[Op], dict[str, int]]] = {
    # group-skip
    "all processed before it was committed": ([*TWO, ALL_BY_FIRST, commit(1, 3)], {}),
    "processed by several": ([*TWO, poll(1, A), commit(1, 1), poll(2, B, C), commit(2, 3)], {}),
    "processed twice": ([*TWO, poll(1, A, B), poll(2, A, B, C), commit(2, 3)], {}),
    "committed and never processed": ([*TWO, poll(1, A, B), commit(1, 3)], {"group-skip": 1}),
    "a hole is reported once": (
        [*TWO, poll(1, A), commit(1, 2), poll(1, C), commit(1, 3), committed(2, 3)],
        {"group-skip": 1},
    ),
    "processed after it was committed": ([*TWO, poll(1, A, B), commit(1, 3), poll(1, C)], {"group-skip": 1}),
    "reads a position that no member earned": ([*TWO, poll(1, A), committed(2, 2)], {"group-skip": 1}),
    "read by a process outside the group": ([*TWO, poll(3, A, B, C), commit(1, 3)], {"group-skip": 1}),
    "a commit that was refused skips nothing": ([*TWO, poll(1, A), commit(1, 3, outcome="fail")], {}),
    "a group without members is not judged": ([*WRITTEN, commit(1, 3), committed(1, 3)], {}),
    # zombie-commit
    "moved back by another": (
        [*TWO, poll(1, A), poll(2, A, B, C), commit(2, 3), commit(1, 1)],
        {"zombie-commit": 1},
    ),
    "moved back by itself": ([*TWO, ALL_BY_FIRST, commit(1, 3), commit(1, 1)], {}),
    "moved on by another": ([*TWO, poll(1, A), commit(1, 1), poll(2, B, C), commit(2, 3)], {}),
    "refused when it was a zombie": (
        [*TWO, poll(1, A), poll(2, A, B, C), commit(2, 3), commit(1, 1, outcome="fail"), committed(2, 3)],
        {},
    ),
    "back to where a late commit of the owner had moved it": (
        [*TWO, ALL_BY_FIRST, commit(1, 1, outcome="info"), commit(1, 3), poll(2, B), commit(2, 2)],
        {},
    ),
    "a late commit of a former owner": (
        [
            *TWO,
            ALL_BY_FIRST,
            commit(1, 1, outcome="info"),
            poll(2, A, B, C),
            commit(2, 3),
            commit(1, 2),
        ],
        {"zombie-commit": 1},
    ),
    # nonmonotonic-position
    "read as committed": (
        [*TWO, ALL_BY_FIRST, commit(1, 2), committed(2, 2), commit(1, 3), committed(2, 3)],
        {},
    ),
    "reads less than was acknowledged": (
        [*TWO, ALL_BY_FIRST, commit(1, 3), committed(2, 2)],
        {"nonmonotonic-position": 1},
    ),
    "read as none after a commit": (
        [*TWO, ALL_BY_FIRST, commit(1, 3), committed(2, -1)],
        {"nonmonotonic-position": 1},
    ),
    "an answer between does not hide who committed": (
        [*TWO, poll(1, A), poll(2, A, B, C), commit(2, 3), committed(2, 3), commit(1, 1)],
        {"zombie-commit": 1},
    ),
    "reads less than was read": ([*TWO, ALL_BY_FIRST, committed(1, 3), committed(2, 2)], {"nonmonotonic-position": 1}),
    "an unknown commit may come late": (
        [*TWO, ALL_BY_FIRST, commit(1, 1, outcome="info"), commit(1, 3), committed(2, 1)],
        {},
    ),
    "but not once another has committed": (
        [*TWO, ALL_BY_FIRST, commit(1, 1, outcome="info"), commit(2, 3), committed(2, 1)],
        {"nonmonotonic-position": 1},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_anomalies_of_a_group(name: str) -> None:
    ops, expected = CASES[name]
    report = check(history(*ops, FULL_READ))
    assert dict(report.counts) == expected, report


def test_an_answer_under_way_while_another_commits_is_none_from_the_past() -> None:
    """Asked before the commit was acknowledged, the coordinator may have answered before it came."""
    ops = history(*TWO, ALL_BY_FIRST, commit(1, 2), commit(1, 3), committed(2, 2), FULL_READ)
    late = replace(ops[-2], invoked_ns=ops[-3].invoked_ns)
    assert check([*ops[:-2], late, ops[-1]]).ok


def test_a_history_with_members_is_saved_and_read_back() -> None:
    ops = history(*TWO, commit(1, 0))
    file = io.StringIO()
    save(ops, file)
    file.seek(0)
    assert list(load(file)) == ops
