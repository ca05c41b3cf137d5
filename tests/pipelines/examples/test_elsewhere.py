"""The same examples on Apache Kafka, whose sink is the weaker one, and on a standalone Spark with two workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.brokers import Broker
from tests.clients.kafka_server import kafka as kafka
from tests.pipelines.examples.checks import CHECKS, EXAMPLES
from tests.pipelines.examples.running import run_all
from tests.spark.standalone_cluster import standalone_cluster
from tests.spark_fixtures import BROKER_PROPERTIES

from strandline.pipelines.run.sink_promise import WEAKER
from strandline.testing import embedded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = EXAMPLES.parent
RUN_S_MAX = 1800


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(RUN_S_MAX)
def test_examples_run_against_apache_kafka(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    told: list[str] = []
    run_all(spark, kafka.bootstrap, tmp_path, told.append)
    assert told.count(WEAKER) == len(CHECKS)


@pytest.mark.slow
@pytest.mark.timeout(RUN_S_MAX)
def test_examples_run_on_a_standalone_spark_with_two_workers(tmp_path: Path) -> None:
    with embedded(properties=BROKER_PROPERTIES) as node, standalone_cluster(tmp_path, workers=2) as cluster:
        command = [sys.executable, "-m", "tests.pipelines.examples.run_all"]
        done = subprocess.run(
            [*command, node.bootstrap, cluster.master, str(tmp_path / "checkpoints")],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
