"""Apache Kafka's jars, brought by Maven into a cache directory of this work tree."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.maven import MavenFailed, copy_jars, pom

KAFKA_VERSION = "4.3.1"
# The binding that Kafka's distribution ships beside its jars; no artifact of Kafka pulls it in. Without it the broker
# would log nothing, which is neither stock nor of help when a start fails.
LOG4J_VERSION = "2.25.4"
CACHE = Path(__file__).resolve().parent.parent / ".cache" / f"kafka-{KAFKA_VERSION}"

_ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
)

_LOG4J_PROPERTIES = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = ${sys:kafka.logs.dir}/server.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


class KafkaUnavailable(Exception):
    """Java or Maven is missing, or Maven could not bring the jars."""


def kafka_class_path() -> str:
    """Return the class path of Apache Kafka, fetching its jars on first use."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise KafkaUnavailable(f"`{program}` is not on PATH")
    libs = CACHE / "libs"
    complete = CACHE / "complete"
    if not complete.exists():
        project = pom("bench-kafka", _ARTIFACTS)
        try:
            copy_jars(project, libs)
        except MavenFailed as said:
            raise KafkaUnavailable(f"Maven could not bring Kafka {KAFKA_VERSION}: {said}") from said
        (CACHE / "log4j2.properties").write_text(_LOG4J_PROPERTIES)
        # Written last, so that an interrupted download is repeated and not mistaken for a whole one.
        complete.write_text(project)
    return f"{libs}/*"
