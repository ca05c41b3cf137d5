"""Examples run through the runner in this process, on a session that is there."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from examples.shop import Record, half_day
from tests.pipelines.examples.checks import CHECKS, EXAMPLES, Parts
from tests.pipelines.examples.ground import write

from strandline.pipelines.language.loading import load
from strandline.pipelines.run.running import Outcome, Runner, RunOptions, nothing
from strandline.pipelines.versions.state import QueryProgress
from strandline.pipelines.versions.version_store import Registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = 6
CHANGING = "customer_orders.py"
"""The example whose table changes while it runs."""


def feed() -> tuple[list[Record], list[Record]]:
    """The half day up to noon, and from the changes at noon on."""
    records = list(half_day(random.Random(SEED)))
    begun = min(number for number, record in enumerate(records) if record.topic == "orders")
    noon = min(n for n, record in enumerate(records) if n > begun and record.topic == "customers")
    return records[:noon], records[noon:]


def run_once(
    spark: SparkSession, bootstrap: str, example: str, checkpoints: Path, tell: Callable[[str], None] = nothing
) -> dict[str, QueryProgress]:
    """Everything that is there, to the end; how far each query came."""
    with Registry(bootstrap) as registry:
        options = RunOptions(str(checkpoints), once=True)
        runner = Runner(load(EXAMPLES / example), registry, options, tell=tell)
        try:
            runner.claim()
            runner.plan(spark)
            assert runner.run(threading.Event()) is Outcome.DONE
        except BaseException as error:
            runner.give_up(str(error))
            raise
        return runner.progress()


def write_and_run_changing(spark: SparkSession, bootstrap: str, checkpoints: Path) -> Parts:
    """The feed, with the one example run on its first part, before the table that it reads changes."""
    first, second = feed()
    write(bootstrap, first)
    run_once(spark, bootstrap, CHANGING, checkpoints)
    write(bootstrap, second)
    return first, second


def run_all(spark: SparkSession, bootstrap: str, checkpoints: Path, tell: Callable[[str], None] = nothing) -> None:
    parts = write_and_run_changing(spark, bootstrap, checkpoints)
    for example, check in CHECKS.items():
        run_once(spark, bootstrap, example, checkpoints, tell)
        check(bootstrap, parts)
