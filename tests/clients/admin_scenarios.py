"""What administrators are promised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.clients.client import Client, ClientFailed, New, until

from strandline.errors import ErrorCode

DYNAMIC_TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 2, 5

TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "index.interval.bytes": "4096",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
}


def topics(client: Client, topic: str) -> None:
    """Topics are created, listed, deleted, and a new one of the same name is empty."""
    client.create_topic(topic, partitions=3)
    until("the topic is listed", lambda: client.topics().get(topic) == 3)
    client.produce(topic, [New(value=b"gone")])
    client.delete_topic(topic)
    until("the topic is no longer listed", lambda: topic not in client.topics())
    client.create_topic(topic, partitions=1)
    assert client.produce(topic, [New(value=b"fresh")]) == [(0, 0)]
    assert [got.value for got in client.read(topic, {0: 0}, 1)] == [b"fresh"]


def describe_topic(client: Client, topic: str) -> None:
    """Each partition names its leader, its replicas and those in sync."""
    _create(client, topic, partitions=3)
    brokers = client.cluster().brokers
    described = client.partitions(topic)
    assert sorted(described) == [0, 1, 2]
    for replicas in described.values():
        assert replicas.leader in brokers
        assert replicas.assigned == replicas.in_sync == (replicas.leader,)


def describe_unknown_topic(client: Client, topic: str) -> None:
    """A topic that does not exist is not described."""
    with _refused(client, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        client.partitions(f"{topic}-unknown")


def default_sizes(client: Client, topic: str) -> None:
    """Who names neither partitions nor replicas gets the broker's defaults."""
    _create(client, topic, partitions=-1, replication_factor=-1)


def explicit_assignment(client: Client, topic: str) -> None:
    """Replicas stand where they were put, and not where there is no broker."""
    broker = min(client.cluster().brokers)
    _create(client, topic, assignment=[[broker], [broker]])
    assert {index: each.assigned for index, each in client.partitions(topic).items()} == {0: (broker,), 1: (broker,)}
    with _refused(client, ErrorCode.INVALID_REPLICA_ASSIGNMENT):
        client.create_topic(f"{topic}-nowhere", assignment=[[broker + 100]])


def validate_only(client: Client, topic: str) -> None:
    """A rehearsal says what would happen and does nothing."""
    client.create_topic(topic, partitions=2, validate_only=True)
    with _refused(client, ErrorCode.INVALID_CONFIG):
        client.create_topic(topic, validate_only=True, retention_ms="soon")
    assert topic not in client.topics()


def create_partitions(client: Client, topic: str) -> None:
    """A topic grows, keeps what it has, takes records in its new partitions, and never shrinks."""
    _create(client, topic, partitions=2)
    client.produce(topic, [New(value=b"old", partition=1)])
    client.create_partitions(topic, 5)
    until("five partitions are listed", lambda: client.topics()[topic] == 5)
    assert client.produce(topic, [New(value=b"new", partition=4)]) == [(4, 0)]
    assert {got.value for got in client.read(topic, dict.fromkeys(range(5), 0), 2)} == {b"old", b"new"}
    for count in (5, 3):
        with _refused(client, ErrorCode.INVALID_PARTITIONS):
            client.create_partitions(topic, count)
    with _refused(client, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        client.create_partitions(f"{topic}-unknown", 3)
    assert client.topics()[topic] == 5


def describe_config(client: Client, topic: str) -> None:
    """Every setting has its value and says where it comes from."""
    _create(client, topic, retention_ms="3600000")
    described = client.config("topic", topic)
    values = {name: described[name].value for name in TOPIC_DEFAULTS}
    assert values == TOPIC_DEFAULTS
    assert described["retention.ms"].value == "3600000"
    if described["retention.ms"].source is not None:
        assert described["retention.ms"].source == DYNAMIC_TOPIC_CONFIG
        assert described["index.interval.bytes"].source == DEFAULT_CONFIG
    assert not any(setting.is_read_only or setting.is_sensitive for setting in described.values())


def describe_broker_config(client: Client, topic: str) -> None:
    """A broker tells its settings, which of them are fixed, and where they come from."""
    (broker, *_) = client.cluster().brokers
    described = client.config("broker", str(broker))
    assert described["message.max.bytes"].value == "1048588"
    assert not described["message.max.bytes"].is_read_only
    assert described["node.id"].value == str(broker)
    assert described["node.id"].is_read_only


def alter_config(client: Client, topic: str) -> None:
    """A change is honoured, what was not named stays, and what is unset goes back to its default."""
    _create(client, topic, retention_ms="3600000")
    client.alter_config("topic", topic, put={"max.message.bytes": "2000"})
    _wait_settings(client, topic, {"max.message.bytes": "2000", "retention.ms": "3600000"})
    with _refused(client, ErrorCode.MESSAGE_TOO_LARGE):
        client.produce(topic, [New(value=b"x" * 3000)])
    client.alter_config("topic", topic, unset=["max.message.bytes"], put={"segment.bytes": "2000000"})
    _wait_settings(client, topic, {"max.message.bytes": "1048588", "segment.bytes": "2000000"})
    assert client.produce(topic, [New(value=b"x" * 3000)]) == [(0, 0)]


def alter_config_list(client: Client, topic: str) -> None:
    """A list gains and loses single values."""
    _create(client, topic)
    client.alter_config("topic", topic, append={"cleanup.policy": "compact"})
    _wait_settings(client, topic, {"cleanup.policy": "delete,compact"})
    client.alter_config("topic", topic, subtract={"cleanup.policy": "delete"})
    _wait_settings(client, topic, {"cleanup.policy": "compact"})
    with _refused(client, ErrorCode.INVALID_RECORD):
        client.produce(topic, [New(value=b"no key")])


def alter_config_refused(client: Client, topic: str) -> None:
    """What is not valid changes nothing, also not the valid half of the request."""
    _create(client, topic)
    for change in (
        {"segment.ms": "soon"},
        {"no.such.setting": "1"},
        {"segment.ms": "-7", "segment.bytes": "2000000"},
    ):
        with _refused(client, ErrorCode.INVALID_CONFIG):
            client.alter_config("topic", topic, put=change)
    with _refused(client, ErrorCode.INVALID_CONFIG):
        client.alter_config("topic", topic, append={"segment.ms": "5"})
    with _refused(client, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        client.alter_config("topic", f"{topic}-unknown", put={"segment.ms": "5"})
    described = client.config("topic", topic)
    assert (described["segment.ms"].value, described["segment.bytes"].value) == ("604800000", "1073741824")


def replace_config(client: Client, topic: str) -> None:
    """The older AlterConfigs replaces: what it does not name goes back to its default."""
    _create(client, topic, segment_ms="3600000")
    client.replace_config("topic", topic, {"max.message.bytes": "2000"})
    _wait_settings(client, topic, {"max.message.bytes": "2000", "segment.ms": "604800000"})
    with _refused(client, ErrorCode.INVALID_CONFIG):
        client.replace_config("topic", topic, {"segment.ms": "soon"})


def dynamic_broker_config(client: Client, topic: str) -> None:
    """A broker's setting changes without a restart, and topics that say nothing of their own follow it."""
    _create(client, topic)
    (broker, *_) = client.cluster().brokers
    client.alter_config("broker", str(broker), put={"message.max.bytes": "3000000"})
    try:
        _wait_settings(client, topic, {"max.message.bytes": "3000000"})
        setting = client.config("broker", str(broker))["message.max.bytes"]
        assert (setting.value, setting.source) == ("3000000", DYNAMIC_BROKER_CONFIG)
        assert client.produce(topic, [New(value=b"x" * 2_000_000)]) == [(0, 0)]
    finally:
        client.alter_config("broker", str(broker), unset=["message.max.bytes"])
    _wait_settings(client, topic, {"max.message.bytes": "1048588"})
    with _refused(client, ErrorCode.INVALID_REQUEST):
        client.alter_config("broker", str(broker), put={"node.id": "7"})


def delete_records(client: Client, topic: str) -> None:
    """The log begins where it was told to; what stands before is out of range, and offsets stay what they were."""
    _create(client, topic, partitions=2)
    client.produce(topic, [New(value=b"%d" % n, partition=n % 2) for n in range(40)], linger_ms=20)
    assert client.delete_records(topic, {0: 7, 1: -1}) == {0: 7, 1: 20}
    assert (client.earliest(topic, 0), client.latest(topic, 0)) == (7, 20)
    assert (client.earliest(topic, 1), client.latest(topic, 1)) == (20, 20)
    assert [got.offset for got in client.read(topic, {0: 0}, 13, reset="earliest")] == list(range(7, 20))
    with pytest.raises(ClientFailed):
        client.read(topic, {0: 6}, 1, reset="none")
    # What is gone stays gone, and to ask for it again is no error.
    assert client.delete_records(topic, {0: 3}) == {0: 7}
    with _refused(client, ErrorCode.OFFSET_OUT_OF_RANGE):
        client.delete_records(topic, {0: 21})
    assert client.produce(topic, [New(value=b"next", partition=1)]) == [(1, 20)]


def delete_by_id(client: Client, topic: str) -> None:
    """A topic can be deleted by its id, which never names a later topic of the same name."""
    _create(client, topic)
    client.delete_topic_by_id(topic)
    until("the topic is no longer listed", lambda: topic not in client.topics())


def log_sizes(client: Client, topic: str) -> None:
    """Each replica tells how many bytes it keeps."""
    _create(client, topic, partitions=2)
    client.produce(topic, [New(value=b"x" * 10_000, partition=1)])
    sizes = client.log_sizes(topic)
    assert sizes[0] == 0
    assert 10_000 < sizes[1] < 11_000


def producers(client: Client, topic: str) -> None:
    """Of an idempotent producer the partition knows its id, its epoch and the last number it used."""
    _create(client, topic)
    assert client.producers(topic, 0) == []
    client.produce(topic, [New(value=b"%d" % n) for n in range(10)], idempotent=True, linger_ms=0)
    ((producer_id, epoch, sequence),) = client.producers(topic, 0)
    assert producer_id >= 0
    assert (epoch, sequence) == (0, 9)


def describe_cluster(client: Client, topic: str) -> None:
    """The cluster has a name, brokers, and one of them leads."""
    cluster = client.cluster()
    assert len(cluster.cluster_id) == 22
    assert cluster.controller in cluster.brokers


def refused_topics(client: Client, topic: str) -> None:
    """What cannot be created or deleted is answered with Kafka's code."""
    _create(client, topic)
    attempts: list[tuple[Callable[[], None], ErrorCode]] = [
        (lambda: client.create_topic(topic), ErrorCode.TOPIC_ALREADY_EXISTS),
        (lambda: client.create_topic("no/slashes"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (lambda: client.create_topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (lambda: client.create_topic(f"{topic}-many", replication_factor=3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (lambda: client.create_topic(f"{topic}-config", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (lambda: client.create_topic(f"{topic}-config", no_such_setting="1"), ErrorCode.INVALID_CONFIG),
        (lambda: client.delete_topic(f"{topic}-unknown"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    for attempt, code in attempts:
        with pytest.raises(ClientFailed) as failure:
            attempt()
        assert failure.value.code == client.told(code)
    assert not {name for name in client.topics() if name.startswith(topic)} - {topic}


def _create(client: Client, topic: str, **options: Any) -> None:
    """Kafka answers when its controller has the topic; its brokers follow a moment later."""
    client.create_topic(topic, **options)
    until("the topic is listed", lambda: topic in client.topics())


def _wait_settings(client: Client, topic: str, wanted: dict[str, str]) -> None:
    """Kafka answers a change when its controller has it; its brokers follow a moment later."""

    def attempt() -> bool:
        described = client.config("topic", topic)
        return {name: described[name].value for name in wanted} == wanted

    until(f"{wanted} for {topic}", attempt)


@contextmanager
def _refused(client: Client, code: ErrorCode) -> Iterator[None]:
    with pytest.raises(ClientFailed) as failure:
        yield
    assert failure.value.code == client.told(code), failure.value
