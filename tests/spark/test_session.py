"""A session as `strandline.spark.session` gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_go_through_python_workers_and_back(spark: SparkSession) -> None:
    from pyspark.sql.functions import udf

    doubled = udf(lambda number: number * 2, "long")
    assert [row[0] for row in spark.range(4).select(doubled("id")).collect()] == [0, 2, 4, 6]
