"""Starts the Java process and the Spark context in it: once more if Java was lost, never if Spark refused.

PySpark keeps one Java process for each Python process and forgets it only when Python ends, also if it is dead. So
what failed is ended and forgotten here, and the next attempt begins afresh.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from strandline.spark import class_archive, local_files
from strandline.spark.error_translation import SparkFailed, explain_failure
from strandline.spark.masters import check_master, is_local, local_cores
from strandline.spark.spark_log import SparkLog, where_to_read_more

ATTEMPTS_MAX: Final = 2
"""One start among thirty on a very busy machine lost its Java process for no reason that was found."""

REGISTERED_S_MAX: Final = 20.0
"""How long a standalone master may take to accept an application it was asked for: as long as one try of Spark's."""

END_S_MAX: Final = 10.0

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
# What Spark writes to its log, by the class that logs it.
_ASKING: Final = "Connecting to master"
_ACCEPTED: Final = "Connected to Spark cluster"


class _JavaLost(Exception):
    """The process ended, or was not to be started."""


def start_context(
    explicit: Mapping[str, str], defaults: Mapping[str, str], local_defaults: Mapping[str, str], log: SparkLog | None
) -> SparkContext:
    """A context with `explicit` settings; the defaults yield to what spark-defaults.conf or spark-submit says."""
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            return _start_once(explicit, defaults, local_defaults, log)
        except _JavaLost as lost:
            if attempt == ATTEMPTS_MAX:
                raise SparkFailed(_lost_sentence(log)) from lost
    raise AssertionError("an attempt returns or raises")


def _start_once(
    explicit: Mapping[str, str], defaults: Mapping[str, str], local_defaults: Mapping[str, str], log: SparkLog | None
) -> SparkContext:
    gateway = _running_gateway()
    if gateway is None:
        gateway = _launch(explicit, log)
    unregistered = threading.Event()
    try:
        conf = SparkConf(_jvm=gateway.jvm)
        for key, value in explicit.items():
            conf.set(key, value)
        master = conf.get("spark.master", "local[*]")
        assert master is not None
        conf.setMaster(master)
        if "spark.master" not in explicit:
            check_master(master, os.environ)
        if is_local(master):
            defaults = {**defaults, **local_defaults, **local_files.define(gateway.jvm)}
            defaults["spark.sql.shuffle.partitions"] = str(local_cores(master))
        for key, value in defaults.items():
            conf.setIfMissing(key, value)
        with _registration_watched(master, gateway.proc, log, unregistered):
            return SparkContext(conf=conf, gateway=gateway)
    except (Py4JError, PySparkException, OSError) as error:
        was_lost = gateway.proc is not None and gateway.proc.poll() is not None
        sentence = "" if was_lost else explain_failure(error)
        _end(gateway)
        if unregistered.is_set():
            raise SparkFailed(
                f"something answers at {master}, but it does not take us as a Spark master would: check host and port "
                "(a standalone master listens on 7077, its web page on 8080)"
            ) from error
        if was_lost:
            raise _JavaLost from error
        raise SparkFailed(f"Spark did not start: {sentence}") from error


def _running_gateway() -> Any:
    """The Java process of an earlier session, which PySpark will use whatever it is given; None if there is none."""
    gateway: Any = SparkContext._gateway
    if gateway is not None and gateway.proc is not None and gateway.proc.poll() is not None:
        _end(gateway)
        return None
    return gateway


def _launch(explicit: Mapping[str, str], log: SparkLog | None) -> Any:
    # Only what must be known when Java starts goes on its command line: our defaults yield to Spark's own files.
    settings = dict(explicit)
    options = settings.get(_JAVA_OPTIONS, "")
    more = [options, class_archive.java_options(os.environ, options), "" if log is None else log.java_options]
    if any(more):
        settings[_JAVA_OPTIONS] = " ".join(filter(None, more))
    if is_local(settings.get("spark.master", "local")) and "SPARK_DRIVER_MEMORY" not in os.environ:
        # The driver does all the work then, and Spark's default of 1 GiB is little for state beside a join.
        settings.setdefault("spark.driver.memory", "2g")
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    with contextlib.ExitStack() as stack:
        popen: dict[str, Any] = {}
        if log is not None:
            log.begin()
            popen["stderr"] = stack.enter_context(log.stderr.open("ab"))
        try:
            return launch_gateway(conf, popen)  # type: ignore[no-untyped-call]
        except (PySparkRuntimeError, OSError) as error:
            raise _JavaLost from error


@contextlib.contextmanager
def _registration_watched(
    master: str, process: Any, log: SparkLog | None, unregistered: threading.Event
) -> Iterator[None]:
    """End the Java process if a standalone master's port is open but does not answer as a master."""
    done = threading.Event()

    def watch() -> None:
        assert log is not None
        asked_at: float | None = None
        while not done.wait(0.5):
            said = log.text()
            if _ACCEPTED in said:
                return
            if asked_at is None and _ASKING in said:
                asked_at = time.monotonic()
            if asked_at is not None and time.monotonic() - asked_at > REGISTERED_S_MAX:
                unregistered.set()
                process.kill()
                return

    watched = log is not None and process is not None and master.startswith("spark://")
    watcher = threading.Thread(target=watch, name="spark-registration", daemon=True)
    if watched:
        watcher.start()
    try:
        yield
    finally:
        done.set()
        if watched:
            watcher.join()


def _end(gateway: Any) -> None:
    """End a Java process that is of no use, and make PySpark forget it."""
    with contextlib.suppress(Py4JError, OSError):
        gateway.shutdown()
    if gateway.proc is not None:
        gateway.proc.kill()
        gateway.proc.wait(END_S_MAX)
        gateway.proc.stdin.close()
    if SparkContext._gateway is gateway:
        SparkContext._gateway = None
        SparkContext._jvm = None


def _lost_sentence(log: SparkLog | None) -> str:
    reason = log.reason() if log is not None else ""
    return (
        f"Spark's Java process ended while it started{f' ({reason})' if reason else ''}: is there memory for it "
        f"(spark_driver_memory=...), and are the settings right?{where_to_read_more()}"
    )
