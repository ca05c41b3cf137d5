"""A small pipeline whose file is edited between two versions, and what its tables must be, in plain Python."""

from __future__ import annotations

import functools
import json
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tests.pipelines.rebuild_ground import put_rows
from tests.spark.sink_ground import consume

from strandline import views
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language.loading import load
from strandline.pipelines.rebuild.comparing import Comparison
from strandline.pipelines.rebuild.phases import Wish
from strandline.pipelines.rebuild.rebuilding import Means, RebuildEnd, Rebuilding
from strandline.pipelines.rebuild.switching import Removal
from strandline.pipelines.run.running import Outcome, Runner, RunOptions
from strandline.pipelines.versions.version_store import Registry
from strandline.spark.display import Display

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

FILE = """
from pyspark.sql import functions as F

from strandline import pipeline

pipeline.name("{name}")

orders = pipeline.source("orders", topic="{name}-orders", schema="customer STRING, amount BIGINT"{options})

@pipeline.view(key="customer", topic="{name}-totals")
def totals(orders):
    return orders.where("{which}").groupBy("customer").agg(F.sum("amount").alias("total"))
"""

WITH_STREAM = """
@pipeline.stream(topic="{name}-large")
def large(orders):
    return orders.where("amount >= {large}").select("customer", "amount")
"""

WITH_CHANGES = """
@pipeline.table(key="customer", topic="{name}-ranks", changes=["totals"])
def ranks(totals):
    return totals.selectExpr("customer", "CASE WHEN total >= {high} THEN 'high' ELSE 'low' END AS rank")
"""


class HasTopics(Protocol):
    """A broker, or several, of whichever kind."""

    @property
    def bootstrap(self) -> str: ...

    def create_topic(self, name: str, /, partitions: int = 1) -> None: ...


class Shop:
    """Orders in a topic, a pipeline's file, and what a user does with both."""

    def __init__(
        self,
        broker: HasTopics,
        home: Path,
        *,
        with_stream: bool = False,
        with_changes: bool = False,
        starting: str | None = None,
    ) -> None:
        """`starting` is the source's `startingOffsets`, if it is not read from its first record; @ is its topic."""
        self.bootstrap = broker.bootstrap
        self.home = home
        self.name = f"shop-{uuid.uuid4().hex[:8]}"
        self.file = home / "shop.py"
        self.registry = Registry(broker.bootstrap)
        self.orders: list[tuple[str, int]] = []
        offsets = None if starting is None else starting.replace("@", f"{self.name}-orders")
        self.options = "" if offsets is None else f", options={{'startingOffsets': {offsets!r}}}"
        self.form = FILE + (WITH_STREAM if with_stream else "") + (WITH_CHANGES if with_changes else "")
        broker.create_topic(f"{self.name}-orders", partitions=2)

    def edit(self, *, large: int = 100, which: str = "true", high: int = 1000, text: str | None = None) -> None:
        self.file.write_text(text or self._filled(large=large, which=which, high=high))

    def _filled(self, **words: object) -> str:
        return self.form.format(name=self.name, options=self.options, **words)

    def order(self, *orders: tuple[str, int]) -> None:
        self.orders += orders
        values = [json.dumps({"customer": customer, "amount": amount}) for customer, amount in orders]
        put_rows(self.bootstrap, f"{self.name}-orders", {f"{uuid.uuid4()}": value for value in values})

    # What a user does

    def run_once(self, spark: SparkSession, *, recovers: bool = False) -> None:
        runner = functools.partial(self.runner, spark, once=True, recovers=recovers)
        assert patiently(lambda: runner().run(threading.Event())) is Outcome.DONE

    def runner(self, spark: SparkSession, *, once: bool, version: int | None = None, recovers: bool = False) -> Runner:
        options = RunOptions(str(self.home / "checkpoints"), once=once, version=version, recovers=recovers)
        runner = Runner(load(self.file), self.registry, options)
        runner.claim()
        runner.plan(spark)
        return runner

    def rebuild(
        self,
        spark: Callable[[], SparkSession],
        wish: Wish = Wish.REBUILD,
        *,
        file: Path | None = None,
        compares: bool = False,
        may_switch: Callable[[list[Comparison]], bool] = lambda _: True,
        may_remove: Callable[[list[Removal]], bool] = lambda _: True,
        stop: threading.Event | None = None,
        recovers: bool = False,
    ) -> RebuildEnd:
        means = Means(
            load=load,
            spark=spark,
            checkpoints=lambda: str(self.home / "checkpoints"),
            display=lambda _: Display(),
            tell=print,
            stop=stop or threading.Event(),
            may_switch=may_switch,
            may_remove=may_remove,
            home=self.home,
            recovers=recovers,
        )
        registry = Registry(self.bootstrap)
        try:
            return patiently(
                lambda: Rebuilding(registry, self.name, means).carry_out(
                    wish, file=file and str(file), compares=compares
                )
            )
        finally:
            registry.close()

    # What is there

    def desk(self) -> views.Desk:
        return views.Desk(self.bootstrap, directory=self.home / "views")

    def totals(self, desk: views.Desk) -> dict[str, int]:
        return dict(desk.query(f'select customer, total from "{self.name}".totals').rows)

    def stream(self, version: int = 1) -> list[tuple[str, int]]:
        return self.rows_of(f"{self.name}-large" + ("" if version == 1 else f".v{version}"))

    def rows_of(self, stream: str) -> list[tuple[str, int]]:
        rows = [json.loads(message.value()) for message in consume(self.bootstrap, stream)]
        return sorted((row["customer"], row["amount"]) for row in rows)

    def expected(self, which: Callable[[int], bool] = lambda _: True) -> dict[str, int]:
        totals: dict[str, int] = {}
        for customer, amount in self.orders:
            if which(amount):
                totals[customer] = totals.get(customer, 0) + amount
        return totals


def patiently(work: Callable[[], T]) -> T:
    """Again, if a process of Spark's did not start in the time that Spark has for it: a machine is busy, no more."""
    for _ in range(5):
        try:
            return work()
        except PipelineRefused as error:
            if "did not come up within ten seconds" not in str(error):
                raise
    return work()


def stock_totals(table: dict[str, str]) -> dict[str, Any]:
    """A stock client's fold of the table, with its values read."""
    return {key: json.loads(value)["total"] for key, value in table.items()}
