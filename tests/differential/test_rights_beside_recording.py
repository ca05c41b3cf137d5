"""The matrix of rights: every API, version and kind of client is answered as Apache Kafka answers it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from bench.kafka_jars import KafkaUnavailable, kafka_class_path
from tests.differential import rights_recording
from tests.differential.comparison import unlike
from tests.differential.rights_cases import CASES, ROUTES, ROWS
from tests.differential.rights_differences import RIGHTS_DIFFERENCES, listed
from tests.differential.rights_stage import USERS, kafka_with_rights, strandline_with_rights

Outcomes = dict[str, Any]


@pytest.fixture(scope="module")
def ours() -> Outcomes:
    """What a node of ours answers."""
    with strandline_with_rights() as (port, ids):
        return rights_recording.run(port, ids, CASES)


@pytest.fixture(scope="module")
def theirs() -> Outcomes:
    """What Apache Kafka answered when it was asked."""
    return rights_recording.load()


@pytest.mark.parametrize("api_key", ROUTES, ids=lambda key: ROUTES[key].name)
def test_answers_are_kafkas_or_listed(ours: Outcomes, theirs: Outcomes, api_key: int) -> None:
    wrong = []
    for case in CASES:
        if case.api_key == api_key:
            found = unlike([ours[case.name]], [theirs[case.name]])
            if found.differs and listed(case.name, found) is None:
                wrong.append(f"{case.name}\n  we say     {found.ours}\n  Kafka says {found.theirs}")
    assert not wrong, f"{len(wrong)} answers:\n" + "\n".join(wrong)


def test_every_listed_difference_is_met(ours: Outcomes, theirs: Outcomes) -> None:
    met = {listed(case.name, unlike([ours[case.name]], [theirs[case.name]])) for case in CASES}
    assert met - {None} == set(RIGHTS_DIFFERENCES)


def test_every_api_has_requests() -> None:
    assert ROWS.keys() == ROUTES.keys()


@pytest.mark.parametrize("api_key", ROUTES, ids=lambda key: ROUTES[key].name)
def test_every_version_and_kind_of_client_is_asked(api_key: int) -> None:
    route = ROUTES[api_key]
    asked = {(case.version, case.user) for case in CASES if case.api_key == api_key}
    versions = range(route.version_min, route.version_max + 1)
    assert {(version, user) for version in versions for user in USERS} <= asked


def test_the_recording_is_of_these_cases(theirs: Outcomes) -> None:
    names = [case.name for case in CASES]
    assert theirs.keys() == set(names), "run `python -m tests.differential.rights_recording`"
    assert len(names) == len(set(names))


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kafka_still_answers_so(tmp_path: Path, theirs: Outcomes) -> None:
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(f"no Apache Kafka: {reason}")
    if shutil.which("javac") is None:
        pytest.skip("no `javac` on PATH: Kafka's plug-in for the telemetry of clients cannot be compiled")
    with kafka_with_rights(tmp_path) as (port, ids):
        live = rights_recording.run(port, ids, CASES)
    changed = [
        f"{name}\n  live     {live[name]}\n  recorded {theirs[name]}" for name in live if live[name] != theirs[name]
    ]
    assert not changed, f"{len(changed)} answers:\n" + "\n".join(changed)
