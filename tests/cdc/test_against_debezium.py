"""Our records of every profile are those that a live Debezium made, except for the differences that are listed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from _pytest.mark import ParameterSet
from bench.cdc_engine.jars import DEBEZIUM_VERSION
from tests.cdc import differences
from tests.cdc.comparing import MISSING, EventLeaf, leaves
from tests.cdc.ours import replayed
from tests.cdc.profiles import PROFILES
from tests.cdc.recorded import DIRECTORY, file_of, recording
from tests.connect.postgres_server import the_server

_PAGE: Final = Path(__file__).parents[2] / "docs" / "cdc-differences.md"
_BYTES_MAX: Final = 1_000_000
_SHOWN_MAX: Final = 20


def _parameters() -> Iterator[ParameterSet]:
    for each in PROFILES.values():
        marks = [] if each.is_default else [pytest.mark.slow]
        if each.name in differences.PENDING:
            marks.append(pytest.mark.xfail(reason=differences.PENDING[each.name], strict=True, raises=AssertionError))
        yield pytest.param(each.name, marks=marks)


@pytest.mark.parametrize("name", list(_parameters()))
def test_records_are_those_of_debezium(name: str) -> None:
    profile = PROFILES[name]
    replay = replayed(profile, the_server().fresh_database())
    found = leaves(replay.records, recording(profile)[1])
    if replay.failure:
        found.append(EventLeaf("", "failure", replay.failure, MISSING))

    problems = differences.unexplained(profile, found)

    assert not problems, f"{len(problems)} differences:\n" + "\n".join(problems[:_SHOWN_MAX])


def test_every_profile_is_recorded_as_it_is_written() -> None:
    for profile in PROFILES.values():
        made_with, records = recording(profile)
        assert made_with.fingerprint == profile.fingerprint, f"run `python -m tests.cdc.record {profile.name}`"
        assert made_with.debezium == DEBEZIUM_VERSION
        assert records
    assert {file_of(each) for each in PROFILES.values()} == set(DIRECTORY.iterdir())
    assert sum(each.stat().st_size for each in DIRECTORY.iterdir()) < _BYTES_MAX


def test_differences_name_profiles_that_exist() -> None:
    named = {name for each in differences.DIFFERENCES for name in each.profiles}

    assert named <= PROFILES.keys()


def test_a_changed_value_is_found() -> None:
    records = recording(PROFILES["rows"])[1]
    changed = copy.deepcopy(list(records))
    changed[2]["value"]["payload"]["after"]["name"] = "another"

    assert leaves(records, records) == []
    assert leaves(changed, records) == [
        EventLeaf("shop.public.customers", "value.payload.after.name", "another", "two")
    ]
    assert [each.path for each in leaves(records[:-1], records)] == ["record"]


def test_the_page_lists_the_differences() -> None:
    assert _PAGE.read_text(encoding="utf-8") == differences.page(), "run `python -m tests.cdc.differences`"
