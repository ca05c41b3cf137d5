"""Settings that change while the node runs, through the front door: a stock client sees each one take effect.

Every honoured setting of topics is in one table: what shows it, before the change and after. Each line is run for the
topic itself and, under the node's name, for one broker and for all of them.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from tests.hostile.peer import Closed, Peer
from tests.scenarios.config_cases import BROKER, DELETE, GROUP, METRICS, SET, TOPIC

import strandline
from strandline.codec.columns import columns_of
from strandline.codec.messages import incremental_alter_configs_request as incremental
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from strandline.config.topic_config import TOPIC_SETTINGS
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.node_process import BrokerFailed

TIMEOUT_S = 30.0
HOUR_MS = 3_600_000
_names = (f"topic-{number}" for number in itertools.count())


class World:
    """A node, the clients that look at it, and a connection that changes its settings."""

    def __init__(self, log: EmbeddedBroker) -> None:
        self.log = log
        settings = {"bootstrap.servers": log.bootstrap, "acks": "all", "retries": 0, "linger.ms": 0}
        self.producer = Producer({**settings, "message.max.bytes": 20_000_000})
        self.peer = Peer(log.port)

    def close(self) -> None:
        self.peer.close()
        # A producer of librdkafka goes on knocking until it is forgotten.
        del self.producer

    def change(self, kind: int, resource: str, name: str, value: str | None) -> None:
        operation = DELETE if value is None else SET
        config = incremental.AlterableConfig(name=name, config_operation=operation, value=value)
        request = incremental.IncrementalAlterConfigsRequest(
            resources=[incremental.AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[config])]
        )
        (response,) = self.peer.ask(request, 1).responses
        assert response.error_code == 0, response.error_message

    def described(self, kind: int, resource: str, name: str) -> tuple[str | None, int]:
        """(value, source) of one setting."""
        asked = DescribeConfigsResource(resource_type=kind, resource_name=resource, configuration_keys=[name])
        (result,) = self.peer.ask(DescribeConfigsRequest(resources=[asked]), 4).results
        assert result.error_code == 0, result.error_message
        (config,) = result.configs
        return config.value, config.config_source

    def produce(self, topic: str, value: bytes, *, key: bytes | None = b"k", timestamp: int = 0) -> int:
        """The error code that the client is told, 0 for none."""
        told: list[KafkaError | None] = []
        self.producer.produce(topic, value, key, timestamp=timestamp, on_delivery=lambda error, _: told.append(error))
        assert self.producer.flush(TIMEOUT_S) == 0
        (error,) = told
        return 0 if error is None else error.code()

    def last_message(self, topic: str) -> Any:
        consumer = Consumer({"bootstrap.servers": self.log.bootstrap, "group.id": "none", "enable.auto.commit": False})
        try:
            partition = TopicPartition(topic, 0)
            _, end = consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S)
            consumer.assign([TopicPartition(topic, 0, end - 1)])
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            assert message.error() is None
            return message
        finally:
            consumer.close()

    def segments(self, topic: str, suffix: str = ".log") -> list[bytes]:
        files = sorted((self.log.data / f"{topic}-0").glob(f"*{suffix}"))
        return [path.read_bytes() for path in files]


Shows = Callable[[World, str], object]


class Line(NamedTuple):
    """What `shows` gives on a topic with the settings `given`, before `name` is `value` and after, fits `effect`."""

    name: str
    value: str
    shows: Shows
    effect: Callable[[Any, Any], bool]
    given: Mapping[str, str] = {}


def turns(before: object, after: object) -> Callable[[object, object], bool]:
    return lambda seen_before, seen_after: (seen_before, seen_after) == (before, after)


def changes(before: int, after: int) -> bool:
    return before != after


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def stored_codec(world: World, topic: str) -> int:
    assert world.produce(topic, b"x" * 500) == 0
    return int(list(columns_of(world.segments(topic)[-1]))[-1].compression)


def grew_by(world: World, topic: str) -> int:
    """By how much a batch of compressible records made the log longer."""
    before = len(world.segments(topic)[-1])
    assert world.produce(topic, b"".join(b"%d," % (number * number) for number in range(20_000))) == 0
    return len(world.segments(topic)[-1]) - before


def timestamp_type(world: World, topic: str) -> int:
    assert world.produce(topic, b"x") == 0
    return int(world.last_message(topic).timestamp()[0])


def rolled(*values: bytes, ages_ms: tuple[int, ...] = ()) -> Shows:
    """Whether the log has more than one segment once these values are in it, each in a batch of its own."""

    def shows(world: World, topic: str) -> bool:
        for value, age_ms in itertools.zip_longest(values, ages_ms, fillvalue=0):
            assert world.produce(topic, bytes(value), timestamp=now_ms() - int(age_ms)) == 0
        return len(world.segments(topic)) > 1

    return shows


def closed_indexes_have_entries(world: World, topic: str) -> bool:
    rolled(*[KIB] * 9)(world, topic)
    return any(world.segments(topic, ".index")[-3:-1])


def last_segment_has_its_full_size(world: World, topic: str) -> bool:
    rolled(*[KIB] * 4)(world, topic)
    return len(world.segments(topic)[-1]) == int(SMALL_SEGMENTS["internal.segment.bytes"])


KIB = b"x" * 1000
SMALL_SEGMENTS = {"internal.segment.bytes": "3000"}

TABLE = [
    Line(
        "max.message.bytes",
        "1000",
        lambda world, topic: world.produce(topic, b"x" * 5000),
        turns(0, KafkaError.MSG_SIZE_TOO_LARGE),
    ),
    Line(
        "cleanup.policy",
        "compact",
        lambda world, topic: world.produce(topic, b"x", key=None),
        turns(0, KafkaError.INVALID_RECORD),
    ),
    Line(
        "message.timestamp.type",
        "LogAppendTime",
        timestamp_type,
        turns(TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME),
    ),
    Line(
        "message.timestamp.after.max.ms",
        "1000",
        lambda world, topic: world.produce(topic, b"x", timestamp=now_ms() + HOUR_MS // 2),
        turns(0, KafkaError.INVALID_TIMESTAMP),
    ),
    Line(
        "message.timestamp.before.max.ms",
        "1000",
        lambda world, topic: world.produce(topic, b"x", timestamp=now_ms() - HOUR_MS),
        turns(0, KafkaError.INVALID_TIMESTAMP),
    ),
    Line("compression.type", "zstd", stored_codec, turns(0, 4)),
    Line("compression.gzip.level", "1", grew_by, changes, {"compression.type": "gzip"}),
    Line("compression.lz4.level", "1", grew_by, changes, {"compression.type": "lz4"}),
    Line("compression.zstd.level", "-50", grew_by, changes, {"compression.type": "zstd"}),
    Line("segment.bytes", "1048576", rolled(*[b"x" * 600_000] * 3), turns(False, True)),
    Line("internal.segment.bytes", "3000", rolled(*[KIB] * 4), turns(False, True)),
    Line("segment.ms", "1000", rolled(b"x", b"x", ages_ms=(5000, 0)), turns(False, True)),
    Line(
        "segment.jitter.ms",
        "999999",
        rolled(b"x", b"x", ages_ms=(999_000, 0)),
        turns(False, True),
        {"segment.ms": "1000000"},
    ),
    Line("segment.index.bytes", "48", rolled(*[KIB] * 10), turns(False, True), {"index.interval.bytes": "1"}),
    Line("index.interval.bytes", "1", closed_indexes_have_entries, turns(False, True), SMALL_SEGMENTS),
    Line("preallocate", "true", last_segment_has_its_full_size, turns(False, True), SMALL_SEGMENTS),
]

SHOWN_ELSEWHERE = {
    "unclean.leader.election.enable": "it takes an election: tests/simulation/test_traps.py",
    "min.insync.replicas": "one replica is never too few of itself: tests/scenarios/test_cluster_faults.py",
    "flush.messages": "when the disk is asked shows in no answer: tests/unit/broker/test_dynamic_config.py",
    "flush.ms": "likewise",
    "flush.mode": "likewise",
    "strandline.owner": "it is for people and tools: tests/cli/test_contracts.py",
    "strandline.lag.objectives": "likewise",
    "strandline.validate.records": "it takes records that are none: tests/scenarios/test_record_checks.py",
    "confluent.key.schema.validation": "it takes a registry: tests/registry/test_validation.py",
    "confluent.value.schema.validation": "likewise",
    "confluent.key.subject.name.strategy": "likewise",
    "confluent.value.subject.name.strategy": "likewise",
    "strandline.schema.validation": "likewise",
    "strandline.retention.lock.ms": "it takes a while: tests/scenarios/test_retention_lock.py",
    "strandline.audit.chain": "it takes an audit: tests/scenarios/test_audit_chain.py",
    "strandline.delay.enable": "it takes a share group: tests/simulation/test_share_waiting.py",
    "strandline.delay.max.ms": "likewise",
    "remote.storage.enable": "it takes a store: tests/tiers/test_tiered_topics.py",
    "local.retention.ms": "likewise",
    "local.retention.bytes": "likewise",
    "remote.log.copy.disable": "likewise",
    "strandline.storage": "tests/tiers/objects: the records of an object topic are in the store",
    "strandline.object.ack": "likewise",
    "strandline.remote.origin": "tests/tiers/test_clones.py: where the log of a clone begins",
    "strandline.remote.recall": "tests/tiers/test_change_of_mind.py: what only the store had comes back",
    "remote.log.delete.on.disable": "likewise",
    "errors.deadletterqueue.group.enable": "it takes a share group: tests/simulation/test_dead_letters.py",
    "retention.ms": "it takes a while: tests/scenarios/test_retention.py",
    "retention.bytes": "likewise",
    "file.delete.delay.ms": "likewise",
    "delete.retention.ms": "it takes a cleaning: tests/unit/broker/test_log_cleaner.py",
    "min.cleanable.dirty.ratio": "likewise",
    "min.compaction.lag.ms": "likewise",
    "max.compaction.lag.ms": "likewise",
}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with strandline.embedded(properties={"auto.create.topics.enable": "false"}) as log:
        world = World(log)
        yield world
        world.close()
        assert "Traceback" not in log.stderr_text()


def test_every_honoured_setting_of_topics_is_shown() -> None:
    honoured = {name for name, (_, setting) in TOPIC_SETTINGS.items() if setting.effect}
    assert honoured == {line.name for line in TABLE} | set(SHOWN_ELSEWHERE)


@pytest.mark.parametrize("line", TABLE, ids=lambda line: line.name)
def test_a_topics_setting_takes_effect_at_once(world: World, line: Line) -> None:
    topic = next(_names)
    world.log.create_topic(topic, **line.given)
    before = line.shows(world, topic)
    world.change(TOPIC, topic, line.name, line.value)
    assert line.effect(before, line.shows(world, topic)), line.name
    assert world.described(TOPIC, topic, line.name) == (line.value, ConfigSource.DYNAMIC_TOPIC_CONFIG.value)


@pytest.mark.parametrize(
    ("broker", "source"),
    [("1", ConfigSource.DYNAMIC_BROKER_CONFIG), ("", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)],
    ids=["broker", "cluster"],
)
@pytest.mark.parametrize(
    "line", [line for line in TABLE if line.name != "internal.segment.bytes"], ids=lambda line: line.name
)
def test_a_nodes_default_takes_effect_at_once(world: World, line: Line, broker: str, source: ConfigSource) -> None:
    topic, node_name = next(_names), TOPIC_SETTINGS[line.name][1].synonyms[0].name
    world.log.create_topic(topic, **line.given)
    before = line.shows(world, topic)
    world.change(BROKER, broker, node_name, line.value)
    try:
        assert line.effect(before, line.shows(world, topic)), node_name
        assert world.described(TOPIC, topic, line.name) == (line.value, source.value)
        assert world.described(BROKER, broker, node_name) == (line.value, source.value)
    finally:
        world.change(BROKER, broker, node_name, None)
    assert world.described(TOPIC, topic, line.name)[1] == ConfigSource.DEFAULT_CONFIG.value


def test_the_nearest_setting_wins(world: World) -> None:
    """A topic's own value over its broker's over the cluster's over the default; each shows when the one above goes."""
    topic = next(_names)
    world.log.create_topic(topic)
    world.change(BROKER, "", "message.max.bytes", "3000")
    world.change(BROKER, "1", "message.max.bytes", "2000")
    world.change(TOPIC, topic, "max.message.bytes", "1000")
    for limit, (kind, resource, name) in (
        (1000, (TOPIC, topic, "max.message.bytes")),
        (2000, (BROKER, "1", "message.max.bytes")),
        (3000, (BROKER, "", "message.max.bytes")),
    ):
        assert world.produce(topic, b"x" * (limit - 200)) == 0
        assert world.produce(topic, b"x" * limit) == KafkaError.MSG_SIZE_TOO_LARGE
        world.change(kind, resource, name, None)
    assert world.produce(topic, b"x" * 3000) == 0


def test_a_new_topic_is_told_where_its_settings_come_from(world: World) -> None:
    world.change(BROKER, "", "log.retention.ms", "5000")
    world.change(BROKER, "1", "log.segment.bytes", "2000000")
    try:
        topic = CreatableTopic(name=next(_names), num_partitions=1, replication_factor=1)
        (created,) = world.peer.ask(CreateTopicsRequest(topics=[topic]), 7).topics
        told = {each.name: (each.value, each.config_source) for each in created.configs}
    finally:
        world.change(BROKER, "", "log.retention.ms", None)
        world.change(BROKER, "1", "log.segment.bytes", None)
    assert told["retention.ms"] == ("5000", 3)
    assert told["segment.bytes"] == ("2000000", 2)
    assert told["flush.ms"][1] == 5


def can_connect(port: int) -> bool:
    with Peer(port) as peer:
        try:
            peer.ask(ApiVersionsRequest(), 3)
        except Closed:
            return False
    return True


@pytest.mark.parametrize(
    ("name", "value"),
    [("max.connections", "1"), ("max.connections.per.ip", "1"), ("max.connections.per.ip.overrides", "127.0.0.1:1")],
)
def test_connections_are_capped_while_the_node_runs(world: World, name: str, value: str) -> None:
    assert can_connect(world.log.port)
    world.change(BROKER, "", name, value)
    try:
        deadline = time.monotonic() + TIMEOUT_S
        # Names of hosts are looked up in a thread, so the last one may take a moment longer than its answer.
        while can_connect(world.log.port) and time.monotonic() < deadline:
            pass
        assert not can_connect(world.log.port)
    finally:
        world.change(BROKER, "", name, None)
    deadline = time.monotonic() + TIMEOUT_S
    while not can_connect(world.log.port) and time.monotonic() < deadline:
        pass
    assert can_connect(world.log.port)


def test_a_silent_connection_has_less_time_once_told(world: World) -> None:
    world.change(BROKER, "1", "connection.first.request.timeout.ms", "1000")
    try:
        with Peer(world.log.port) as silent, pytest.raises(Closed):
            silent.receive(1)
    finally:
        world.change(BROKER, "1", "connection.first.request.timeout.ms", None)


def test_an_admin_client_sees_what_it_set(world: World) -> None:
    topic = next(_names)
    world.log.create_topic(topic)
    admin = AdminClient({"bootstrap.servers": world.log.bootstrap})
    entry = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    asked = ConfigResource(ResourceType.TOPIC, topic)
    described = admin.describe_configs([asked])[asked].result(TIMEOUT_S)
    mine, other = described["retention.ms"], described["segment.bytes"]
    assert (mine.value, mine.source, mine.is_default) == ("5000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value, False)
    assert (other.value, other.is_default, other.is_read_only) == ("1073741824", True, False)
    node = ConfigResource(ResourceType.BROKER, "1")
    of_node = admin.describe_configs([node])[node].result(TIMEOUT_S)
    assert (of_node["num.partitions"].is_read_only, of_node["message.max.bytes"].is_read_only) == (True, False)
    assert list(mine.synonyms) == ["retention.ms"]


def test_settings_hold_over_a_restart_and_a_kill() -> None:
    with strandline.embedded(properties={"auto.create.topics.enable": "false"}) as log:
        world = World(log)
        log.create_topic("limited")
        log.create_topic("plain")
        settings = [
            (TOPIC, "limited", "max.message.bytes", "1000", 1),
            (BROKER, "1", "message.max.bytes", "2000", 2),
            (BROKER, "", "log.message.timestamp.type", "LogAppendTime", 3),
            (GROUP, "a-group", "share.delivery.count.limit", "3", 8),
            (METRICS, "a-subscription", "interval.ms", "1000", 7),
        ]
        for kind, resource, name, value, _ in settings:
            world.change(kind, resource, name, value)
        for end in (log.stop, log.kill):
            world.close()
            end()
            log.start()
            world = World(log)
            for kind, resource, name, value, source in settings:
                assert world.described(kind, resource, name) == (value, source)
            assert world.produce("limited", b"x" * 1000) == KafkaError.MSG_SIZE_TOO_LARGE
            assert world.produce("plain", b"x" * 1000) == 0
            assert world.produce("plain", b"x" * 2000) == KafkaError.MSG_SIZE_TOO_LARGE
            assert timestamp_type(world, "plain") == TIMESTAMP_LOG_APPEND_TIME
        world.close()


@pytest.mark.slow
def test_a_thousand_topics_are_changed_in_one_request(world: World) -> None:
    names = [f"many-{number}" for number in range(1000)]
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    created = world.peer.ask(CreateTopicsRequest(topics=topics), 7)
    assert {each.error_code for each in created.topics} == {0}
    config = incremental.AlterableConfig(name="max.message.bytes", config_operation=SET, value="1000")
    resources = [
        incremental.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[config]) for name in names
    ]
    answer = world.peer.ask(incremental.IncrementalAlterConfigsRequest(resources=resources), 1)
    assert [each.resource_name for each in answer.responses] == names
    assert {each.error_code for each in answer.responses} == {0}
    assert world.produce("many-999", b"x" * 1000) == KafkaError.MSG_SIZE_TOO_LARGE
    asked = [DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in names]
    described = world.peer.ask(DescribeConfigsRequest(resources=asked), 4)
    assert {each.error_code for each in described.results} == {0}


def test_a_refused_setting_stops_the_start() -> None:
    keys = {"ssl.provider": "BC"}
    with pytest.raises(BrokerFailed, match=r"ssl\.provider is refused"), strandline.embedded(properties=keys):
        pass
    with strandline.embedded(properties={"ssl.protocol": "TLSv1.3", "background.threads": "3"}) as log:
        world = World(log)
        assert world.described(BROKER, "1", "background.threads") == ("3", 4)
        world.close()
        assert "without effect here: background.threads" in log.stderr_text()
