"""Apache Kafka itself for tests: a running node, and its command-line tools.

A test module takes the fixture by importing it: `from tests.clients.kafka_server import kafka`. Where Java or Maven is
missing the fixture skips with that reason; mark such tests with `java`.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.brokers import Broker, start_kafka
from bench.kafka_jars import CACHE, KafkaUnavailable, kafka_class_path

TOOL_TIMEOUT_S = 120
_ARCHIVE = CACHE / "tools.jsa"


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One combined node of Apache Kafka for the session: `.bootstrap`, `.data`, `.create_topic()`."""
    with running_kafka(tmp_path_factory) as broker:
        yield broker


@contextmanager
def running_kafka(
    tmp_path_factory: pytest.TempPathFactory, settings: Mapping[str, str] | None = None
) -> Iterator[Broker]:
    """Start a node with settings of its own, or skip the test where there is no Apache Kafka."""
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(f"no Apache Kafka: {reason}")
    broker = start_kafka(tmp_path_factory.mktemp("kafka") / "node", settings=settings)
    try:
        yield broker
    finally:
        broker.discard()


def kafka_tool(
    main_class: str, *arguments: str | Path, logs: Path, stdin: str | None = None, options: Sequence[str] = ()
) -> str:
    """Run one of Kafka's tools, for example `org.apache.kafka.tools.DumpLogSegments`; its standard output."""
    done = subprocess.run(
        tool_command(main_class, *arguments, logs=logs, options=options),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"{main_class} left with status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def tool_command(main_class: str, *arguments: str | Path, logs: Path, options: Sequence[str] = ()) -> list[str]:
    # A tool lives for a second or two, so that the best code is not worth its compilation.
    quick = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable"]
    if _ARCHIVE.exists():
        quick.append(f"-XX:SharedArchiveFile={_ARCHIVE}")
    settings = [f"-Dkafka.logs.dir={logs}", f"-Dlog4j2.configurationFile={CACHE / 'log4j2.properties'}"]
    return ["java", *quick, *options, *settings, "-cp", kafka_class_path(), main_class, *map(str, arguments)]


def archive_classes(bootstrap: str, logs: Path) -> None:
    """Keep the classes that a tool loads as the JVM wants them in memory: the tools then start in half the time.

    An archive of another JVM or of other jars is simply not used, so that it needs no fingerprint.
    """
    if _ARCHIVE.exists():
        return
    fresh = logs / _ARCHIVE.name
    arguments = ("--bootstrap-server", bootstrap, "--list")
    options = [f"-XX:ArchiveClassesAtExit={fresh}"]
    command = tool_command("org.apache.kafka.tools.TopicCommand", *arguments, logs=logs, options=options)
    subprocess.run(command, capture_output=True, timeout=TOOL_TIMEOUT_S, check=True)
    shutil.move(fresh, _ARCHIVE)
