"""The two brokers, each on the same stage."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.brokers import start_kafka
from bench.kafka_jars import kafka_class_path
from tests.differential.stage import KAFKA_SETTINGS, OUR_SETTINGS, prepare

import strandline

RECEIVER = Path(__file__).parent / "Receiver.java"
"""Kafka serves the telemetry of clients only where a plug-in takes it."""

Stage = tuple[int, dict[str, uuid.UUID]]
"""A port, and the ids of the topics that are there."""


@contextmanager
def strandline_on_stage() -> Iterator[Stage]:
    with strandline.embedded(properties=OUR_SETTINGS) as log:
        yield log.port, prepare(log.port)


@contextmanager
def kafka_on_stage(root: Path) -> Iterator[Stage]:
    plugins = compiled(RECEIVER, root / "plugins")
    broker = start_kafka(root / "kafka", settings=KAFKA_SETTINGS, plugins=plugins)
    try:
        yield broker.port, prepare(broker.port)
    finally:
        broker.discard()


def compiled(source: Path, classes: Path) -> Path:
    command = ["javac", "-nowarn", "-cp", kafka_class_path(), "-d", str(classes), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return classes
