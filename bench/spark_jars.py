"""The jars of Spark's own Kafka connector, brought by Maven into a cache directory of this work tree.

Four jars by hand instead of `spark.jars.packages`: the repository as reached from here has no connector of PySpark's
own version, and lacks one of its dependencies for most releases. This set was seen to work with PySpark 4.3. It is a
peer for tests and benchmarks and no part of the product.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

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
        _copy_jars(libs)
        # Written last, so that an interrupted download is repeated and not mistaken for a whole one.
        complete.write_text(_pom())
    return sorted(libs.glob("*.jar"))


def spark_jars_setting() -> str:
    """What `spark.jars` is set to for the connector to be found as `format("kafka")`."""
    return ",".join(str(jar) for jar in connector_jars())


def _pom() -> str:
    # Spark brings everything that these four need, in versions of its own: nothing that they name may come along.
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>{alone}</dependency>"
        for group, artifact, version in _ARTIFACTS
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>strandline</groupId><artifactId>bench-spark</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>\n"
    )


def _copy_jars(libs: Path) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / "pom.xml").write_text(_pom())
    command = ["mvn", "-q", "-B", "-f", str(CACHE / "pom.xml"), "dependency:copy-dependencies"]
    options = [f"-DoutputDirectory={libs}", "-DincludeScope=runtime"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = f"{done.stdout[-800:]}{done.stderr[-800:]}"
        raise ConnectorUnavailable(f"Maven could not bring Spark's Kafka connector {CONNECTOR_VERSION}: {said}")
