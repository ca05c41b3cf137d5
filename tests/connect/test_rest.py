"""The REST API beside Apache Kafka Connect's: every recorded request, in order, against a worker of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable, kafka_class_path
from tests.connect.record_rest import recorded
from tests.connect.rest_calls import calls
from tests.connect.rest_differences import DIFFERENCES, Leaf, RestDifference, explanation, leaves
from tests.connect.rest_table import Answer, answers, stored
from tests.connect.running_worker import running_worker

import strandline

SETTLE_S = 0.1


def unexplained(ours: list[Answer], theirs: list[Answer]) -> tuple[list[tuple[str, Leaf]], set[RestDifference]]:
    """Return what differs without a reason, and the reasons that were met."""
    wrong, met = [], set()
    for our, their in zip(ours, theirs, strict=True):
        name = our["asked"]["name"]
        assert our["asked"] == their["asked"], "the recording is of another table: record it again"
        statuses = our["answered"]["status"], their["answered"]["status"]
        for leaf in leaves(our["answered"], their["answered"]):
            found = explanation(name, leaf, statuses)
            if found is None:
                wrong.append((name, leaf))
            else:
                met.add(found)
    return wrong, met


def test_worker_answers_as_kafka_connect_does(tmp_path: Path) -> None:
    at_once = {"group.initial.rebalance.delay.ms": "0"}
    with strandline.embedded(properties=at_once) as log, running_worker(log.bootstrap) as url:
        ours = list(answers(url, calls(), tmp_path, SETTLE_S))
    wrong, met = unexplained(ours, stored())
    assert not wrong, "\n".join(f"{name}: {leaf}"[:400] for name, leaf in wrong)
    assert not [each for each in DIFFERENCES if each not in met and not each.may_vanish]


@pytest.mark.slow
@pytest.mark.java
def test_recording_is_what_kafka_connect_answers() -> None:
    try:
        kafka_class_path()
    except KafkaUnavailable as error:
        pytest.skip(str(error))
    theirs = {each["asked"]["name"]: each for each in stored()}
    found = recorded()
    assert [each["asked"]["name"] for each in found] == list(theirs)
    differing = [each for each in found if each != theirs[each["asked"]["name"]]]
    assert not differing
