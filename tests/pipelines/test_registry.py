"""What a cluster knows of its pipelines: written by several, read by all, and nothing of it is lost."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from tests.spark_fixtures import BROKER_PROPERTIES

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.language.model import Kind
from strandline.pipelines.run.local_node import admin_of
from strandline.pipelines.versions.state import (
    Command,
    DatasetState,
    PipelineState,
    QueryProgress,
    RebuildState,
    RunState,
    SourceStart,
    VersionState,
    checkpoint_of,
    known_datasets,
    text_of,
)
from strandline.pipelines.versions.version_log import TOPIC
from strandline.pipelines.versions.version_store import Registry, RegistryFailed
from strandline.testing import embedded

TOTALS = DatasetState(
    "totals",
    Kind.TABLE,
    "shop-totals",
    "shop-totals",
    schema='{"type":"struct","fields":[]}',
    key=("customer", "day"),
    mode="update",
    reads=("orders",),
    stateful=("aggregate",),
    query_id="1d7f",
)
STATES = [
    PipelineState("empty"),
    PipelineState(
        "shop",
        2,
        {
            1: VersionState(1, "shop.py", "aa", checkpoints="/checkpoints", created_ms=17, datasets={"totals": TOTALS}),
            2: VersionState(
                2,
                "shop.py",
                "bb",
                datasets={"totals": replace(TOTALS, topic="shop-totals.v2")},
                starts={"totals": {"orders": SourceStart("orders", "an-id", {"0": 7})}},
            ),
        },
        RebuildState(
            "switching", 1, 2, "me", 19, 20, "switch-1", {"shop-totals": {"0": 7}}, {"shop-totals.v2": {"0": 9}}
        ),
    ),
    RunState(
        "shop",
        1,
        "me",
        "running",
        1,
        "here",
        2,
        3,
        True,
        "why",
        "run.log",
        {"totals": QueryProgress("running", 4, 5, 6, 7.5, 8)},
    ),
    Command("shop", "stop", "id", 9, 2),
]


@pytest.mark.parametrize("state", STATES, ids=lambda each: type(each).__name__)
def test_what_is_written_is_read(state: PipelineState | RunState | Command) -> None:
    assert type(state).from_json(json.loads(text_of(state))) == state


def test_an_older_program_reads_what_a_newer_one_wrote() -> None:
    told = json.loads(text_of(STATES[1])) | {"colour": "blue"}
    told["versions"]["1"]["datasets"]["totals"]["colour"] = "red"
    del told["versions"]["1"]["digest"]
    read = PipelineState.from_json(told)
    assert read.versions[1] == replace(STATES[1].versions[1], digest="")  # type: ignore[union-attr]


def test_a_stream_is_what_the_active_version_writes() -> None:
    versions = {
        number: VersionState(number, datasets={"large": replace(TOTALS, name="large", kind=Kind.STREAM, topic=topic)})
        for number, topic in ((1, "large"), (2, "large.v2"))
    }
    shop = PipelineState("shop", 2, versions)
    assert known_datasets({"shop": shop})["large"].topic == "large.v2"
    assert known_datasets({"shop": replace(shop, active=1)})["shop.large"].topic == "large"


def test_a_table_is_read_in_its_public_topic_whichever_version_writes_it() -> None:
    shop = STATES[1]
    assert isinstance(shop, PipelineState)
    for active in (1, 2):
        assert known_datasets({"shop": replace(shop, active=active)})["totals"].topic == "shop-totals"


def test_of_two_datasets_of_one_name_the_pipeline_that_comes_first_has_it() -> None:
    shop = STATES[1]
    assert isinstance(shop, PipelineState)
    totals = replace(TOTALS, topic="a-totals", public_topic="a-totals")
    known = known_datasets(
        {"shop": shop, "a": PipelineState("a", 1, {1: VersionState(1, datasets={"totals": totals})})}
    )
    assert known["totals"].topic == "a-totals"
    assert known["totals"].key == ("customer", "day")
    assert known["shop.totals"].topic == "shop-totals"


def test_no_checkpoint_has_a_blank_in_its_name() -> None:
    assert checkpoint_of("/c/", "shop", 2, "dead letters of orders") == "/c/shop/v2/dead-letters-of-orders"


def test_nothing_is_known_of_a_new_cluster_and_nothing_is_made_by_looking(lonely: EmbeddedBroker) -> None:
    with Registry(lonely.bootstrap) as registry:
        assert registry.refresh().pipelines == {}
        assert registry.run("shop", 1) is None
        assert TOPIC not in admin_of(lonely.bootstrap).list_topics(timeout=30).topics


def test_one_process_reads_what_another_wrote(broker: EmbeddedBroker, topic: str) -> None:
    run = RunState(topic, 1, "me", heartbeat_ms=5)
    with Registry(broker.bootstrap) as writer, Registry(broker.bootstrap) as reader:
        writer.change(topic, lambda state: PipelineState(topic) if state is None else state)
        writer.put_run(run)
        writer.put_command(Command(topic, "stop", "a"))
        reader.refresh()
        assert reader.pipeline(topic) == PipelineState(topic)
        assert reader.run(topic, 1) == run
        assert reader.runs(topic) == {1: run}
        assert reader.command(topic) == Command(topic, "stop", "a")
        writer.change(topic, lambda state: None)
        reader.refresh()
        assert topic not in reader.pipelines
        assert reader.runs(topic) == {}
        assert reader.command(topic) is None


def test_changes_of_several_at_once_are_all_made(broker: EmbeddedBroker, topic: str) -> None:
    """A change upon an old state would take back what another wrote meanwhile."""

    def add(number: int, registry: Registry) -> None:
        registry.change(
            topic,
            lambda state: replace(
                state or PipelineState(topic),
                versions={**(state.versions if state else {}), number: VersionState(number)},
            ),
        )

    def work(numbers: range) -> None:
        with Registry(broker.bootstrap) as registry:
            for number in numbers:
                add(number, registry)

    threads = [threading.Thread(target=work, args=(range(at, at + 4),)) for at in (0, 4, 8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    with Registry(broker.bootstrap) as registry:
        state = registry.refresh().pipeline(topic)
    assert state is not None
    assert sorted(state.versions) == list(range(12))


def test_a_refused_change_changes_nothing(broker: EmbeddedBroker, topic: str) -> None:
    with Registry(broker.bootstrap) as registry:
        registry.change(topic, lambda state: PipelineState(topic))

        def refuse(state: PipelineState | None) -> PipelineState:
            raise LookupError("no")

        with pytest.raises(LookupError):
            registry.change(topic, refuse)
        registry.change(topic, lambda state: replace(state or PipelineState(""), active=3))
        assert registry.refresh().pipeline(topic) == PipelineState(topic, 3)


def test_who_dies_in_the_middle_of_a_change_holds_nobody_up(broker: EmbeddedBroker, topic: str) -> None:
    with Registry(broker.bootstrap) as registry:
        registry.change(topic, lambda state: PipelineState(topic))
        dead = registry._new_producer({"transactional.id": "strandline-pipelines"})
        dead.init_transactions(30)
        dead.begin_transaction()
        dead.produce(TOPIC, key=f"pipeline/{topic}".encode(), value=b'{"name":"ghost"}', partition=0)
        dead.flush(30)
        registry.change(topic, lambda state: replace(state or PipelineState(""), active=2))
        with Registry(broker.bootstrap) as reader:
            assert reader.refresh().pipeline(topic) == PipelineState(topic, 2)


def test_a_strange_record_is_passed_over(broker: EmbeddedBroker, topic: str) -> None:
    with Registry(broker.bootstrap) as registry:
        registry.change(topic, lambda state: PipelineState(topic))
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(TOPIC, key=f"pipeline/{topic}".encode(), value=b"\xff no JSON", partition=0)
        producer.produce(TOPIC, key=b"\xff", value=b"[]", partition=0)
        assert producer.flush(30) == 0
        assert registry.refresh().pipeline(topic) == PipelineState(topic)


@pytest.mark.slow
def test_a_change_is_known_to_who_made_it_when_the_leader_has_just_died() -> None:
    with embedded(nodes=3, properties=BROKER_PROPERTIES) as cluster, Registry(cluster.bootstrap_servers) as registry:
        registry.change("shop", lambda state: PipelineState("shop"))
        cluster.kill(cluster.leader_of(TOPIC))
        assert registry.change("shop", lambda state: replace(state or PipelineState(""), active=7)) is not None
        assert registry.pipeline("shop") == PipelineState("shop", 7)
        with Registry(cluster.bootstrap_servers) as reader:
            assert reader.refresh().pipeline("shop") == PipelineState("shop", 7)


def test_a_cluster_that_is_gone_is_told_in_a_sentence() -> None:
    with Registry("127.0.0.1:9", timeout_s=1.0) as registry:
        with pytest.raises(RegistryFailed, match=r"cannot read what 127\.0\.0\.1:9 knows of pipelines"):
            registry.refresh()
        with pytest.raises(RegistryFailed):
            registry.change("shop", lambda state: PipelineState("shop"))
