"""A Spark session that starts without a hand: Java, Python, settings and logs are found and set.

    spark = strandline.spark.session()                              here, on all cores
    spark = strandline.spark.session(master="spark://host:7077")    on a cluster, with our code shipped to it

Spark's own talk goes to a file, not to the terminal; a failure says where that file is, and `verbose=True` shows it.
Not for Spark Connect: a session of a remote server is made with `SparkSession.builder.remote`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from strandline.spark.error_translation import SparkFailed
from strandline.spark.java import find_java_home
from strandline.spark.masters import check_master, is_local
from strandline.spark.spark_log import SparkLog
from strandline.spark.warm_python.starting import warm_python

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

DEFAULTS: Final = {
    "spark.app.name": "strandline",
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
    # Over loopback each turn of a Python worker waits 40 ms for TCP: small writes meet delayed acknowledgements.
    "spark.python.unix.domain.socket.enabled": "true",
}


def session(
    name: str | None = None,
    *,
    master: str | None = None,
    ship: bool = True,
    verbose: bool = False,
    **conf: object,
) -> SparkSession:
    """Start Spark, or return the session that runs, with these settings added.

    `conf` are Spark's settings with underscores for dots, or as they are in a `**{...}`. Without a `master` it is the
    one that spark-submit or spark-defaults.conf names, else `local[*]`. `ship=False` is for a cluster whose executors
    have Strandline installed.
    """
    explicit = {_spark_name(key): _text(value) for key, value in conf.items()}
    if name is not None:
        explicit["spark.app.name"] = name
    if master is not None:
        explicit["spark.master"] = master
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkFailed(f"PySpark is not installed ({error}): `pip install 'strandline[spark]'`") from error

    running = SparkContext._active_spark_context
    if running is not None:
        return _with_settings(running, explicit)
    if "spark.master" in explicit:
        check_master(explicit["spark.master"], os.environ)
    _prepare_environment()
    from strandline.spark.starting import start_context

    if not verbose:
        _quieten_python()
    with _forked_python(explicit):
        context = start_context(explicit, DEFAULTS, LOCAL_DEFAULTS, None if verbose else SparkLog())
    spark = SparkSession(context)
    if ship and not is_local(str(context.master)):
        from strandline.spark.shipping import ship as ship_code

        ship_code(spark)
    from strandline.spark.positions import watch_positions

    watch_positions(spark)
    return spark


@contextlib.contextmanager
def _forked_python(explicit: Mapping[str, str]) -> Iterator[None]:
    """While Spark starts, it is told of the client of a warm process in the place of this Python, if that is what it
    would start anyway. Only then: a process that we start later has a life of its own, and no use for our client."""
    names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    is_ours = all(os.environ.get(name, sys.executable) == sys.executable for name in names)
    client = warm_python() if is_ours and _is_here(explicit) else None
    before = {name: os.environ[name] for name in names if name in os.environ}
    if client is not None:
        os.environ.update(dict.fromkeys(names, client))
    try:
        yield
    finally:
        if client is not None:
            for name in names:
                del os.environ[name]
            os.environ.update(before)


def _is_here(explicit: Mapping[str, str]) -> bool:
    """Whether all of Spark will run on this machine, as far as can be told before it has read its files."""
    if "spark.master" in explicit:
        return is_local(explicit["spark.master"])
    return not any(name in os.environ for name in ("PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_HOME"))


def _with_settings(running: SparkContext, explicit: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    master = explicit.get("spark.master", running.master)
    if master != running.master:
        raise SparkFailed(
            f"this process already runs Spark on {running.master}, and one process has one: call stop() on that "
            f"session before you start one on {master}"
        )
    builder = SparkSession.builder
    for key, value in explicit.items():
        if key not in {"spark.master", "spark.app.name"}:
            builder = builder.config(key, value)
    return builder.getOrCreate()


def _prepare_environment() -> None:
    """What Spark's scripts read: which Java, and which Python its workers are started with."""
    if "PYSPARK_PYTHON" not in os.environ:
        # Else workers run the `python3` of the PATH, which has none of this environment's packages. Spark starts those
        # of a data source by the second name, on executors too, so who sets the first must be believed for both.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ["JAVA_HOME"] = str(find_java_home(os.environ))


def _quieten_python() -> None:
    """PySpark logs each failed call, stack and all, as JSON on stderr before it raises it."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _spark_name(key: str) -> str:
    return key if "." in key else key.replace("_", ".")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
