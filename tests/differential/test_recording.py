"""The recording is what a running Apache Kafka answers today."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable, kafka_class_path
from tests.differential import recording
from tests.differential.brokers import kafka_on_stage
from tests.differential.cases import CASES
from tests.differential.recording import Outcome


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kafka_still_answers_so(tmp_path: Path, theirs: dict[str, Outcome]) -> None:
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(f"no Apache Kafka: {reason}")
    if shutil.which("javac") is None:
        pytest.skip("no `javac` on PATH: Kafka's plug-in for the telemetry of clients cannot be compiled")
    with kafka_on_stage(tmp_path) as (port, ids):
        live = recording.run(port, ids, CASES)
    changed = [
        f"{name}\n  live     {live[name]}\n  recorded {theirs[name]}" for name in live if live[name] != theirs[name]
    ]
    assert not changed, f"{len(changed)} answers:\n" + "\n".join(changed)
