"""A node answers as Apache Kafka does, or differs in a way that is listed with its reason."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from tests.differential.case import FRAMES, api_name
from tests.differential.cases import CASES
from tests.differential.cases_metadata import SERVED
from tests.differential.comparison import unlike
from tests.differential.differences import DIFFERENCES, GENERAL, difference_of
from tests.differential.page import page
from tests.differential.recording import Outcome
from tests.differential.words import request_class

from strandline.broker.network.routes import OWN_APIS_FROM, Route, routes

ROUTES = [route for route in routes().values() if route.api_key < OWN_APIS_FROM]
CASES_PER_VERSION_MIN = 3


@pytest.mark.parametrize("api_key", [FRAMES, *SERVED], ids=lambda key: "frames" if key == FRAMES else api_name(key))
def test_answers_are_kafkas_or_listed(ours: dict[str, Outcome], theirs: dict[str, Outcome], api_key: int) -> None:
    wrong = []
    for case in CASES:
        if case.api_key != api_key:
            continue
        found, listed = unlike(ours[case.name], theirs[case.name]), difference_of(case.name)
        expected = ("", "") if listed is None else (listed.ours, listed.theirs)
        if (found.ours, found.theirs) != expected:
            wrong.append(
                f"{case.name}\n  we say     {found.ours}\n  Kafka says {found.theirs}\n  listed     {expected}"
            )
    assert not wrong, f"{len(wrong)} answers:\n" + "\n".join(wrong)


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda each: each.cases)
def test_every_listed_difference_is_about_a_case(difference: tuple[str, ...]) -> None:
    assert any(fnmatchcase(case.name, difference[0]) for case in CASES)


def test_every_general_difference_is_met(ours: dict[str, Outcome], theirs: dict[str, Outcome]) -> None:
    met = {kind for name in theirs for kind in unlike(ours[name], theirs[name]).general}
    assert met == GENERAL.keys()


def test_the_recording_is_of_these_cases(theirs: dict[str, Outcome]) -> None:
    assert theirs.keys() == {case.name for case in CASES}, "run `python -m tests.differential.record`"
    assert len(CASES) == len({case.name for case in CASES})


def test_all_that_is_served_is_compared() -> None:
    assert {route.api_key for route in ROUTES} == set(SERVED)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_version_is_compared(route: Route) -> None:
    counts = Counter(case.version for case in CASES if case.api_key == route.api_key)
    few = [at for at in range(route.version_min, route.version_max + 1) if counts[at] < wanted(route, at)]
    assert not few, f"versions {few} of {route.name} have too few cases"


def wanted(route: Route, version: int) -> int:
    """A request without fields can be put in one way only."""
    fields = [field for field in request_class(route.api_key).FIELDS if field.present(version)]
    return min(CASES_PER_VERSION_MIN, 1 + len(fields))


def test_the_page_lists_them_all() -> None:
    written = Path(__file__).parents[2] / "docs" / "differences.md"
    assert written.read_text() == page(), "run `python -m tests.differential.page > docs/differences.md`"
