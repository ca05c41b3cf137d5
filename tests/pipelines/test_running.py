"""A pipeline's file is run, ends, is run again: what it writes, what it refuses, and what the registry knows of it."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipelines.running_ground import Ground, InThread, eventually

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.run.running import Outcome
from strandline.pipelines.versions.state import FAILED, STOP, STOPPED, Command

STEPS = """
from pyspark.sql import functions as F
from strandline import pipeline

pipeline.name("@@")
orders = pipeline.source("orders", topic="@@.orders", schema="customer STRING, amount BIGINT")

@pipeline.temporary_view
def paid(orders):
    return orders.where("amount > 0")

@pipeline.stream(topic="@@.large")
def large(paid):
    return paid.where("amount >= 100")

@pipeline.table(topic="@@.totals", key="customer")
def totals(large):
    return large.groupBy("customer").agg(F.sum("amount").alias("total"))
"""

WINDOWS = """
from pyspark.sql import functions as F
from strandline import pipeline

pipeline.name("@@")
orders = pipeline.source(
    "orders", topic="@@.orders", schema="at TIMESTAMP, amount BIGINT", watermark=("at", "10 seconds"),
    options={"maxOffsetsPerTrigger": "2"},
)

@pipeline.stream(topic="@@.counts")
def counts(orders):
    windows = orders.groupBy(F.window("at", "10 seconds")).agg(F.sum("amount").alias("sum"))
    return windows.select(F.col("window.start").cast("string").alias("begin"), "sum")
"""


@pytest.fixture
def ground(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> Ground:
    return Ground(spark, broker, tmp_path, f"p{uuid.uuid4().hex[:8]}")


def orders(*amounts: int) -> list[dict[str, object]]:
    return [{"customer": f"c{amount % 2}", "amount": amount} for amount in amounts]


def test_each_step_reads_what_the_one_before_wrote_and_goes_on_where_it_was(ground: Ground) -> None:
    ground.broker.create_topic(ground.topic("orders"), 2)
    file = ground.write(STEPS)
    ground.feed("orders", orders(-5, 7, 100, 101, 102))
    ground.once(file)
    assert dict(ground.records("totals")) == {"c0": {"total": 202}, "c1": {"total": 101}}
    assert sorted(value["amount"] for _, value in ground.records("large")) == [100, 101, 102]

    ground.feed("orders", orders(103, 3))
    runner = ground.once(file)
    assert sorted(value["amount"] for _, value in ground.records("large")) == [100, 101, 102, 103]
    totals = ground.records("totals")
    assert dict(totals) == {"c0": {"total": 202}, "c1": {"total": 204}}
    assert len(totals) == 3, "what did not change is not written again"

    state = ground.registry().pipeline(ground.word)
    assert state is not None
    assert state.current is not None
    known = state.current.datasets["totals"]
    assert (known.topic, known.key, known.mode, known.reads) == (
        ground.topic("totals"),
        ("customer",),
        "update",
        (ground.topic("large"),),
    )
    assert known.stateful == ("aggregate",)
    assert known.query_id == str(runner.running["totals"].id)
    assert state.current.datasets["large"].stateful == ()
    run = ground.registry().run(ground.word, 1)
    assert run is not None
    assert (run.state, run.queries["large"].rows, run.queries["totals"].rows) == (STOPPED, 7, 4)


def test_topics_are_like_what_they_are_made_from(ground: Ground) -> None:
    ground.broker.create_topic(ground.topic("orders"), 3)
    runner = ground.runner(ground.write(STEPS))
    runner.claim()
    runner.give_up(None)
    from confluent_kafka.admin import ConfigResource, ResourceType

    from strandline.pipelines.run.local_node import admin_of

    admin = admin_of(ground.broker.bootstrap)
    topics = admin.list_topics(timeout=30).topics
    assert len(topics[ground.topic("large")].partitions) == 3
    assert len(topics[ground.topic("totals")].partitions) == 3
    for name, policy in (("large", "delete"), ("totals", "compact")):
        resource = ConfigResource(ResourceType.TOPIC, ground.topic(name))
        told = admin.describe_configs([resource])[resource].result()
        assert told["cleanup.policy"].value == policy


def test_a_topic_that_is_not_there_is_told_with_a_guess_and_can_be_made_later(ground: Ground) -> None:
    file = ground.write(STEPS)
    ground.broker.create_topic(ground.topic("order"))
    runner = ground.runner(file)
    words = rf"shop.py:6: the topic {ground.word}.orders of the source orders does not exist \(did you mean "
    with pytest.raises(PipelineRefused, match=rf"{words}{ground.word}.order\?\): create it with `strandline topic"):
        runner.claim()
    runner.give_up("no topic")
    ground.broker.create_topic(ground.topic("orders"))
    again = ground.runner(file)
    again.claim()
    again.give_up(None)
    assert again.version == 1


@pytest.mark.slow
def test_rows_that_come_too_late_are_counted_over_all_runs(ground: Ground) -> None:
    ground.broker.create_topic(ground.topic("orders"))
    file = ground.write(WINDOWS)
    # Two rows a batch. Spark holds a row against the watermark of the batch before the last, so of the two late rows
    # the first is in time: it came before that had moved.
    times = ["10:00:00", "10:01:00", "10:00:01", "10:02:00", "10:00:02", "10:03:00"]
    ground.feed("orders", [{"at": f"2024-05-01T{each}Z", "amount": 1} for each in times])
    runner = ground.once(file)
    assert runner.progress()["counts"].late_rows == 1
    ground.feed("orders", [{"at": "2024-05-01T10:00:03Z", "amount": 1}, {"at": "2024-05-01T10:04:00Z", "amount": 1}])
    ground.once(file)
    run = ground.registry().run(ground.word, 1)
    assert run is not None
    assert run.queries["counts"].late_rows == 2
    assert run.queries["counts"].rows == 8
    sums = [(value["begin"][-5:], value["sum"]) for _, value in ground.records("counts")]
    assert sorted(sums) == [("00:00", 2), ("01:00", 1), ("02:00", 1), ("03:00", 1)]


@pytest.mark.slow
def test_one_process_runs_it_until_somebody_asks_it_to_stop_or_takes_over(ground: Ground) -> None:
    ground.broker.create_topic(ground.topic("orders"))
    file = ground.write(STEPS)
    first = ground.runner(file)
    first.claim()
    with pytest.raises(PipelineRefused, match=r"runs already, as process \d+ on .* --takeover"):
        ground.runner(file).claim()
    first.plan(ground.spark)
    running = InThread(first)
    ground.feed("orders", orders(100))
    eventually(lambda: first.progress().get("totals") is not None and first.progress()["totals"].rows)

    second = ground.runner(file, takeover=True)
    second.claim()
    ended = running.join()
    assert isinstance(ended, PipelineRefused)
    assert "was taken over" in str(ended)
    run = ground.registry().run(ground.word, 1)
    assert run is not None
    assert run.owner == second.owner, "who was taken over says nothing more"

    second.plan(ground.spark)
    running = InThread(second)
    ground.feed("orders", orders(102))
    eventually(lambda: dict(ground.records("totals")).get("c0") == {"total": 202})
    with ground.registry() as registry:
        registry.put_command(Command(ground.word, STOP, uuid.uuid4().hex))
    assert running.join() is Outcome.ASKED
    run = ground.registry().run(ground.word, 1)
    assert run is not None
    assert run.state == STOPPED
    assert ground.records("totals") == [("c0", {"total": 100}), ("c0", {"total": 202})]


@pytest.mark.parametrize("once", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_run_that_is_stopped_before_its_queries_begin_starts_none(ground: Ground, once: bool) -> None:
    ground.broker.create_topic(ground.topic("orders"))
    ground.feed("orders", orders(100))
    runner = ground.runner(ground.write(STEPS), once=once)
    runner.claim()
    runner.plan(ground.spark)
    stop = threading.Event()
    stop.set()
    assert runner.run(stop) is Outcome.STOPPED
    assert runner.running == {}
    run = ground.registry().run(ground.word, 1)
    assert run is not None
    assert (run.state, run.failure) == (STOPPED, None)
    ground.once(ground.write(STEPS))
    assert dict(ground.records("totals")) == {"c0": {"total": 100}}


@pytest.mark.slow
def test_a_query_that_fails_ends_the_run_with_a_sentence(ground: Ground) -> None:
    ground.broker.create_topic(ground.topic("orders"))
    file = ground.write(
        STEPS.replace(
            'paid.where("amount >= 100")', "paid.selectExpr('customer', 'CAST(1 / (amount - 7) AS BIGINT) AS amount')"
        )
    )
    ground.feed("orders", orders(7))
    with pytest.raises(PipelineRefused, match=r"^large failed: Division by zero") as failed:
        ground.once(file)
    assert "\n" not in str(failed.value)
    run = ground.registry().run(ground.word, 1)
    assert run is not None
    assert run.state == FAILED
    assert run.failure == str(failed.value)
    assert run.queries["large"].state == FAILED


@pytest.mark.slow
def test_a_file_that_its_checkpoint_refuses_leaves_the_old_one_usable(ground: Ground) -> None:
    ground.broker.create_topic(ground.topic("orders"))
    only_totals = STEPS.replace("def totals(large)", "def totals(paid)").replace("large.groupBy", "paid.groupBy")
    only_totals = only_totals.replace('@pipeline.stream(topic="@@.large")', "@pipeline.temporary_view")
    file = ground.write(only_totals)
    ground.feed("orders", orders(1, 2))
    ground.once(file)
    before = ground.registry().pipeline(ground.word)

    ground.feed("orders", orders(3))
    ground.write(only_totals.replace('alias("total")', 'alias("total"), F.max("customer").alias("who")'))
    with pytest.raises(
        PipelineRefused, match=f"totals needs a rebuild: .* `strandline pipeline rebuild {ground.word}`"
    ):
        ground.once(file)
    with pytest.raises(PipelineRefused, match=f"totals cannot go on .* `strandline pipeline rebuild {ground.word}`"):
        ground.once(file, accepts=True)
    after = ground.registry().pipeline(ground.word)
    assert before is not None
    assert after is not None
    assert after.current == before.current

    ground.write(only_totals)
    ground.once(file)
    assert dict(ground.records("totals")) == {"c0": {"total": 2}, "c1": {"total": 4}}
    assert len(ground.records("totals")) == 3


@pytest.mark.slow
def test_a_lost_checkpoint_is_not_begun_anew(ground: Ground) -> None:
    ground.broker.create_topic(ground.topic("orders"))
    only_large = STEPS[: STEPS.index("@pipeline.table")]
    file = ground.write(only_large)
    ground.feed("orders", orders(100))
    runner = ground.once(file)
    Path(runner.checkpoint("large")).rename(ground.home / "aside")
    with pytest.raises(PipelineRefused, match=r"the checkpoint of large is gone .* --recover"):
        ground.once(file)
    (ground.home / "aside").rename(runner.checkpoint("large"))
    ground.once(file)
    assert [value["amount"] for _, value in ground.records("large")] == [100]
