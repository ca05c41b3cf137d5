"""A checkpoint is lost: the pipeline goes on from what the log knows, and nothing is lost or doubled."""

from __future__ import annotations

import json
import random
import shutil
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.pipelines.recovery_ground import Order, Orders, RunProcess, Shop
from tests.pipelines.shop_ground import Shop as RebuildShop
from tests.spark.sink_ground import fresh_sink, options_for, rows, sinks, transactions, until

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language.loading import load
from strandline.pipelines.run import recovery
from strandline.pipelines.run.checkpoint_files import LocalCheckpoint, Note
from strandline.pipelines.run.compiling import Wiring
from strandline.pipelines.run.queries import checkpoint_exists
from strandline.pipelines.run.sink_notes import LastBatch, SinkNotes
from strandline.pipelines.versions.state import PipelineState
from strandline.spark.positions import settle
from strandline.spark.sink.pool import Pool
from strandline.spark.sink.task_writer import Task, write_task
from strandline.testing import embedded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
ALL = ("large", "windows", "totals")
JOINED = """
from pyspark.sql import functions as F
from strandline import pipeline

pipeline.name({name!r})
pipeline.source(
    "orders",
    topic={name!r} + "-orders",
    schema="id INT, customer STRING, amount INT, at TIMESTAMP",
    watermark=("at", "10 seconds"),
    options={{"maxOffsetsPerTrigger": "60"}},
)
pipeline.source(
    "payments",
    topic={name!r} + "-payments",
    schema="paid INT, paid_at TIMESTAMP",
    watermark=("paid_at", "10 seconds"),
    options={{"maxOffsetsPerTrigger": "60"}},
)


@pipeline.stream(topic={name!r} + "-large")
def large(orders, payments):
    in_time = F.expr("id = paid AND paid_at BETWEEN at AND at + INTERVAL 1 HOUR")
    return orders.join(payments, in_time).select("id", "amount")
"""


@pytest.fixture
def shop(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, topic: str) -> Shop:
    return Shop(spark, broker, tmp_path, topic)


@pytest.fixture
def orders() -> Orders:
    return Orders(random.randrange(1 << 32))


@pytest.mark.slow
def test_lost_checkpoints_are_made_anew(shop: Shop, orders: Orders) -> None:
    shop.feed(orders.more(150))
    shop.run(*ALL)
    # The driver died in the middle of the next batch: what its task wrote holds readers back.
    before = dict(shop.query_ids)
    pool = Pool()
    left = Task(before["large"], sinks(shop.bootstrap)[before["large"]] + 1, 0)
    write_task(pool, options_for(shop.bootstrap, f"{shop.name}-large"), left, [rows(["left behind"])])
    shutil.rmtree(shop.checkpoints)
    shop.feed(orders.more(30))
    shop.recover(*ALL)
    assert "Ongoing" not in transactions(shop.bootstrap, before["large"]).values()
    # Without state it is the same query; with state another one, whose batches begin anew.
    assert shop.query_ids["large"] == before["large"]
    assert shop.query_ids["totals"] != before["totals"]
    told = "\n".join(shop.told)
    assert f"it goes on behind it, at {shop.name}-orders 0:75 1:75" in told
    assert "totals: its state (aggregate) is rebuilt from" in told
    shop.feed(orders.more(100))
    shop.run(*ALL)
    shop.check(orders)
    pool.close()


@pytest.mark.slow
def test_windows_that_were_closed_by_a_batch_with_rows(shop: Shop, orders: Orders) -> None:
    """Without the batch that only closes windows, the last one has closed some, and not all that it could."""
    shop.spark.conf.set(NO_DATA_BATCHES, "false")
    try:
        for _ in range(3):
            shop.feed(orders.more(60))
            shop.run("windows")
    finally:
        shop.spark.conf.set(NO_DATA_BATCHES, "true")
    written = len(shop.values("windows"))
    assert 0 < written < len(orders.windows)
    for _ in range(2):
        # Lost again before the new query has written anything.
        shutil.rmtree(shop.checkpoints)
        shop.recover("windows")
        assert len(shop.values("windows")) == written
    shop.feed(orders.more(60))
    shop.run("windows")
    shop.check_windows(orders)


@pytest.mark.slow
def test_a_recovery_that_is_interrupted_is_begun_again(shop: Shop, orders: Orders) -> None:
    shop.feed(orders.more(120))
    shop.run("totals")
    shutil.rmtree(shop.checkpoints)

    def fails(dataset: str, query_id: str) -> None:
        raise ConnectionError("just then")

    with pytest.raises(ConnectionError):
        shop.recover("totals", save_id=fails)
    # Spark would go on from here, and must not.
    assert not checkpoint_exists(shop.spark, shop.checkpoint("totals"))
    shop.recover("totals")
    assert checkpoint_exists(shop.spark, shop.checkpoint("totals"))
    shop.feed(orders.more(60))
    shop.run("totals")
    shop.check_totals(orders)


@pytest.mark.slow
def test_without_notes_positions_come_from_the_group(
    shop: Shop, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Apache Kafka. Here all was reported, so nothing is doubled either."""
    monkeypatch.setattr(SinkNotes, "are_kept", False)
    shop.feed(orders.more(120))
    shop.run("large", "totals")
    settle(shop.spark)
    shutil.rmtree(shop.checkpoints)
    shop.recover("large", "totals")
    told = "\n".join(shop.told)
    assert f"its positions are those of the group pipeline.{shop.name}.totals, {shop.name}-orders 0:60 1:60" in told
    assert "up to one batch behind that may be written a second time" in told
    shop.feed(orders.more(60))
    shop.run("large", "totals")
    shop.check_large(orders)
    shop.check_totals(orders)
    # Where nobody reported anything, nothing is made up.
    shutil.rmtree(shop.checkpoints)
    monkeypatch.setattr("strandline.pipelines.run.compiling.group_of", lambda *_: "of nobody")
    with pytest.raises(PipelineRefused, match="it is not known how far large was"):
        shop.recover("large")


@pytest.mark.parametrize(
    "starting", [pytest.param("latest", marks=pytest.mark.slow), '{"@": {"0": -1, "1": -1}}'], ids=["latest", "-1"]
)
def test_state_is_made_anew_from_the_first_record_that_was_read(
    starting: str, spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    shop = RebuildShop(broker, tmp_path, starting=starting)
    shop.order(("ana", 1000))
    shop.orders.clear()
    shop.edit()
    shop.run_once(spark)
    shop.order(("ana", 20), ("ana", 30), ("bo", 10))
    shop.run_once(spark)
    shutil.rmtree(tmp_path / "checkpoints")
    shop.order(("ana", 11))
    shop.run_once(spark, recovers=True)
    with shop.desk() as desk:
        assert shop.totals(desk) == shop.expected() == {"ana": 61, "bo": 10}
    # Where nothing was noted, as by an older release, nothing is made up.
    shop.registry.change(shop.name, without_starts)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(
        PipelineRefused, match=f"totals began with the next record of {shop.name}-orders, and which one"
    ):
        shop.run_once(spark, recovers=True)


def refused_recovery(bootstrap: str, home: Path, starting: str, offsets: str) -> str:
    """What a query with state is refused with whose last batch ended at these offsets; its sink is not sealed."""
    file = home / "shop.py"
    file.write_text(COUNTS % starting)
    last = LastBatch(3, Note(f"v1\n{{}}\n{offsets}"))
    notes: Any = SimpleNamespace(
        are_kept=True, last=lambda _: last, seal=lambda _: pytest.fail("the checkpoint would not go with the sink then")
    )
    of: Any = SimpleNamespace(pipeline=load(str(file)), wiring=Wiring(bootstrap), tell=lambda _: None)
    counts: Any = SimpleNamespace(name="counts", frame=None, reads=("orders",))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(recovery.queries, "stateful_operators", lambda _: ["aggregate"])
        query = recovery._Query(of, notes, counts, "id", LocalCheckpoint(home / "counts"))
    with pytest.raises(PipelineRefused) as refused:
        query.recover()
    return str(refused.value)


def test_state_whose_beginning_is_not_known_is_refused_before_the_sink_is_sealed(tmp_path: Path) -> None:
    said = refused_recovery("nowhere:1", tmp_path, '{"orders":{"0":-1}}', '{"orders":{"0":5}}')
    assert said.startswith("counts began with the next record of orders, and which one that was is not known")


def test_state_of_a_topic_that_was_made_anew_is_refused(broker: EmbeddedBroker, tmp_path: Path) -> None:
    known = json.dumps({"orders": {"0": 5}, "#topic-ids": {"orders": str(uuid.uuid4())}})
    said = refused_recovery(broker.bootstrap, tmp_path, "earliest", known)
    assert said.startswith("counts has read a topic orders that was deleted since")


COUNTS = """
from strandline import pipeline

pipeline.name("shop")
pipeline.source("orders", schema="customer STRING", options={"startingOffsets": '%s'})

@pipeline.table(key="customer")
def counts(orders):
    return orders.groupBy("customer").count()
"""


def without_starts(told: PipelineState | None) -> PipelineState:
    assert told is not None
    return replace(told, versions={number: replace(each, starts={}) for number, each in told.versions.items()})


@pytest.mark.parametrize("stateful", [[], ["aggregate"]])
def test_positions_in_a_topic_that_is_not_read_any_more_are_refused(
    stateful: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a rebuild that moved the table whose changes a query reads, until its next batch.

    The user may put the checkpoint back instead, so the sink is left as it was.
    """
    monkeypatch.setattr(recovery.queries, "stateful_operators", lambda _: stateful)
    last = LastBatch(3, Note('v1\n{}\n{"totals.v2":{"0":5}}'))
    notes: Any = SimpleNamespace(
        are_kept=True, last=lambda _: last, seal=lambda _: pytest.fail("the checkpoint would not go with the sink then")
    )
    of: Any = SimpleNamespace(pipeline=SimpleNamespace(name="shop"), tell=lambda _: None)
    ranks: Any = SimpleNamespace(name="ranks", frame=None, reads=("totals",))
    checkpoint = LocalCheckpoint(tmp_path / "ranks")
    with pytest.raises(PipelineRefused, match=r"ranks has read totals\.v2 and does not read it any more"):
        recovery._Query(of, notes, ranks, "id", checkpoint).recover()
    assert not checkpoint.directory.exists(), "Spark would begin the topic that it reads now at its first record"


@pytest.mark.parametrize("stateful", [[], ["aggregate"]])
def test_a_query_that_never_wrote_begins_at_the_beginning_however_often_that_is_said(
    stateful: list[str], broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of dead letters where there are none: killed before it has started anew, its seal is all there is."""
    monkeypatch.setattr(recovery.queries, "stateful_operators", lambda _: stateful)
    told: list[str] = []
    of: Any = SimpleNamespace(pipeline=SimpleNamespace(name="shop"), tell=told.append)
    letters: Any = SimpleNamespace(name="letters", frame=None, reads=("orders",))
    sink_id = fresh_sink()
    with SinkNotes(broker.bootstrap) as notes:
        for _ in range(3):
            recovery._Query(of, notes, letters, sink_id, LocalCheckpoint(tmp_path / "letters")).recover()
    assert told == ["letters: no batch of it was ever committed, so it begins at the beginning"] * 3


@pytest.mark.slow
def test_a_driver_that_is_killed_and_a_checkpoint_that_is_gone(tmp_path: Path, topic: str) -> None:
    """As a user has it: two processes, and one directory less."""
    orders = Orders(random.randrange(1 << 32))
    with embedded() as broker:
        shop = Shop(None, broker, tmp_path, topic)
        shop.feed(orders.more(200))
        with RunProcess(shop) as first:
            first.wait_for_batch(orders.pick(*ALL), int(orders.pick("1", "2")))
            shop.feed(orders.more(100))
        shutil.rmtree(shop.checkpoints)
        shop.feed(orders.more(100))
        with RunProcess(shop, "--once", "--takeover") as refused:
            assert refused.ended() != 0
            assert "say --recover" in refused.log
        with RunProcess(shop, "--once", "--takeover", "--recover") as second:
            assert second.ended() == 0, second.log
        shop.check(orders)


@pytest.mark.slow
def test_a_join_of_two_streams_goes_on_whatever_is_killed_or_lost(tmp_path: Path, topic: str) -> None:
    """What one side has waits in the state for the other side, also in a state that is made anew."""
    orders = Orders(random.randrange(1 << 32))
    with embedded() as broker:
        broker.create_topic(f"{topic}-payments", partitions=2)
        shop = Shop(None, broker, tmp_path, topic, JOINED)
        paid: Counter[int] = Counter()

        def pay(some: list[Order]) -> None:
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            for each in some:
                # The time of each is within the hour, and none comes so late that Spark drops it.
                value = json.dumps({"paid": each.id, "paid_at": "2023-11-14T23:00:00Z"})
                producer.produce(f"{topic}-payments", value, partition=each.id % 3 % 2)
                paid[each.id] += 1
            assert producer.flush(30) == 0

        def check(written_to: str) -> None:
            until("all that is paid", lambda: len(shop.values(written_to)) >= len(paid))
            assert Counter(each["id"] for each in shop.values(written_to)) == paid

        shop.feed(orders.more(200))
        pay(orders.all[:100:2])
        with RunProcess(shop) as killed:
            killed.wait_for_batch("large", int(orders.pick("1", "2", "3")))
        pay(orders.all[1:100:2])
        with RunProcess(shop, "--once", "--takeover") as second:
            assert second.ended() == 0, second.log
        check("large")
        shutil.rmtree(shop.on_disk)
        pay(orders.all[100:])
        shop.feed(orders.more(60))
        with RunProcess(shop, "--once", "--recover") as third:
            assert third.ended() == 0, third.log
            assert "its state (join of two streams) is rebuilt from" in third.log
        check("large")
        shop.file.write_text(shop.file.read_text().replace("1 HOUR", "2 HOURS"))
        with RunProcess(shop, "--once") as refused:
            assert refused.ended() != 0
            assert "large needs a rebuild" in refused.log
        pay(orders.all[200:])
        with RunProcess(shop, "--compare", command="rebuild") as looked:
            assert looked.ended() == 2, looked.log
            assert "nothing was switched: say it again with --yes" in looked.log
        with RunProcess(shop, "--yes", command="rebuild") as rebuilt:
            assert rebuilt.ended() == 0, rebuilt.log
        check("large.v2")


@pytest.mark.slow
def test_checkpoints_on_another_file_system(tmp_path: Path, topic: str) -> None:
    """Spark reads and writes them there; the log keeps no notes of them, and --recover makes none there."""
    orders = Orders(random.randrange(1 << 32))
    with embedded() as broker:
        shop = Shop(None, broker, tmp_path, topic)
        shop.on_disk.mkdir()
        shop.checkpoints = "viewfs://far/checkpoints"
        far = ("--set", f"spark.hadoop.fs.viewfs.mounttable.far.link./checkpoints={shop.on_disk.as_uri()}")
        shop.feed(orders.more(200))
        with RunProcess(shop, *far) as killed:
            killed.wait_for_batch(orders.pick(*ALL), int(orders.pick("1", "2")))
        shop.feed(orders.more(100))
        with RunProcess(shop, *far, "--once", "--takeover") as second:
            assert second.ended() == 0, second.log
        shop.check(orders)
        shutil.rmtree(shop.on_disk / topic)
        with RunProcess(shop, *far, "--once") as refused:
            assert refused.ended() != 0
            assert "is gone from viewfs://far/checkpoints" in refused.log
        with RunProcess(shop, *far, "--once", "--recover") as refused:
            assert refused.ended() != 0
            assert "--recover makes them on this machine only: say --checkpoints with a directory" in refused.log
        shop.checkpoints = str(tmp_path / "here")
        shop.feed(orders.more(60))
        with RunProcess(shop, "--once", "--recover") as third:
            assert third.ended() == 0, third.log
            assert "up to one batch behind that may be written a second time" in third.log
        shop.check_large(orders)
        shop.check_totals(orders)
        # A batch without rows that only closes windows is in no group.
        until("all windows", lambda: shop.windows().keys() == orders.windows.keys())
