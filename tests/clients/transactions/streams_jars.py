"""Kafka Streams, brought by Maven beside the other jars, and the word count, compiled once into the cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.kafka_jars import CACHE, KAFKA_VERSION, LOG4J_VERSION, KafkaUnavailable

SOURCE = Path(__file__).resolve().parents[2] / "java" / "streams" / "WordCount.java"
LIBS = CACHE / "streams-libs"
FETCH_TIMEOUT_S = 280
_ARTIFACTS = (
    ("org.apache.kafka", "kafka-streams", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
)


def word_count_command(logs: Path) -> list[str]:
    """The command up to the word count's own arguments."""
    for program in ("java", "javac", "mvn"):
        if shutil.which(program) is None:
            raise KafkaUnavailable(f"`{program}` is not on PATH")
    _fetch()
    settings = [f"-Dkafka.logs.dir={logs}", f"-Dlog4j2.configurationFile={CACHE / 'log4j2.properties'}"]
    quick = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *quick, *settings, "-cp", f"{_compiled()}:{LIBS}/*", "WordCount"]


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


def _compiled() -> Path:
    fingerprint = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    classes = CACHE / f"streams-{fingerprint}"
    if not classes.exists():
        fresh = Path(tempfile.mkdtemp(dir=CACHE))
        command = ["javac", "-cp", f"{LIBS}/*", "-d", str(fresh), str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        fresh.rename(classes)
    return classes
