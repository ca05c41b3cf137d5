"""The sum that `make test` closes with."""

from __future__ import annotations

import pytest
from tests.lanes import closing_counts


@pytest.mark.parametrize(
    ("closing", "counts"),
    [
        ("3 passed, 1 deselected in 61.65s (0:01:01)", {"passed": 3, "deselected": 1}),
        ("===== 1 failed, 2 passed, 1 warning in 0.20s =====", {"failed": 1, "passed": 2, "warning": 1}),
        ("no tests ran in 0.01s", {}),
    ],
)
def test_only_the_closing_line_of_pytest_counts(closing: str, counts: dict[str, int]) -> None:
    text = f"21247 failed\n5.00s call  tests/x.py::test[4 failed in 2]\n{closing}\n7 passed on by a thread, 9 failed\n"
    assert closing_counts(text) == counts
