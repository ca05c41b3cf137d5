"""Sources and datasets with schemas of a registry: read while schemas change, killed between, written, and shown."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pipelines.running_ground import PATIENCE_S, Ground, InThread, eventually, read_all
from tests.schema_desk import SchemaDesk, avro_value, record_schema
from tests.spark.sink_ground import consume

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.changes.file_changes import Verdict, changes_of, declared_changes
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language import loading
from strandline.pipelines.language.model import Kind
from strandline.pipelines.run.running import Outcome
from strandline.pipelines.run.source_schemas import schemas_by_query
from strandline.pipelines.versions.state import DatasetState, VersionState, checkpoint_of
from strandline.views import open as open_view

FILE = """
from pyspark.sql import functions as F
from strandline import pipeline

pipeline.name("@@")
orders = pipeline.source("orders", topic="@@.orders", schema="registry", dead_letters="@@.dead")

@pipeline.stream(topic="@@.large")
def large(orders):
    return orders.where("amount >= 100").select("id", "amount")

@pipeline.table(topic="@@.totals", key="customer")
def totals(orders):
    return orders.groupBy("customer").agg(F.sum("amount").alias("total"))
"""

WRITING = """
from pyspark.sql import functions as F
from strandline import pipeline

pipeline.name("@@")
pipeline.source("orders", topic="@@.orders", schema="registry")

@pipeline.view(topic="@@.totals", key="customer", schema="registry")
def totals(orders):
    return orders.groupBy("customer").agg(F.sum("amount").alias("total"), F.collect_list("id").alias("ids"))

@pipeline.stream(topic="@@.ranks", changes=["totals"])
def ranks(totals):
    return totals.selectExpr("customer", "total", "size(ids) AS orders")
"""

BASE = (("id", "long"), ("customer", "string"), ("amount", "long"))
FIRST = record_schema("Order", *BASE)
SECOND = record_schema("Order", *BASE, ("note", "string", "none"))


@pytest.fixture
def ground(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> Ground:
    return Ground(spark, broker, tmp_path, f"r{uuid.uuid4().hex[:8]}")


@pytest.fixture
def desk(broker: EmbeddedBroker) -> SchemaDesk:
    return SchemaDesk(broker.bootstrap)


def order(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "customer": f"c{number % 3}", "amount": 50 * number} | more


def letters(bootstrap: str, topic: str) -> list[tuple[bytes, str]]:
    found = []
    for each in consume(bootstrap, topic):
        headers = {name: value.decode() for name, value in each.headers()}
        found.append((each.value(), headers["reason"]))
    return found


@pytest.mark.slow
def test_a_schema_changes_while_a_query_runs(ground: Ground, broker: EmbeddedBroker, desk: SchemaDesk) -> None:
    topic, subject = ground.topic("orders"), f"{ground.topic('orders')}-value"
    broker.create_topic(topic, 1)
    file = ground.write(FILE)
    with pytest.raises(PipelineRefused, match=f"orders has no schema: the registry has no subject {subject}"):
        ground.once(file)
    first = desk.register(subject, FIRST)
    desk.send(topic, *(avro_value(first, FIRST, order(number)) for number in range(1, 4)), b"no frame")
    runner = ground.runner(file)
    runner.claim()
    runner.plan(ground.spark)
    running = InThread(runner)
    try:
        eventually(lambda: len(ground.records("large")) == 2)
        # A version that is newer than the query, an id that there is none of, and a value that is cut short.
        second = desk.register(subject, SECOND)
        whole = avro_value(second, SECOND, order(4, note="new"))
        desk.send(topic, whole, avro_value(0, FIRST, order(5)), whole[:-3])
        eventually(lambda: len(ground.records("large")) == 3)
        eventually(lambda: len(letters(ground.broker.bootstrap, ground.topic("dead"))) == 3)
    finally:
        running.stop.set()
        assert running.join() is Outcome.STOPPED
    assert [value for _, value in ground.records("large")] == [{"id": at, "amount": 50 * at} for at in (2, 3, 4)]
    assert letters(ground.broker.bootstrap, ground.topic("dead")) == [
        (b"no frame", "the value does not begin with a zero and a schema id"),
        (avro_value(0, FIRST, order(5)), "the registry has no schema with the id 0"),
        (whole[:-3], "a length or count is negative or leaves the value"),
    ]
    # The next run would read by the newer version, and says so before and while it begins.
    words = schemas_by_query(loading.load(file), ground.broker.bootstrap)
    assert words["large"] == (f"orders: version 2 of {subject}",)
    ground.once(file)
    assert any(
        "large: continues with old state" in each and f"it reads by orders: version 2 of {subject}" in each
        for each in ground.said
    )
    state = ground.registry().pipeline(ground.word)
    assert state is not None
    assert state.versions[1].datasets["large"].schemas == words["large"]
    assert dict(ground.records("totals"))["c1"] == {"total": 250}


def test_a_dataset_is_written_read_and_shown_by_its_schema(
    ground: Ground, broker: EmbeddedBroker, desk: SchemaDesk
) -> None:
    topic, totals = ground.topic("orders"), ground.topic("totals")
    broker.create_topic(topic, 1)
    number = desk.register(f"{topic}-value", FIRST)
    desk.send(topic, *(avro_value(number, FIRST, order(each)) for each in range(1, 5)))
    file = ground.write(WRITING)
    desk.register(f"{totals}-value", record_schema("Totals", ("total", "long"), ("color", "string")))
    with pytest.raises(PipelineRefused, match="totals can not be written: the column ids is no field of version 1"):
        ground.once(file)
    schema = record_schema(
        "Totals", ("total", ["null", "long"]), ("ids", {"type": "array", "items": "long"}), ("color", "string", "red")
    )
    written = desk.register(f"{totals}-value", schema)
    ground.once(file)
    found = {each.key().decode(): each.value() for each in consume(broker.bootstrap, totals)}
    assert found["c2"] == avro_value(written, schema, {"total": 100, "ids": [2], "color": "red"})
    assert sorted(each["total"] for _, each in ground.records("ranks")) == [100, 150, 250]
    with open_view(f"{ground.word}.totals", bootstrap=broker.bootstrap, directory=ground.home / "views") as view:
        rows = view.query(f'select customer, total, len(ids) from "{ground.word}"."totals" order by customer').rows
        assert rows == [("c0", 150, 1), ("c1", 250, 2), ("c2", 100, 1)]


def test_a_file_in_sql_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(
        """
CREATE SOURCE orders SCHEMA REGISTRY FROM TOPIC 'o' OPTIONS (subject = 'com.shop.Order');
CREATE SOURCE bills SCHEMA REGISTRY;
CREATE STREAM large SCHEMA REGISTRY AS SELECT id FROM orders;
"""
    )
    found = loading.load(file)
    assert [(each.is_of_registry, each.subject) for each in found.sources.values()] == [
        (True, "com.shop.Order"),
        (True, "bills-value"),
    ]
    assert (found.datasets["large"].is_of_registry, found.datasets["large"].subject) == (True, "large-value")
    for wrong, words in (
        ("CREATE SOURCE a (x INT) SCHEMA REGISTRY;", "a has columns and SCHEMA REGISTRY"),
        ("CREATE SOURCE a SCHEMA x;", "REGISTRY is missing"),
        ("CREATE TEMPORARY VIEW a SCHEMA REGISTRY AS SELECT 1;", "a dataset has the columns that its function returns"),
    ):
        file.write_text(wrong)
        with pytest.raises(PipelineRefused, match=words):
            loading.load(file)


def test_a_newer_schema_is_told_as_a_change_of_the_file_is() -> None:
    def state(*schemas: str, plan: str = "p", form: tuple[str, ...] = ()) -> DatasetState:
        return DatasetState("d", Kind.STREAM, "d", "d", "s", plan=plan, form=form, query_id="q", schemas=schemas)

    before = VersionState(1, datasets={"d": state("orders: version 1 of o-value")})
    for now, verdict, words in (
        (state("orders: version 1 of o-value"), Verdict.SAME, ""),
        (
            state("orders: version 2 of o-value"),
            Verdict.CONTINUES,
            "2 of o-value, and read by orders: version 1",
        ),
        (state(), Verdict.CONTINUES, "it reads by the columns of the file"),
        (state("orders: version 2 of o-value", form=("keys: a",)), Verdict.NEEDS_REBUILD, "keys"),
    ):
        [change] = changes_of(before, {"d": now}, is_same_text=True)
        assert change.verdict is verdict
        assert words in change.reason
    [change] = declared_changes(before, {"d": state("orders: version 3 of o-value")}, is_same_text=True)
    assert "version 3 of o-value" in change.reason


# Ten changes, killed between

CHANGES: list[tuple[Any, ...]] = [
    (("note", "string", "none"),),
    (("note", "string", "none"), ("tags", {"type": "array", "items": "string"}, [])),
    (("tags", {"type": "array", "items": "string"}, []), ("note", "string", "none"), ("weight", "int", 1)),
    (("tags", {"type": "array", "items": "string"}, []), ("weight", "int", 1)),
    # From an int to a double: older readers can not read it, so none runs when it comes.
    (("weight", "double", 1.5), ("tags", {"type": "array", "items": "string"}, [])),
    (("weight", "double", 1.5), ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"], "default": "A"}, "A")),
    (
        ("kind", {"type": "enum", "name": "Kind", "symbols": ["C", "B", "A"], "default": "A"}, "B"),
        ("weight", "double", 1.5),
    ),
    (("place", ["null", record_schema("Place", ("x", "double"), ("y", "double"))], None), ("weight", "double", 1.5)),
    (("by", {"type": "map", "values": ["null", "long"]}, {}),),
    (),
]
BREAKING = 5
SAMPLES: dict[str, Any] = {
    "note": "text",
    "tags": ["a", "b"],
    "weight": 2,
    "kind": "B",
    "place": {"x": 1.0, "y": 2.0},
    "by": {"k": 5, "l": None},
}


class RunProcess:
    """`strandline pipeline run`, which may be killed with all that hangs on it."""

    def __init__(self, ground: Ground, file: str, *arguments: str) -> None:
        self._ground = ground
        self._log = ground.home / "run.log"
        command = [sys.executable, "-m", "strandline", "pipeline", "run", file]
        command += ["--bootstrap", ground.broker.bootstrap, "--checkpoints", str(ground.home / "checkpoints")]
        command += ["--master", "local[2]", "--set", "spark.sql.shuffle.partitions=2", *arguments]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ground.home, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def ended(self) -> int:
        return self._process.wait(3 * PATIENCE_S)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for_batch(self, before: int) -> None:
        """Wait until a batch has begun that was not there before."""
        deadline = time.monotonic() + 3 * PATIENCE_S
        while newest_batch(self._ground) <= before:
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)


def newest_batch(ground: Ground) -> int:
    """Return the number of the newest batch of `large` that has begun; -1 if there is none."""
    directory = Path(checkpoint_of(str(ground.home / "checkpoints"), ground.word, 1, "large"), "offsets")
    return max((int(each.name) for each in directory.glob("[0-9]*")), default=-1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_changes_killed_between_give_what_plain_python_gives(
    ground: Ground, broker: EmbeddedBroker, desk: SchemaDesk
) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    print(f"seed {seed}")
    topic, subject = ground.topic("orders"), f"{ground.topic('orders')}-value"
    broker.create_topic(topic, 3)
    file = ground.write(FILE)
    orders: list[dict[str, Any]] = []
    bad: list[bytes] = []

    def feed(schema: Any, number: int) -> None:
        for _ in range(200):
            row = order(len(orders) + 1, amount=rng.randrange(200))
            orders.append(row)
            names = {each["name"] for each in schema["fields"]}
            desk.send(topic, avro_value(number, schema, row | {key: SAMPLES[key] for key in names & SAMPLES.keys()}))
        bad.append(b"\0" + (10**6 + len(bad)).to_bytes(4, "big") + rng.randbytes(5))
        bad.append(avro_value(number, schema, orders[-1] | {key: SAMPLES[key] for key in names & SAMPLES.keys()})[:-1])
        desk.send(topic, *bad[-2:])

    feed(FIRST, desk.register(subject, FIRST))
    run: RunProcess | None = None
    for at, fields in enumerate(CHANGES, start=1):
        if at == BREAKING and run is not None:
            run.kill()
            run = None
        schema = record_schema("Order", *BASE, *fields)
        number = desk.register(subject, schema)
        before = newest_batch(ground)
        run = run or RunProcess(ground, file, "--takeover")
        feed(schema, number)
        run.wait_for_batch(before)
        time.sleep(rng.random())
        if rng.random() < 0.7:
            run.kill()
            run = None
    if run is not None:
        run.kill()
    last = RunProcess(ground, file, "--once", "--takeover")
    assert last.ended() == 0, last.log
    large = Counter((each["id"], each["amount"]) for _, each in read_all(broker.bootstrap, ground.topic("large")))
    assert large == Counter((each["id"], each["amount"]) for each in orders if each["amount"] >= 100)
    totals: Counter[str] = Counter()
    for each in orders:
        totals[each["customer"]] += each["amount"]
    found = {key: value["total"] for key, value in ground.records("totals") if key is not None}
    assert found == dict(totals)
    assert Counter(value for value, _ in letters(broker.bootstrap, ground.topic("dead"))) == Counter(bad)
