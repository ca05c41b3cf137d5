"""One worker: sources and sinks from end to end, good connectors and bad ones."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from tests.connect.plugins import Flaky, Hanging, Kept, Units
from tests.connect.running import RunningWorker, wait_until

import strandline
from strandline.connect.failures import FencedOut, RetriableFailure
from strandline.connect.herder.config_state import TaskId
from strandline.connect.herder.interface import LeaderOnly, RequestFailed, UnitStatus
from strandline.connect.herder.status_state import StoredStatus
from strandline.connect.tasks.conversion import OutMessage
from strandline.connect.tasks.metrics import TaskMetrics
from strandline.connect.tasks.settings import ConnectTaskSettings
from strandline.connect.tasks.source_task import transactional_id
from strandline.connect.tasks.task_producer import TaskProducer
from strandline.connect.tasks.tolerance import BadRecord, RawRecord, Tolerance
from strandline.local.embedded_broker import EmbeddedBroker


@pytest.fixture(scope="module")
def log() -> Iterator[EmbeddedBroker]:
    with strandline.embedded(properties={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def worker(log: EmbeddedBroker) -> Iterator[RunningWorker]:
    with RunningWorker(log.bootstrap, task_shutdown_graceful_timeout_ms="500") as running:
        yield running.lead()


def committed(
    log: EmbeddedBroker, topic: str, count: int, wait_s: float = 60.0, isolation: str = "read_committed"
) -> list[Any]:
    """Read a topic from its beginning until it has given so many records, and on to the end that it has then."""
    admin = AdminClient({"bootstrap.servers": log.bootstrap})
    wait_until(lambda: topic in admin.list_topics().topics, f"{topic} is made", wait_s)
    places = admin.list_topics(topic).topics[topic].partitions
    consumer = Consumer(
        {
            "bootstrap.servers": log.bootstrap,
            "group.id": "committed",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in places])
    found: list[Any] = []
    positions: dict[int, int] = {}
    ends: dict[int, int] = {}

    def is_whole() -> bool:
        for each in consumer.consume(1000, 0.1):
            if each.error() is None:
                found.append(each)
                positions[each.partition()] = each.offset() + 1
            elif each.error().code() == KafkaError._PARTITION_EOF:
                positions[each.partition()] = each.offset()
        if len(found) >= count and not ends:
            ends.update({each: consumer.get_watermark_offsets(TopicPartition(topic, each))[1] for each in places})
        return bool(ends) and all(positions.get(each, -1) >= end for each, end in ends.items())

    try:
        wait_until(is_whole, f"{count} records in {topic}; there are {len(found)}", wait_s)
        return found
    finally:
        consumer.close()


def produce(log: EmbeddedBroker, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": log.bootstrap})
    for each in values:
        producer.produce(topic, each)
    producer.flush()


@pytest.mark.parametrize("kind", ["Counter", "PlainCounter"])
def test_a_source_writes_each_record_once_and_knows_where_it_is(
    log: EmbeddedBroker, worker: RunningWorker, kind: str
) -> None:
    name = f"count-{kind}".lower()
    worker.create(name, kind, topic=name, count="200")
    values = [each.value() for each in committed(log, name, 200)]
    assert values == [str(each).encode() for each in range(200)]
    wait_until(
        lambda: worker.ask(worker.herder.offsets(name)) == [({"part": 0}, {"next": 200})], "the last position is stored"
    )
    assert worker.herder.topics(name) == [name]
    assert worker.herder.info(name).kind == "source"


def test_a_source_goes_on_where_it_was_stopped_and_where_an_administrator_sets_it(
    log: EmbeddedBroker, worker: RunningWorker
) -> None:
    worker.create("again", "Counter", topic="again", count="100")
    committed(log, "again", 100)
    with pytest.raises(RequestFailed, match="STOPPED state before their offsets can be modified"):
        worker.ask(worker.herder.alter_offsets("again", [({"part": 0}, {"next": 90})]))
    worker.set_state("again", "STOPPED")
    wait_until(lambda: not worker.herder.task_configs("again"), "it has no tasks")
    worker.ask(worker.herder.alter_offsets("again", [({"part": 0}, {"next": 90})]))
    worker.set_state("again", "STARTED")
    values = [int(each.value()) for each in committed(log, "again", 110)]
    assert values == [*range(100), *range(90, 100)]
    worker.set_state("again", "STOPPED")
    wait_until(lambda: not worker.herder.task_configs("again"), "it has no tasks")
    worker.ask(worker.herder.reset_offsets("again"))
    assert worker.ask(worker.herder.offsets("again")) == []
    stored = [each for each in committed(log, "connect-offsets", 4) if each.key().startswith(b'["again"')]
    assert stored[-1].value() is None
    assert len({each.partition() for each in stored}) == 1, "positions are in order in one partition only"


def test_a_source_begins_behind_positions_that_another_transaction_hides(
    log: EmbeddedBroker, worker: RunningWorker
) -> None:
    worker.create("hidden", "Counter", topic="hidden", count="100000", step="1", pause="0.02")
    count = len(committed(log, "hidden", 5))
    place = next(
        each for each in committed(log, "connect-offsets", 5) if each.key().startswith(b'["hidden"')
    ).partition()
    other = Producer({"bootstrap.servers": log.bootstrap, "transactional.id": "hides"})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce("connect-offsets", b"x", key=b"of another task", partition=place)
    other.flush()
    count = len(committed(log, "hidden", count + 20))
    worker.ask(worker.herder.restart_task("hidden", 0))

    def task() -> Any:
        runner = worker.worker.runner(TaskId("hidden", 0))
        return None if runner is None else runner.task

    wait_until(lambda: (found := task()) is not None and found._producer is not None, "it has its producer")
    # Its position is hidden, so nothing may be read yet.
    time.sleep(0.5)
    assert task().metrics.batches == 0
    other.abort_transaction()
    values = [int(each.value()) for each in committed(log, "hidden", count + 20)]
    worker.ask(worker.herder.delete("hidden"))
    assert values == [*range(len(values))]


def test_a_paused_source_gives_nothing_until_it_goes_on(log: EmbeddedBroker, worker: RunningWorker) -> None:
    worker.create("pausing", "Counter", topic="pausing", count="100000", pause="0.01")
    committed(log, "pausing", 20)
    worker.set_state("pausing", "PAUSED")
    worker.wait_for("pausing", "PAUSED")

    def gives_nothing() -> bool:
        before = worker.ask(worker.herder.offsets("pausing"))
        time.sleep(0.5)
        return worker.ask(worker.herder.offsets("pausing")) == before

    # What it had begun may be committed after it.
    wait_until(gives_nothing, "it gives nothing for half a second")
    before = worker.ask(worker.herder.offsets("pausing"))
    worker.set_state("pausing", "STARTED")
    worker.wait_for("pausing", "RUNNING")
    wait_until(lambda: worker.ask(worker.herder.offsets("pausing")) != before, "it goes on")
    worker.ask(worker.herder.delete("pausing"))


def test_batches_that_belong_together_are_seen_together(log: EmbeddedBroker, worker: RunningWorker) -> None:
    worker.create("units", "Units", topic="units")
    assert [each.value() for each in committed(log, "units", 1, isolation="read_uncommitted")] == [b'"0-a"']
    assert committed(log, "units", 0) == []
    Units.may_go_on.set()
    whole = [f'"{unit}-{part}"'.encode() for unit in range(2) for part in "abc"]
    assert [each.value() for each in committed(log, "units", len(whole))] == whole
    wait_until(lambda: worker.ask(worker.herder.offsets("units")) == [({"part": 0}, {"next": 2})], "it is stored")
    assert Units.failures == 1


def test_a_sink_gets_everything_and_commits_behind_it(log: EmbeddedBroker, worker: RunningWorker) -> None:
    produce(log, "plain", [b'{"n":%d}' % each for each in range(100)])
    worker.create("keep", "Kept", topics="plain", into="keep")
    wait_until(lambda: len(Kept.written.get("keep", ())) >= 100, "all is written")
    assert [value["n"] for value, _ in Kept.written["keep"]] == list(range(100))
    position = {"kafka_topic": "plain", "kafka_partition": 0}, {"kafka_offset": 100}
    wait_until(lambda: worker.ask(worker.herder.offsets("keep")) == [position], "offsets are committed")


def test_offsets_are_committed_only_behind_what_flush_has_stored(log: EmbeddedBroker, worker: RunningWorker) -> None:
    produce(log, "slow", [b"%d" % each for each in range(15)])
    worker.create("buffered", "Buffered", topics="slow", into="buffered")
    seen = set()

    def is_done() -> bool:
        for _, offset in worker.ask(worker.herder.offsets("buffered")):
            assert offset is not None
            seen.add(offset["kafka_offset"])
            assert len(Kept.written["buffered"]) >= offset["kafka_offset"]
        return 15 in seen

    wait_until(is_done, "all is committed")
    assert len(Kept.written["buffered"]) == 15


def test_a_target_that_is_down_is_waited_for(log: EmbeddedBroker, worker: RunningWorker) -> None:
    Kept.away.add("down")
    produce(log, "waits", [b"1", b"2"])
    worker.create("down", "Kept", topics="waits", into="down")
    wait_until(
        lambda: "the target down is down" in str(worker.status("down")),
        "the state says what it waits for",
    )
    assert "down" not in Kept.written
    Kept.away.discard("down")
    wait_until(lambda: len(Kept.written.get("down", ())) == 2, "both are written")
    status = worker.status("down")
    assert status is not None
    assert status.tasks[0].state == "RUNNING"


@pytest.mark.slow
def test_partitions_that_were_lost_while_paused_are_read_when_they_come_back(
    log: EmbeddedBroker, worker: RunningWorker
) -> None:
    log.create_topic("leaves", 2)
    written = Kept.written.setdefault("stays", [])
    producer = Producer({"bootstrap.servers": log.bootstrap})

    def is_written(value: int, partitions: Sequence[int]) -> None:
        for each in partitions:
            producer.produce("leaves", b"%d" % value, partition=each)
        producer.flush()
        wait_until(lambda: [each for each, _ in written].count(value) == len(partitions), f"{value} is written")

    often = {"consumer.override.heartbeat.interval.ms": "300"}
    worker.create("stays", "Kept", often, topics="leaves", into="stays")
    is_written(1, (0, 1))
    worker.set_state("stays", "PAUSED")
    worker.wait_for("stays", "PAUSED")
    other = Consumer(
        {
            "bootstrap.servers": log.bootstrap,
            "group.id": "connect-stays",
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 300,
        }
    )
    other.subscribe(["leaves"])

    def has_one() -> bool:
        other.poll(0)
        return len(other.assignment()) == 1

    wait_until(has_one, "another member has one of them")
    (taken,) = (each.partition for each in other.assignment())
    worker.set_state("stays", "STARTED")
    is_written(2, (1 - taken,))
    other.close()
    is_written(3, (taken,))


def test_a_sink_sends_heartbeats_and_looks_for_topics_often(
    log: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def consumer(settings: dict[str, Any], **more: Any) -> Consumer:
        given.append(settings)
        return Consumer(settings, **more)

    monkeypatch.setattr("confluent_kafka.Consumer", consumer)
    topics = {f"{each}_storage_topic": f"short-{each}" for each in ("config", "offset", "status")}
    with RunningWorker(log.bootstrap, group_id="short", session_timeout_ms="6000", **topics) as worker:
        worker.lead().create("brief", "Kept", topics="brief", into="brief")
        worker.wait_for("brief", "RUNNING")
        wait_until(lambda: any(each["group.id"] == "connect-brief" for each in given), "it has a consumer")
    (settings,) = (each for each in given if each["group.id"] == "connect-brief")
    assert settings["session.timeout.ms"] == 6000
    assert settings["heartbeat.interval.ms"] == 2000
    # A topic that a source creates later is read within seconds, not after librdkafka's five minutes.
    assert settings["topic.metadata.refresh.interval.ms"] <= 5000


@pytest.mark.parametrize("names_record", ["true", "false"])
def test_a_poison_record_becomes_a_dead_letter(log: EmbeddedBroker, worker: RunningWorker, names_record: str) -> None:
    name = f"poison-{names_record}"
    produce(log, name, [b"1", b"not json", b"66", b"4"])
    worker.create(
        name,
        "Kept",
        {
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"dead-{name}",
            "errors.deadletterqueue.context.headers.enable": "true",
        },
        topics=name,
        into=name,
        poison="66",
        names_record=names_record,
    )
    wait_until(lambda: [value for value, _ in Kept.written.get(name, ())] == [1, 4], "the good ones are written")
    dead = {each.value(): dict(each.headers()) for each in committed(log, f"dead-{name}", 2)}
    assert set(dead) == {b"not json", b"66"}
    told = dead[b"66"]
    assert told["__connect.errors.topic"] == name.encode()
    assert told["__connect.errors.offset"] == b"2"
    assert told["__connect.errors.stage"] == b"TASK_PUT"
    assert told["__connect.errors.exception.message"] == b"it is poison"
    assert dead[b"not json"]["__connect.errors.stage"] == b"VALUE_CONVERTER"
    position = {"kafka_topic": name, "kafka_partition": 0}, {"kafka_offset": 4}
    wait_until(lambda: worker.ask(worker.herder.offsets(name)) == [position], "their offsets are committed, too")


def test_a_dead_letter_that_its_topic_refuses_is_not_lost(log: EmbeddedBroker, worker: RunningWorker) -> None:
    admin = AdminClient({"bootstrap.servers": log.bootstrap})
    admin.create_topics([NewTopic("small-letters", 1, 1, config={"max.message.bytes": "2000"})])[
        "small-letters"
    ].result()
    bad = b"not json" * 500
    produce(log, "large-letters", [b"1", bad, b"3"])
    settings = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "small-letters"}
    worker.create("large-letters", "Kept", settings, topics="large-letters", into="large-letters")
    trace = worker.wait_for("large-letters", "FAILED")
    assert trace.startswith("dead letters cannot be written to small-letters")
    assert worker.ask(worker.herder.offsets("large-letters")) == []
    larger = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", "small-letters", incremental_configs=[larger])
    admin.incremental_alter_configs([resource])[resource].result()
    worker.ask(worker.herder.restart_task("large-letters", 0))
    assert {each.value() for each in committed(log, "small-letters", 1)} == {bad}
    wait_until(lambda: (b := Kept.written.get("large-letters")) is not None and (3, 2) in b, "the others are written")


def test_a_dead_letter_that_was_not_stored_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[_Letters] = []

    class _Letters:
        """Stores nothing as the first one that is made."""

        def __init__(self, settings: object, logger: object) -> None:
            made.append(self)
            self.values: list[bytes] = []
            self._waiting: list[Any] = []

        def produce(self, topic: str, *, value: bytes, on_delivery: Any, **named: Any) -> None:
            self._waiting.append(on_delivery)
            self.values.append(value)

        def poll(self, seconds: float) -> None:
            pass

        def flush(self, seconds: float) -> int:
            for each in self._waiting:
                each(KafkaError(KafkaError._MSG_TIMED_OUT) if made[0] is self else None, None)
            self._waiting.clear()
            return 0

    monkeypatch.setattr("confluent_kafka.Producer", _Letters)
    settings = ConnectTaskSettings({"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"})
    tolerance = Tolerance("localhost:1", TaskId("sink", 0), "Sink", settings, TaskMetrics())
    tolerance.take(BadRecord("TASK_PUT", "t-0 at offset 1", ValueError()), RawRecord("t", 0, 1, 0, None, b"bad", ()))
    with pytest.raises(RetriableFailure, match="dead letters cannot be written to dead"):
        tolerance.flush()
    tolerance.flush()
    tolerance.flush()
    assert [each.values for each in made] == [[b"bad"], [b"bad"]]


def test_without_tolerance_the_task_fails_and_names_the_record(log: EmbeddedBroker, worker: RunningWorker) -> None:
    produce(log, "strict", [b"1", b"oops"])
    worker.create("strict", "Kept", topics="strict", into="strict")
    trace = worker.wait_for("strict", "FAILED")
    assert "converting the value of strict-0 at offset 1" in trace
    assert "\n" not in trace


def test_a_connector_that_raises_fails_alone_and_is_restarted(log: EmbeddedBroker, worker: RunningWorker) -> None:
    worker.create("raises", "Raising", topic="raises")
    trace = worker.wait_for("raises", "FAILED")
    assert trace.startswith("ZeroDivisionError: a bug of the connector")
    assert [each.value() for each in committed(log, "raises", 1)] == [b'"one"']
    worker.create("beside", "Counter", topic="beside", count="10")
    committed(log, "beside", 10)
    worker.ask(worker.herder.restart_task("raises", 0))
    assert len(committed(log, "raises", 2)) == 2, "it has begun again, and failed again"
    worker.wait_for("raises", "FAILED")


def test_a_reason_that_is_too_long_or_no_unicode_holds_up_no_other_state(
    log: EmbeddedBroker, worker: RunningWorker
) -> None:
    worker.create("wordy", "Raising", topic="wordy", reason="\udcff long", times="1000000")
    worker.wait_for("wordy", "FAILED")
    worker.create("brief", "Counter", topic="brief", count="1")
    worker.wait_for("brief", "RUNNING")
    stored: dict[bytes, list[dict[str, str]]] = {}

    def is_stored() -> bool:
        stored.clear()
        for each in committed(log, "connect-status", 4):
            stored.setdefault(each.key(), []).append(json.loads(each.value() or b"{}"))
        return b"status-task-brief-0" in stored

    wait_until(is_stored, "the state of the next is stored")
    (trace,) = (each["trace"] for each in stored[b"status-task-wordy-0"] if each["state"] == "FAILED")
    assert trace.startswith("ZeroDivisionError: \udcff long")
    assert "characters are left out" in trace


def test_a_connector_that_gives_nonsense_fails_with_a_sentence(worker: RunningWorker) -> None:
    worker.create("nonsense", "Nonsense", topic="nonsense")
    assert worker.wait_for("nonsense", "FAILED") == "read() gave str, and must give strandline.connect.Batch"


def test_what_passes_is_tried_again_without_anyone(log: EmbeddedBroker, worker: RunningWorker) -> None:
    Flaky.failures.clear()
    worker.create("flaky", "Flaky", topic="flaky")
    assert [each.value() for each in committed(log, "flaky", 1)] == [b'"back"']
    first, second, third = Flaky.failures
    assert second - first > 0.9
    assert third - second > 1.9, "it waits longer each time"
    worker.wait_for("flaky", "RUNNING")


def test_a_connector_that_hangs_stops_no_other(log: EmbeddedBroker, worker: RunningWorker) -> None:
    worker.create("hangs-early", "HangingTasks", topic="hangs")
    worker.create("hangs", "Hanging", topic="hangs")
    worker.wait_for("hangs", "RUNNING")
    worker.ask(worker.herder.delete("hangs"))
    worker.create("after", "Counter", topic="after", count="10")
    committed(log, "after", 10)
    assert "hangs" not in worker.herder.connectors()
    Hanging.released.set()


def test_more_tasks_than_allowed_fail_the_connector(worker: RunningWorker) -> None:
    worker.create("many", "TooMany", topic="many")
    wait_until(lambda: (status := worker.status("many")) is not None and status.connector.state == "FAILED", "it fails")
    status = worker.status("many")
    assert status is not None
    assert "made 2 tasks, which is more than tasks.max=1" in (status.connector.trace or "")


def test_requests_that_make_no_sense_are_refused(worker: RunningWorker) -> None:
    herder = worker.herder
    with pytest.raises(RequestFailed, match="not found") as found:
        herder.info("unknown")
    assert found.value.status == 404
    with pytest.raises(RequestFailed, match="Missing required configuration"):
        worker.create("half", "Counter")
    worker.create("twice", "Counter", topic="twice", count="1")
    with pytest.raises(RequestFailed, match="already exists"):
        worker.create("twice", "Counter", topic="twice")
    with pytest.raises(RequestFailed, match=r"plugin\.modules"):
        worker.ask(herder.create("os", {"name": "os", "connector.class": "os:system", "topic": "x"}))


def test_a_second_worker_does_not_write_configs(log: EmbeddedBroker) -> None:
    with RunningWorker(log.bootstrap, 1, group_id="pair") as first:
        first.lead()
        with RunningWorker(log.bootstrap, 2, group_id="pair") as second:
            wait_until(lambda: second.worker.assignment.leader_url == "http://worker-1", "it knows the leader")
            with pytest.raises(LeaderOnly) as refused:
                second.create("x", "Counter", topic="x")
            assert refused.value.leader_url == "http://worker-1"


def test_a_worker_without_the_plugin_fails_its_task_alone_and_others_take_it_over(log: EmbeddedBroker) -> None:
    topics = {f"{each}_storage_topic": f"uneven-{each}" for each in ("config", "offset", "status")}
    with RunningWorker(log.bootstrap, 1, group_id="uneven", **topics) as first:
        first.lead()
        with RunningWorker(log.bootstrap, 2, group_id="uneven", plugin_modules="", **topics) as second:
            wait_until(lambda: second.worker.assignment.leader_url == "http://worker-1", "both are in the group")
            first.create("uneven", "Counter", topic="uneven", count="20", tasks_max="2")

            def states() -> dict[str, str]:
                status = first.status("uneven")
                return {} if status is None else {each.worker_id: each.state for each in status.tasks.values()}

            wait_until(lambda: states() == {"worker-1": "RUNNING", "worker-2": "FAILED"}, "one of two tasks runs")
            status = first.status("uneven")
            assert status is not None
            (why,) = (each.trace for each in status.tasks.values() if each.state == "FAILED")
            assert why is not None
            assert why == (
                "the worker does not run classes of the module tests.connect.plugins: "
                "name it in plugin.modules of the worker"
            )
            assert len(committed(log, "uneven", 20)) == 20
        values = committed(log, "uneven", 40)
    assert sorted((each.key(), int(each.value())) for each in values) == [
        (key, number) for key in (b'"0"', b'"1"') for number in range(20)
    ]


def test_old_tasks_are_fenced_before_new_ones_begin(log: EmbeddedBroker, worker: RunningWorker) -> None:
    """A task that hangs on some worker cannot commit any more, also if its number is not used again."""
    worker.create("shrinks", "Counter", topic="shrinks", count="20", tasks_max="2")
    committed(log, "shrinks", 40)
    worker.set_state("shrinks", "STOPPED")
    wait_until(lambda: not worker.herder.task_configs("shrinks"), "it has no tasks")
    zombie = TaskProducer(log.bootstrap, transactional_id("connect-cluster", "shrinks", 1), "connect-offsets", {})
    zombie.send([OutMessage("shrinks", None, b"late", None, None, [])])
    config = {**worker.herder.info("shrinks").config, "tasks.max": "1"}
    worker.ask(worker.herder.put_config("shrinks", config))
    worker.set_state("shrinks", "STARTED")
    worker.wait_for("shrinks", "RUNNING")
    with pytest.raises(FencedOut):
        zombie.commit([])
    assert len(committed(log, "shrinks", 40)) == 40


def test_a_worker_of_an_older_generation_does_not_overwrite_a_state(worker: RunningWorker) -> None:
    worker.create("moved", "Counter", topic="moved", count="1")
    worker.wait_for("moved", "RUNNING")
    task = TaskId("moved", 0)
    newer = StoredStatus(UnitStatus("RUNNING", "another-worker:1"), generation=1_000_000)
    worker.worker.stores.statuses.put(task, newer)
    runner = worker.worker.runner(task)
    assert runner is not None
    runner._report("FAILED", "late news of a zombie")
    assert worker.worker.stores.statuses.tasks("moved")[0] == newer


def test_offsets_in_the_target_are_set_and_reset_with_those_of_the_group(
    log: EmbeddedBroker, worker: RunningWorker, tmp_path: Path
) -> None:
    database = tmp_path / "rows.sqlite"
    produce(log, "kept-rows", [b'{"n":%d}' % each for each in range(5)])
    settings = {"insert.mode": "insert", "pk.mode": "none", "delete.enabled": "false"}
    worker.create("kept-rows", "SqliteSink", settings, topics="kept-rows", connection_url=str(database))

    def rows() -> int:
        with contextlib.closing(sqlite3.connect(database, timeout=30)) as connection:
            try:
                return int(connection.execute('select count(*) from "kept-rows"').fetchone()[0])
            except sqlite3.OperationalError:
                return 0

    wait_until(lambda: rows() == 5, "all rows are there")
    wait_until(lambda: bool(worker.ask(worker.herder.offsets("kept-rows"))), "offsets are committed")
    worker.set_state("kept-rows", "STOPPED")
    wait_until(lambda: not worker.herder.task_configs("kept-rows"), "it has no tasks")
    place = {"kafka_topic": "kept-rows", "kafka_partition": 0}
    worker.ask(worker.herder.alter_offsets("kept-rows", [(place, {"kafka_offset": 3})]))
    worker.set_state("kept-rows", "STARTED")
    wait_until(lambda: rows() == 7, "the last two are written again")
    worker.set_state("kept-rows", "STOPPED")
    wait_until(lambda: not worker.herder.task_configs("kept-rows"), "it has no tasks")
    worker.ask(worker.herder.reset_offsets("kept-rows"))
    worker.set_state("kept-rows", "STARTED")
    wait_until(lambda: rows() == 12, "all are written again")


def test_a_source_creates_its_topic_by_the_rules_of_its_config(log: EmbeddedBroker, worker: RunningWorker) -> None:
    rules = {
        "topic.creation.default.partitions": "2",
        "topic.creation.default.replication.factor": "-1",
        "topic.creation.groups": "states",
        "topic.creation.states.include": "state-.*",
        "topic.creation.states.partitions": "3",
        "topic.creation.states.cleanup.policy": "compact",
    }
    worker.create("makes-state", "Counter", rules, topic="state-of-things", count="5")
    worker.create("makes-other", "Counter", rules, topic="other-things", count="5")
    committed(log, "state-of-things", 5)
    committed(log, "other-things", 5)
    admin = AdminClient({"bootstrap.servers": log.bootstrap})
    topics = admin.list_topics(timeout=30).topics
    assert len(topics["state-of-things"].partitions) == 3
    assert len(topics["other-things"].partitions) == 2
    resource = ConfigResource("topic", "state-of-things")
    (found,) = admin.describe_configs([resource]).values()
    assert found.result()["cleanup.policy"].value == "compact"
