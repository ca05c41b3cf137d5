"""A rebuild on a cluster that cannot do it, which is said before anything is done; and on one that loses a node."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.brokers import Broker
from tests.clients.kafka_server import kafka as kafka
from tests.pipelines.plain_shop import PlainShop
from tests.pipelines.rebuild_chains import (
    check_by_name,
    check_new,
    check_old,
    command,
    goes_on,
    large,
    made_ready,
    no_spark,
    topics_of,
)
from tests.pipelines.shop_ground import HasTopics, Shop
from tests.pipelines.test_rebuild import Reader
from tests.pipelines.test_rebuild_faults import ready
from tests.spark_fixtures import BROKER_PROPERTIES

from strandline.coordinators.partitioning import KAFKAS_HASH, TRANSACTION_STATE_TOPIC, partition_of_transactional_id
from strandline.ids import sink_key
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.embedded_cluster import EmbeddedCluster
from strandline.pipelines.language.loading import load
from strandline.pipelines.rebuild import switching
from strandline.pipelines.rebuild.phases import Wish
from strandline.pipelines.run import multi_topic_commit
from strandline.pipelines.run.running import Runner, RunOptions
from strandline.pipelines.versions.version_log import TOPIC as REGISTRY_TOPIC
from strandline.spark.sink.cluster import SinkCluster
from strandline.spark.sink.failures import SinkRefused
from strandline.spark.sink.options import SinkOptions
from strandline.testing import embedded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFUSED = "nothing can be rebuilt on this cluster, which cannot commit the differences of all tables at once"


class WithoutBatches(SinkCluster):
    """A cluster that does not know CommitBatch."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        self.commits_batches = False


def claimed(broker: HasTopics, home: Path) -> Shop:
    """A pipeline that the cluster knows, with its topics; Spark was never needed."""
    shop = Shop(broker, home)
    shop.edit()
    runner = Runner(load(shop.file), shop.registry, RunOptions(str(home / "checkpoints")))
    runner.claim()
    runner.give_up(None)
    shop.edit(which="amount > 10")
    return shop


def check_untouched(shop: Shop) -> None:
    state = shop.registry.refresh().pipeline(shop.name)
    assert state is not None
    assert (state.active, sorted(state.versions), state.rebuild) == (1, [1], None)
    assert topics_of(shop) == {"-orders", "-totals"}


def test_a_cluster_without_commits_of_batches_is_refused_before_anything_is_done(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = claimed(broker, tmp_path)
    monkeypatch.setattr(multi_topic_commit, "SinkCluster", WithoutBatches)
    with pytest.raises(SinkRefused, match=REFUSED):
        shop.rebuild(lambda: pytest.fail("nothing here needs Spark"))
    check_untouched(shop)


@pytest.mark.slow
@pytest.mark.java
def test_on_apache_kafka_the_command_says_one_sentence(kafka: Broker, tmp_path: Path) -> None:
    shop = claimed(kafka, tmp_path)
    refused = command(shop)
    assert refused.returncode == 1, refused.stderr
    assert refused.stdout == ""
    assert [line for line in refused.stderr.splitlines() if REFUSED in line], refused.stderr
    assert "Traceback" not in refused.stderr
    assert "run the changed file as a pipeline with another name" in " ".join(refused.stderr.split()), "what to do"
    check_untouched(shop)
    nothing = command(shop, "--rollback")
    assert (nothing.returncode, "has no rebuild to roll back" in nothing.stderr) == (1, True), nothing.stderr


def leader_of_table(cluster: EmbeddedCluster, shop: Shop) -> int:
    return cluster.leader_of(f"{shop.name}-totals")


def leader_of_registry(cluster: EmbeddedCluster, shop: Shop) -> int:
    return cluster.leader_of(REGISTRY_TOPIC)


def coordinator_of_switch(cluster: EmbeddedCluster, shop: Shop) -> int:
    """Who decides the batches of the switch."""
    state = shop.registry.refresh().pipeline(shop.name)
    assert state is not None
    assert state.rebuild is not None
    count = len(cluster.partitions(TRANSACTION_STATE_TOPIC))
    key = sink_key(state.rebuild.sink_id)
    partition = partition_of_transactional_id(key, partition_count=count, hash_level=KAFKAS_HASH)
    return cluster.leader_of(TRANSACTION_STATE_TOPIC, partition)


def rebuilt_while_a_node_dies(
    shop: Shop,
    spark: Callable[[], SparkSession],
    cluster: EmbeddedCluster,
    point: str,
    victim_of: Callable[[EmbeddedCluster, Shop], int],
    monkeypatch: pytest.MonkeyPatch,
) -> int:
    """The switch goes on with the two that are left, and readers see one version or the other; the node that died."""
    old, new = shop.expected(), shop.expected(large)
    killed: list[int] = []

    def kill(name: str) -> None:
        if name == point and not killed:
            killed.append(victim_of(cluster, shop))
            cluster.kill(killed[0])

    reader = Reader(shop)
    with monkeypatch.context() as context:
        context.setattr(switching, "fault_point", kill)
        context.setattr(multi_topic_commit, "fault_point", kill)
        with reader.reading():
            ended = shop.rebuild(spark)
    assert len(killed) == 1, "a node died, at the point that was meant"
    assert not reader.failures
    seen = [each for at, each in enumerate(reader.seen) if at == 0 or each != reader.seen[at - 1]]
    assert seen in ([old, new], [old])
    assert ended.written == {f"{shop.name}-totals": 2}
    check_new(shop)
    return killed[0]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("point", "victim_of"),
    [
        ("switch-differences-written", coordinator_of_switch),
        ("switch-copy-written", leader_of_table),
        ("switch-committed", leader_of_registry),
    ],
)
def test_a_node_of_three_dies_in_the_switch(
    point: str,
    victim_of: Callable[[EmbeddedCluster, Shop], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with embedded(nodes=3, properties=BROKER_PROPERTIES) as cluster:
        shop = PlainShop(cluster, tmp_path, monkeypatch)
        made_ready(shop, shop.run_active)
        rebuilt_while_a_node_dies(shop, no_spark, cluster, point, victim_of, monkeypatch)
        shop.order(("ana", 12), ("gus", 31))
        shop.rebuild(no_spark, Wish.ROLL_BACK)
        check_old(shop)
        goes_on(shop, shop.run_active, is_new=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_checkpoints_are_recovered_after_a_switch_in_which_a_node_of_three_died(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with embedded(nodes=3, properties=BROKER_PROPERTIES) as cluster:
        shop = ready(spark, cluster, tmp_path)
        point = "switch-differences-written"
        killed = rebuilt_while_a_node_dies(shop, lambda: spark, cluster, point, coordinator_of_switch, monkeypatch)
        shutil.rmtree(tmp_path / "checkpoints" / shop.name / "v2")
        shop.order(("ana", 12), ("gus", 31))
        shop.run_once(spark, recovers=True)
        assert check_by_name(shop)
        assert shop.stream(2) == sorted(each for each in shop.orders if each[1] >= 10)
        cluster.start(killed)
        shop.rebuild(lambda: spark, Wish.ROLL_BACK)
        check_old(shop)
        goes_on(shop, lambda: shop.run_once(spark), is_new=False)
