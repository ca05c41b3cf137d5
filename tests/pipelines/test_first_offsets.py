"""Where the queries of a version begin to read: settled once, kept, and handed on to the next version; no Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.pipelines.rebuild_ground import put_rows, topic_id
from tests.spark.source_ground import WAIT_S, client_of

from strandline.ids import TopicPartition
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language.loading import load
from strandline.pipelines.language.model import Kind, Pipeline
from strandline.pipelines.run import first_offsets
from strandline.pipelines.run.running import Runner, RunOptions
from strandline.pipelines.versions.state import DatasetState, SourceStart, VersionState
from strandline.pipelines.versions.version_store import Registry
from strandline.spark.source.offset_json import TOPIC_IDS

FILE = """
from strandline import pipeline

pipeline.name("shop")
pipeline.source("orders", topic="{topic}", schema="id INT", dead_letters="{topic}.dead", options={options!r})
pipeline.source("others", topic="{topic}.others", schema="id INT")

@pipeline.temporary_view
def paid(orders):
    return orders

@pipeline.stream(topic="{topic}.large")
def large(paid, others):
    return paid

@pipeline.stream(topic="{topic}.larger")
def larger(large):
    return large
"""
LETTERS = "dead letters of orders"


class Ground:
    def __init__(self, broker: EmbeddedBroker, topic: str, home: Path) -> None:
        self.bootstrap, self.topic, self.home = broker.bootstrap, topic, home
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self.told: list[str] = []
        for each in (topic, f"{topic}.others"):
            broker.create_topic(each, 1)
        self.feed(5)

    def feed(self, count: int) -> None:
        put_rows(self.bootstrap, self.topic, {str(each): "{}" for each in range(count)})

    def pipeline(self, starting: str, **options: str) -> Pipeline:
        said = {"startingOffsets": starting.replace("@", self.topic), **options}
        file = self.home / "shop.py"
        file.write_text(FILE.format(options=said, topic=self.topic))
        return load(str(file))

    def settled(self, pipeline: Pipeline, noted: VersionState, *, has_begun: bool = False) -> first_offsets.Starts:
        return first_offsets.settled(self.bootstrap, pipeline, noted, lambda _: has_begun)

    def began(self, pipeline: Pipeline) -> VersionState:
        """A version that has run."""
        datasets = {"large": DatasetState("large", Kind.STREAM, "x", "x", reads=(self.topic,), query_id="id")}
        return VersionState(1, datasets=datasets, starts=self.settled(pipeline, VersionState(1)))

    def carried(
        self, pipeline: Pipeline, before: VersionState, *, from_beginning: bool = False
    ) -> first_offsets.Starts:
        return first_offsets.carried_over(
            self.bootstrap, pipeline, before, from_beginning=from_beginning, tell=self.told.append
        )

    def start(self, offset: int) -> SourceStart:
        return SourceStart(self.topic, self.id, {"0": offset})

    @property
    def id(self) -> str:
        with client_of(self.bootstrap) as client:
            return str(client.topics([self.topic])[self.topic].topic_id)


@pytest.fixture
def ground(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> Ground:
    return Ground(broker, topic, tmp_path)


MOVING = ["latest", '{"@":{"0":-1}}']
END = 6
"""Five records, and the marker of their transaction."""


@pytest.mark.parametrize("starting", MOVING)
def test_it_is_asked_once_for_all_queries_and_kept(ground: Ground, starting: str) -> None:
    pipeline = ground.pipeline(starting)
    found = ground.settled(pipeline, VersionState(1))
    others = {"others": SourceStart(f"{ground.topic}.others")}
    assert found == {
        LETTERS: {"orders": ground.start(END)},
        "large": {"orders": ground.start(END), **others},
        "larger": {},
    }
    ground.feed(3)
    assert ground.settled(pipeline, VersionState(1, starts=found)) == found
    wired = first_offsets.beginning_there(ground.bootstrap, pipeline, found)["large"]
    topic_id = found["large"]["orders"].topic_id
    began = {ground.topic: {"0": END}, TOPIC_IDS: {ground.topic: topic_id}}
    assert json.loads(wired["orders"].options["startAt"]) == began
    assert not first_offsets.is_moving(ground.bootstrap, wired["orders"])
    assert first_offsets.first_read(ground.bootstrap, wired["orders"]) == {TopicPartition(ground.topic, 0): END}
    assert wired["others"] == pipeline.sources["others"], "its own options say the same"


def test_of_two_processes_that_ask_at_once_the_one_that_notes_first_is_right(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have begun there."""
    monkeypatch.setattr(Runner, "_has_checkpoint", lambda *_: False)
    pipeline = replace(ground.pipeline("latest"), name=ground.topic)
    first, second = (
        Runner(pipeline, Registry(ground.bootstrap), RunOptions(str(ground.home), takeover=True)) for _ in range(2)
    )
    for runner in (first, second):
        runner.claim()
    asked = first_offsets.settled

    def overtaken(*arguments: Any) -> first_offsets.Starts:
        found = asked(*arguments)
        monkeypatch.setattr(first_offsets, "settled", asked)
        ground.feed(3)
        second._settle_starts()
        return found

    monkeypatch.setattr(first_offsets, "settled", overtaken)
    first._settle_starts()
    for runner in (first, second):
        assert runner.own.state.starts["large"]["orders"] == ground.start(END + 4)
        runner.give_up(None)
        runner.registry.close()


def test_what_began_before_anything_was_noted_is_not_guessed(ground: Ground) -> None:
    pipeline = ground.pipeline("latest")
    found = ground.settled(pipeline, VersionState(1), has_begun=True)
    assert found["large"] == {"others": SourceStart(f"{ground.topic}.others")}
    wired = first_offsets.beginning_there(ground.bootstrap, pipeline, found)["large"]
    assert first_offsets.is_moving(ground.bootstrap, wired["orders"])
    before = replace(ground.began(pipeline), starts=found)
    with pytest.raises(
        PipelineRefused, match=f"where version 1 began with {ground.topic} is not known: say --from-beg"
    ):
        ground.carried(pipeline, before)
    assert ground.carried(pipeline, before, from_beginning=True)["large"]["orders"] == SourceStart(ground.topic)


def test_offsets_that_the_file_names_stay_as_they_are(ground: Ground) -> None:
    pipeline = ground.pipeline('{"@":{"0":2}}')
    found = ground.settled(pipeline, VersionState(1), has_begun=True)
    assert found["large"]["orders"] == SourceStart(ground.topic, offsets={"0": 2})
    wired = first_offsets.beginning_there(ground.bootstrap, pipeline, found)["large"]
    assert wired["orders"] == pipeline.sources["orders"]
    edited = ground.pipeline('{"@":{"0":4}}')
    wired = first_offsets.beginning_there(ground.bootstrap, edited, found)["large"]
    assert json.loads(wired["orders"].options["startAt"]) == {ground.topic: {"0": 2}}, "what was really read"


def test_a_time_that_no_record_has_yet_is_settled_too(ground: Ground) -> None:
    options = {"startingTimestamp": "99999999999999", "startingOffsetsByTimestampStrategy": "latest"}
    pipeline = ground.pipeline("earliest", **options)
    assert ground.settled(pipeline, VersionState(1))["large"]["orders"] == ground.start(END)


@pytest.mark.parametrize("starting", MOVING)
def test_the_next_version_begins_where_the_one_before_did(ground: Ground, starting: str) -> None:
    pipeline = ground.pipeline(starting)
    before = ground.began(pipeline)
    ground.feed(3)
    expected = ground.start(END)
    assert ground.carried(pipeline, before) == {
        LETTERS: {"orders": expected},
        "large": {"orders": expected},
        "larger": {},
    }
    # A query that is new, and a source with another name, begin with the first that was read of the topic.
    earlier = {**before.starts, "gone": {"orders": ground.start(2)}}
    del earlier["large"]
    assert ground.carried(pipeline, replace(before, starts=earlier))["large"]["orders"] == ground.start(2)
    renamed = {query: {"former": each["orders"]} for query, each in before.starts.items() if "orders" in each}
    assert ground.carried(pipeline, replace(before, starts=renamed))["large"]["orders"] == expected
    # A topic that was read from its beginning, and one that never was.
    from_first = {"large": {"orders": SourceStart(ground.topic)}}
    assert ground.carried(pipeline, replace(before, starts=from_first))["large"]["orders"] == SourceStart(ground.topic)
    assert ground.carried(pipeline, VersionState(1))["large"] == {}
    assert ground.carried(ground.pipeline("earliest"), before)["large"] == {}, "the file says it"
    assert ground.told == []


def test_partitions_that_came_and_records_that_went(ground: Ground) -> None:
    pipeline = ground.pipeline("latest")
    before = ground.began(pipeline)
    ground.admin.create_partitions([NewPartitions(ground.topic, 2)])[ground.topic].result(WAIT_S)
    ground.feed(9)
    for future in ground.admin.delete_records([KafkaPartition(ground.topic, 0, END + 1)]).values():
        future.result(WAIT_S)
    expected = replace(ground.start(END), offsets={})
    assert ground.carried(pipeline, before)["large"]["orders"] == expected, "wherever its log begins when it is read"
    assert ground.told == [f"{ground.topic}-0 was read from offset 6 on, and its log begins at 7 now"]


def test_a_topic_that_was_made_anew_is_refused(ground: Ground, broker: EmbeddedBroker) -> None:
    pipeline = ground.pipeline("latest")
    before = ground.began(pipeline)
    was = topic_id(ground.bootstrap, ground.topic)
    ground.admin.delete_topics([ground.topic])[ground.topic].result(WAIT_S)
    broker.create_topic(ground.topic, 1)
    assert topic_id(ground.bootstrap, ground.topic) != was
    with pytest.raises(PipelineRefused, match=f"the topic {ground.topic} was deleted and made again since it was read"):
        ground.carried(pipeline, before)
    assert ground.carried(pipeline, before, from_beginning=True)["large"]["orders"] == SourceStart(ground.topic)
