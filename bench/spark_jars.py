"""The jars of Spark's own Kafka connector, brought by Maven into a cache directory of this work tree.

Four jars by hand instead of `spark.jars.packages`: the repository as reached from here has no connector of PySpark's
own version, and lacks one of its dependencies for most releases. This set was seen to work with PySpark 4.3. It is a
peer for tests and benchmarks and no part of the product.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.maven import MavenFailed, copy_jars, pom

CONNECTOR_VERSION = "4.2.0"
CACHE = Path(__file__).resolve().parent.parent / ".cache" / f"spark-kafka-{CONNECTOR_VERSION}"

_ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)


class ConnectorUnavailable(Exception):
    """Maven is missing, or could not bring the jars."""


def connector_jars() -> list[Path]:
    """Return the jars of Spark's own Kafka connector, fetched on first use."""
    if shutil.which("mvn") is None:
        raise ConnectorUnavailable("`mvn` is not on PATH")
    libs, complete = CACHE / "libs", CACHE / "complete"
    if not complete.exists():
        # Spark brings everything that these four need, in versions of its own: nothing that they name may come along.
        project = pom("bench-spark", _ARTIFACTS, alone=True)
        try:
            copy_jars(project, libs)
        except MavenFailed as said:
            words = f"Maven could not bring Spark's Kafka connector {CONNECTOR_VERSION}: {said}"
            raise ConnectorUnavailable(words) from said
        # Written last, so that an interrupted download is repeated and not mistaken for a whole one.
        complete.write_text(project)
    return sorted(libs.glob("*.jar"))


def spark_jars_setting() -> str:
    """What `spark.jars` is set to for the connector to be found as `format("kafka")`."""
    return ",".join(str(jar) for jar in connector_jars())
