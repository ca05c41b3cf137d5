"""Kafka Streams, brought by Maven beside the other jars, and its applications, compiled once into the cache."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bench.java_sources import compiled
from bench.kafka_jars import CACHE, KAFKA_VERSION, LOG4J_VERSION, KafkaUnavailable

SOURCES = Path(__file__).resolve().parents[2] / "java" / "streams"
LIBS = CACHE / "streams-libs"
FETCH_TIMEOUT_S = 280
_ARTIFACTS = (
    ("org.apache.kafka", "kafka-streams", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
)


def word_count_command(logs: Path) -> list[str]:
    """Return the command up to the word count's own arguments."""
    class_path = streams_class_path()
    settings = [f"-Dkafka.logs.dir={logs}", f"-Dlog4j2.configurationFile={CACHE / 'log4j2.properties'}"]
    quick = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *quick, *settings, "-cp", class_path, "WordCount"]


def streams_class_path() -> str:
    """Return the class path of Kafka Streams and the applications, fetching and compiling them on first use."""
    for program in ("java", "javac", "mvn"):
        if shutil.which(program) is None:
            raise KafkaUnavailable(f"`{program}` is not on PATH")
    _fetch()
    jars = f"{LIBS}/*"
    return f"{compiled(SOURCES, jars, name='streams')}:{jars}"


def _fetch() -> None:
    complete = LIBS / "complete"
    if complete.exists():
        return
    LIBS.mkdir(parents=True, exist_ok=True)
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in _ARTIFACTS
    )
    (LIBS / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>strandline</groupId><artifactId>streams</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>\n"
    )
    command = ["mvn", "-q", "-B", "-f", str(LIBS / "pom.xml"), "dependency:copy-dependencies"]
    options = [f"-DoutputDirectory={LIBS}", "-DincludeScope=runtime"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise KafkaUnavailable(f"Maven could not bring Kafka Streams: {done.stdout[-800:]}{done.stderr[-800:]}")
    # Written last, so that an interrupted download is repeated and not mistaken for a whole one.
    complete.touch()
