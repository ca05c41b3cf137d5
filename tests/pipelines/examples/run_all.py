"""`python -m tests.pipelines.examples.run_all BOOTSTRAP MASTER CHECKPOINTS`: every example on another Spark, checked.

One process has one Spark, and that of the tests is a local one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.pipelines.examples.running import run_all

import strandline.spark


def main() -> None:
    bootstrap, master, checkpoints = sys.argv[1:]
    spark = strandline.spark.session(
        "examples",
        master=master,
        spark_sql_shuffle_partitions=2,
        spark_executor_memory="512m",
        spark_executor_cores=1,
    )
    try:
        run_all(spark, bootstrap, Path(checkpoints))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
