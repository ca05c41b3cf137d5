"""What tests of recovery stand on: a pipeline of three kinds of queries, and what it must make of its orders."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

import confluent_kafka
from tests.spark.sink_ground import consume, until

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.language.loading import load
from strandline.pipelines.language.model import Kind
from strandline.pipelines.run import compiling, queries
from strandline.pipelines.run.compiling import CompiledQuery, Wiring
from strandline.pipelines.run.recovery import Recovery
from strandline.pipelines.versions.state import DatasetState, checkpoint_of

FILE = """
from pyspark.sql import functions as F
from strandline import pipeline

pipeline.name({name!r})
orders = pipeline.source(
    "orders",
    topic={name!r} + "-orders",
    schema="id INT, customer STRING, amount INT, at TIMESTAMP",
    watermark=("at", "10 seconds"),
    options={{"maxOffsetsPerTrigger": "60"}},
)


@pipeline.stream(topic={name!r} + "-large")
def large(orders):
    return orders.where("amount > 50").select("id", "amount")


@pipeline.stream(topic={name!r} + "-windows")
def windows(orders):
    per_window = orders.groupBy(F.window("at", "10 seconds"), "customer").agg(F.count("*").alias("n"))
    return per_window.select(F.col("window.start").cast("long").alias("start"), "customer", "n")


@pipeline.table(topic={name!r} + "-totals", key="customer")
def totals(orders):
    return orders.groupBy("customer").agg(F.sum("amount").alias("total"))
"""
START_S = 1_700_000_000
WINDOW_S = 10
TOO_BUSY = ("failed to connect back", "did not come up within ten seconds")
ATTEMPTS = 8
RUN_S_MAX = 300.0
DELAY_S = 10


@dataclass(frozen=True)
class Order:
    id: int
    customer: str
    amount: int
    at_s: int

    def as_json(self) -> str:
        at = datetime.fromtimestamp(self.at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return json.dumps({"id": self.id, "customer": self.customer, "amount": self.amount, "at": at})


class Orders:
    """In a rough order of time, none so late that its window may be closed."""

    def __init__(self, seed: int) -> None:
        print(f"seed {seed}")
        self._random = random.Random(seed)
        self.all: list[Order] = []

    def more(self, count: int) -> list[Order]:
        new = []
        for number in range(len(self.all), len(self.all) + count):
            at_s = START_S + number // 3 - self._random.randint(0, DELAY_S - 2)
            customer = f"c{self._random.randint(0, 4)}"
            new.append(Order(number, customer, self._random.randint(1, 100), at_s))
        self.all += new
        return new

    def pick(self, *choices: str) -> str:
        return self._random.choice(choices)

    # What a pipeline must make of them

    @property
    def large(self) -> Counter[int]:
        return Counter(order.id for order in self.all if order.amount > 50)

    @property
    def windows(self) -> Counter[tuple[int, str, int]]:
        """Those that the watermark has closed."""
        watermark_s = max(order.at_s for order in self.all) - DELAY_S
        counted = Counter((order.at_s // WINDOW_S * WINDOW_S, order.customer) for order in self.all)
        return Counter({(start, who, n): 1 for (start, who), n in counted.items() if start + WINDOW_S <= watermark_s})

    @property
    def totals(self) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for order in self.all:
            found[order.customer] += order.amount
        return dict(found)


def patiently(act: Callable[[], None]) -> None:
    """Again, if a machine that is busy with other things has not started a Python process in Spark's ten seconds."""
    for attempt in range(ATTEMPTS):
        try:
            act()
            return
        except Exception as error:
            if not any(each in str(error) for each in TOO_BUSY) or attempt == ATTEMPTS - 1:
                raise


class Shop:
    """One pipeline on one broker, run without a runner."""

    def __init__(self, spark: Any, broker: EmbeddedBroker, home: Path, name: str, text: str = FILE) -> None:
        """Without Spark it is only fed and looked at."""
        self.spark, self.bootstrap, self.name = spark, broker.bootstrap, name
        self.on_disk = home / "checkpoints"
        self.checkpoints = str(self.on_disk)
        """As Spark is told: it may know the directory by another name."""
        broker.create_topic(f"{name}-orders", partitions=2)
        broker.create_topic(f"{name}-large", partitions=2)
        broker.create_topic(f"{name}-windows", partitions=2)
        broker.create_topic(f"{name}-totals", partitions=2, cleanup_policy="compact")
        self.file = home / f"{name}.py"
        self.file.write_text(text.format(name=name))
        self.pipeline = load(str(self.file))
        self.wiring = Wiring(broker.bootstrap)
        self.compiled = [] if spark is None else compiling.compile(spark, self.pipeline, self.wiring)
        self.query_ids: dict[str, str] = {}
        self.told: list[str] = []

    def feed(self, orders: Iterable[Order]) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap})
        for order in orders:
            producer.produce(f"{self.name}-orders", order.as_json().encode(), partition=order.id % 2)
        assert producer.flush(30) == 0

    def checkpoint(self, dataset: str) -> str:
        return checkpoint_of(self.checkpoints, self.name, 1, dataset)

    def query(self, dataset: str) -> CompiledQuery:
        return next(each for each in self.compiled if each.name == dataset)

    def run(self, *datasets: str) -> None:
        """All that is there."""
        for each in datasets:
            patiently(partial(self._run, each))

    def _run(self, dataset: str) -> None:
        query = queries.start(
            self.query(dataset),
            self.name,
            1,
            bootstrap=self.bootstrap,
            checkpoints=self.checkpoints,
            once=True,
            every="",
        )
        self.query_ids[dataset] = str(query.id)
        query.awaitTermination()

    def recover(self, *datasets: str, save_id: Callable[[str, str], None] | None = None) -> None:
        recovery = Recovery(
            self.spark, self.pipeline, self.wiring, self.compiled, save_id or self._save_id, self.told.append
        )
        patiently(lambda: recovery.recover(self._lost(datasets), self.checkpoint))

    def _lost(self, datasets: Iterable[str]) -> dict[str, DatasetState]:
        return {name: DatasetState(name, Kind.STREAM, "", "", query_id=self.query_ids[name]) for name in datasets}

    def _save_id(self, dataset: str, query_id: str) -> None:
        self.query_ids[dataset] = query_id

    # What a stock reader sees

    def values(self, dataset: str) -> list[Mapping[str, object]]:
        return [json.loads(message.value()) for message in consume(self.bootstrap, f"{self.name}-{dataset}")]

    def check(self, orders: Orders) -> None:
        self.check_large(orders)
        self.check_windows(orders)
        self.check_totals(orders)

    def check_large(self, orders: Orders) -> None:
        until("all large ones", lambda: len(self.values("large")) >= len(orders.large))
        assert Counter(each["id"] for each in self.values("large")) == orders.large

    def check_windows(self, orders: Orders) -> None:
        until("all windows", lambda: len(self.values("windows")) >= len(orders.windows))
        assert self.windows() == orders.windows

    def windows(self) -> Counter[tuple[Any, ...]]:
        return Counter((each["start"], each["customer"], each["n"]) for each in self.values("windows"))

    def check_totals(self, orders: Orders) -> None:
        until("all totals", lambda: self.totals() == orders.totals)
        for customer, steps in self.steps().items():
            # Amounts are above 0, so a total that is there twice was written twice.
            assert steps == sorted(set(steps)), customer

    def steps(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for message in consume(self.bootstrap, f"{self.name}-totals"):
            found[message.key().decode()].append(json.loads(message.value())["total"])
        return found

    def totals(self) -> dict[str, int]:
        return {customer: steps[-1] for customer, steps in self.steps().items()}


class RunProcess:
    """`strandline pipeline run`, or another command, which may be killed with all that hangs on it."""

    def __init__(self, shop: Shop, *arguments: str, command: str = "run") -> None:
        self._shop = shop
        self._log = shop.file.with_suffix(".log")
        what = str(shop.file) if command == "run" else shop.name
        arguments = (
            *("--bootstrap", shop.bootstrap, "--checkpoints", shop.checkpoints, "--master", "local[2]"),
            *("--set", "spark.sql.shuffle.partitions=2", *arguments),
        )
        whole = [sys.executable, "-m", "strandline", "pipeline", command, what, *arguments]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                whole, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait_for_batch(self, dataset: str, batch: int) -> None:
        """Until it has begun."""
        directory = checkpoint_of(str(self._shop.on_disk), self._shop.name, 1, dataset)
        begun = Path(directory, "offsets", str(batch))
        deadline = time.monotonic() + RUN_S_MAX
        while not begun.exists():
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)

    def ended(self) -> int:
        return self._process.wait(RUN_S_MAX)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")
