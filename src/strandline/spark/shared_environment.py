"""Queries that start at the same time share a map which Spark 4.3 fills without a lock: it is filled before.

Spark has one Python function for the format of this project, with one map of environment variables (a mutable map of
Scala's). Each stream that starts puts four names into it, from the thread of its query. Two that are the first to do
so at the same moment can leave the map with a size that it has not ("Illegal size 5 of collection, expected 6").
From then on nothing that holds the function can be serialized, and every query of the session fails with "Task not
serializable". A name that is there already is only given its value again, which does no harm.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT: Final = "strandline"
FORMATS: Final = (FORMAT, "strandline_iceberg", "strandline_delta")
"""Each has a function and a map of its own."""
NAMES: Final = ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME")
"""What Spark puts into it when a stream begins; a test holds that these are all."""

logger = logging.getLogger("strandline.spark.shared_environment")


def environment_of(spark: SparkSession, name: str = FORMAT) -> Any:
    """The map, on Java's side. Spark looks the format up in Python if it has not yet."""
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    return manager.lookupDataSource(name).dataSourceCls().envVars()


def fill(spark: SparkSession) -> None:
    """Have all names in the map, from one thread, before a second query can begin."""
    from py4j.protocol import Py4JError

    try:
        for each in FORMATS:
            environment = environment_of(spark, each)
            for name in NAMES:
                if not environment.containsKey(name):
                    environment.put(name, "")
    except Py4JError as error:
        # Another Spark than the one that a test holds these names against; its queries may run all the same.
        logger.warning("queries that start at the same time may fail: %s", error)
