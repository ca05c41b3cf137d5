"""A Spark session that starts without a hand: Java, Python, settings and logs are found and set.

    spark = strandline.spark.session()                              here, on all cores
    spark = strandline.spark.session(master="spark://host:7077")    on a cluster, with our code shipped to it

Spark's own talk goes to a file, not to the terminal; a failure says where that file is, and `verbose=True` shows it.
Not for Spark Connect: a session of a remote server is made with `SparkSession.builder.remote`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from strandline.spark.explain import SparkFailed
from strandline.spark.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = re.compile(r"local(\[(\*|\d+)(\s*,\s*\d+)?\])?")

DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Our reader takes filters, and pyspark 4.3 fails on one that does unless this is set.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The default store holds all state in the heap.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
LOCAL_DEFAULTS: Final = {
    # A laptop's name often resolves to an address of a network that it has left.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # In local mode the driver does all the work, and 1 GiB is little for state beside joins.
    "spark.driver.memory": "2g",
}


def session(
    name: str = "strandline", *, master: str | None = None, verbose: bool = False, **conf: object
) -> SparkSession:
    """Start Spark, or return the session that runs. `conf` are Spark's settings, dots or underscores in their names."""
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkFailed(f"PySpark is not installed ({error}): `pip install 'strandline[spark]'`") from error
    settings = spark_settings(master or "local[*]", conf)
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(variable, sys.executable)
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    spark_conf = SparkConf(loadDefaults=False).setAppName(name).setAll(list(settings.items()))
    with contextlib.ExitStack() as stack:
        options: dict[str, Any] = {}
        if not verbose:
            log = Path(tempfile.mkdtemp(prefix="strandline-spark-"), "spark.log")
            options["stderr"] = stack.enter_context(log.open("wb"))
        gateway = launch_gateway(spark_conf, options)
    return SparkSession(SparkContext(conf=spark_conf, gateway=gateway))


def spark_settings(master: str, conf: dict[str, object]) -> dict[str, str]:
    """Our defaults under what the user asks for (pure)."""
    settings = {"spark.master": master, **DEFAULTS}
    if LOCAL.fullmatch(master):
        settings |= {**LOCAL_DEFAULTS, "spark.sql.shuffle.partitions": str(local_cores(master))}
    return settings | {(key if "." in key else key.replace("_", ".")): _text(value) for key, value in conf.items()}


def local_cores(master: str) -> int:
    match = LOCAL.fullmatch(master)
    assert match is not None, master
    cores = match[2] or "1"
    return (os.cpu_count() or 1) if cores == "*" else int(cores)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
