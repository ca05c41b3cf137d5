"""A session as `strandline.spark.session` gives it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import strandline.spark
from strandline.spark import SparkFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_go_through_python_workers_and_back(spark: SparkSession) -> None:
    from pyspark.sql.functions import udf

    doubled = udf(lambda number: number * 2, "long")
    assert [row[0] for row in spark.range(4).select(doubled("id")).collect()] == [0, 2, 4, 6]
    assert spark.range(3).toPandas()["id"].tolist() == [0, 1, 2]


def test_workers_run_the_python_that_we_run(spark: SparkSession) -> None:
    from pyspark.sql.functions import udf

    assert spark.range(1).select(udf(lambda _: sys.executable, "string")("id")).collect()[0][0] == sys.executable


def test_settings_are_ours_where_the_user_names_none(spark: SparkSession) -> None:
    conf = spark.conf
    assert conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert str(conf.get("spark.sql.streaming.stateStore.providerClass")).endswith("RocksDBStateStoreProvider")
    assert conf.get("spark.sql.shuffle.partitions") == "2"
    assert conf.get("spark.driver.memory") == "2g"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.appName == "tests"


def test_a_second_session_is_the_first_with_settings_added(spark: SparkSession) -> None:
    again = strandline.spark.session(spark_sql_debug_maxToStringFields=26)
    assert again.sparkContext is spark.sparkContext
    assert spark.conf.get("spark.sql.debug.maxToStringFields") == "26"


def test_one_process_has_one_master(spark: SparkSession) -> None:
    with pytest.raises(SparkFailed, match=r"already runs Spark on local\[2\]"):
        strandline.spark.session(master="local[1]")


def run(program: str, tmp_path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TMPDIR": str(tmp_path)} | environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=800,
    )


def test_the_log_knows_nothing_of_spark(tmp_path: Path) -> None:
    program = (
        "import sys, strandline, strandline.spark, strandline.spark.error_translation\n"
        "assert not {'pyspark', 'pyarrow', 'pandas', 'py4j'} & set(sys.modules)\n"
    )
    ended = run(program, tmp_path)
    assert ended.returncode == 0, ended.stderr


def test_without_pyspark_it_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys\nsys.modules['pyspark'] = None\nimport strandline.spark\n"
        "try:\n    strandline.spark.session()\nexcept strandline.spark.SparkFailed as failed:\n    print(failed)\n"
    )
    assert "`pip install 'strandline[spark]'`" in run(program, tmp_path).stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    program = (
        "import strandline.spark\n"
        "spark = strandline.spark.session(master='local[1]')\n"
        "print(spark.range(3).count())\n"
        "spark.stop()\n"
        "print(strandline.spark.session(master='local[2]').range(4).count())\n"
    )
    ended = run(program, tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n4\n", "")
    assert not list(tmp_path.glob("strandline-*"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_java_that_does_not_start_is_tried_twice_and_quoted(tmp_path: Path) -> None:
    program = (
        "import strandline.spark\n"
        "try:\n    strandline.spark.session(spark_driver_memory='1k')\n"
        "except strandline.spark.SparkFailed as failed:\n    print(failed)\n"
    )
    ended = run(program, tmp_path)
    (sentence,) = ended.stdout.splitlines()
    assert "Java process ended while it started (Too small maximum heap)" in sentence
    assert "Spark's log is in" in sentence
    (directory,) = tmp_path.glob("strandline-spark-*")
    assert str(directory) in sentence
    assert (directory / "stderr").read_text().count("Too small maximum heap") == 2
    assert ended.stderr == ""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_java_that_is_lost_while_spark_starts_is_started_again(tmp_path: Path) -> None:
    """The first process is killed inside the constructor of the context."""
    program = (
        "import strandline.spark\nfrom pyspark import SparkContext\n"
        "make, killed = SparkContext._initialize_context, []\n"
        "def lose(self, conf):\n"
        "    if not killed:\n        self._gateway.proc.kill(); killed.append(self._gateway.proc.wait())\n"
        "    return make(self, conf)\n"
        "SparkContext._initialize_context = lose\n"
        "spark = strandline.spark.session(master='local[1]')\n"
        "print(killed, spark.range(3).count())\n"
    )
    ended = run(program, tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "[-9] 3\n"), ended.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_something_that_is_no_master_is_given_up_within_seconds(tmp_path: Path) -> None:
    """A port that takes connections and answers nothing that a master would."""
    program = (
        "import socket, time, strandline.spark\n"
        "listening = socket.create_server(('127.0.0.1', 0))\n"
        "try:\n    strandline.spark.session(master=f'spark://127.0.0.1:{listening.getsockname()[1]}')\n"
        "except strandline.spark.SparkFailed as failed:\n    print(failed)\n"
    )
    ended = run(program, tmp_path)
    (sentence,) = ended.stdout.splitlines()
    assert "does not take us as a Spark master would" in sentence, sentence
    assert ended.stderr == ""
