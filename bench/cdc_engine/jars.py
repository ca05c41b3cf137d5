"""Debezium's jars, brought by Maven into a cache directory of this work tree."""

from __future__ import annotations

import shutil
from typing import Final

from bench.kafka_jars import CACHE as KAFKA_CACHE
from bench.kafka_jars import KafkaUnavailable
from bench.maven import MavenFailed, copy_jars, pom

DEBEZIUM_VERSION: Final = "3.6.1.Final"
CACHE: Final = KAFKA_CACHE.parent / f"debezium-{DEBEZIUM_VERSION}"
_SLF4J_VERSION: Final = "1.7.36"
"""That of the API which Debezium brings; without a binding of it there would be no log."""

_ARTIFACTS: Final = (
    ("io.debezium", "debezium-embedded", DEBEZIUM_VERSION),
    ("io.debezium", "debezium-connector-postgres", DEBEZIUM_VERSION),
    ("org.slf4j", "slf4j-simple", _SLF4J_VERSION),
)


def debezium_class_path() -> str:
    """Return the class path of Debezium's engine, fetching its jars on first use."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise KafkaUnavailable(f"`{program}` is not on PATH")
    libs, complete = CACHE / "libs", CACHE / "complete"
    if not complete.exists():
        project = pom("debezium-engine", _ARTIFACTS)
        try:
            copy_jars(project, libs)
        except MavenFailed as said:
            raise KafkaUnavailable(f"Maven could not bring Debezium {DEBEZIUM_VERSION}: {said}") from said
        # Written last, so that an interrupted download is repeated and not mistaken for a whole one.
        complete.write_text(project)
    return f"{libs}/*"
