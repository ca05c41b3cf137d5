"""A checkpoint is lost: the pipeline goes on from what the log knows, and nothing is lost or doubled."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.recovery_ground import Orders, RunProcess, Shop
from tests.spark.sink_ground import fresh_sink, options_for, rows, sinks, transactions

from strandline.pipelines import recovery
from strandline.pipelines.checkpoint_files import LocalCheckpoint, Note
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.queries import checkpoint_exists
from strandline.pipelines.sink_notes import LastBatch, SinkNotes
from strandline.spark.positions import settle
from strandline.spark.sink.pool import Pool
from strandline.spark.sink.task_writer import Task, write_task
from strandline.testing import embedded
from strandline.testing.embedded_broker import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
ALL = ("large", "windows", "totals")


@pytest.fixture
def shop(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, topic: str) -> Shop:
    return Shop(spark, broker, tmp_path, topic)


@pytest.fixture
def orders() -> Orders:
    return Orders(random.randrange(1 << 32))


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
    monkeypatch.setattr("strandline.pipelines.compiling.group_of", lambda *_: "of nobody")
    with pytest.raises(PipelineRefused, match="nobody knows how far large was"):
        shop.recover("large")


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
