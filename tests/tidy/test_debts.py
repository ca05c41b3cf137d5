"""The tree keeps its rules, but for a list of exceptions that may only become shorter."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest
from tests.tidy.debts import MEASURES, known


@cache
def measured(measure: str) -> Mapping[str, int]:
    """Return what a measure finds, once for both tests of it."""
    return MEASURES[measure]()


@pytest.mark.parametrize("measure", sorted(MEASURES))
def test_no_debt_grows(measure: str) -> None:
    found, excepted = measured(measure), known()[measure]
    grown = {name: count for name, count in found.items() if count > excepted.get(name, 0)}
    assert not grown, f"{measure}: {MEASURES[measure].__doc__}\n{grown}"


@pytest.mark.parametrize("measure", sorted(MEASURES))
def test_a_debt_that_was_paid_is_struck_out(measure: str) -> None:
    found, excepted = measured(measure), known()[measure]
    paid = {name: count for name, count in excepted.items() if count > found.get(name, 0)}
    assert not paid, f"{measure}: run `python -m tests.tidy.debts`, which removes {paid}"
