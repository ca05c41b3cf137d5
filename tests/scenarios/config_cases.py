"""One table of changes to settings and the codes that Apache Kafka 4.3.1 answers them with.

The changes are made one after the other on one node; a few need what others left. `test_configs_beside_kafka` asks a
running Kafka for every line of it, so the table says what Kafka does and not what we believe of it.
"""

from __future__ import annotations

from typing import NamedTuple

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
OK, UNKNOWN_TOPIC, INVALID_TOPIC, BAD_CONFIG, BAD_REQUEST = 0, 3, 17, 40, 42

MISSING = "not-there"
EXISTING = "a-topic"


class Case(NamedTuple):
    resource_type: int
    resource_name: str
    name: str
    operation: int
    value: str | None
    code: int


def _cases(resource_type: int, resource_name: str, *rows: tuple[str, int, str | None, int]) -> list[Case]:
    return [Case(resource_type, resource_name, *row) for row in rows]


TOPIC_CASES = [
    *_cases(
        TOPIC,
        EXISTING,
        ("no.such.name", SET, "1", BAD_CONFIG),
        ("no.such.name", DELETE, None, OK),
        ("log.segment.bytes", SET, "1048576", BAD_CONFIG),
        ("message.format.version", SET, "3.0", BAD_CONFIG),
        ("segment.bytes", SET, "12", BAD_CONFIG),
        ("segment.bytes", SET, "abc", BAD_CONFIG),
        ("segment.bytes", SET, "1048576", OK),
        ("internal.segment.bytes", SET, "2000000", OK),
        ("internal.segment.bytes", DELETE, None, OK),
        ("retention.ms", SET, "-2", BAD_CONFIG),
        ("retention.ms", SET, "", BAD_CONFIG),
        ("retention.ms", SET, " 5000 ", OK),
        ("retention.ms", SET, None, BAD_REQUEST),
        ("retention.ms", APPEND, "5", BAD_CONFIG),
        ("retention.ms", DELETE, None, OK),
        ("retention.ms", DELETE, "7", OK),
        ("flush.ms", SET, "+5", OK),
        ("flush.ms", SET, "5.0", BAD_CONFIG),
        ("flush.ms", DELETE, None, OK),
        ("cleanup.policy", SET, "shred", BAD_CONFIG),
        ("cleanup.policy", SET, "", OK),
        ("cleanup.policy", SET, "compact,compact", OK),
        ("cleanup.policy", APPEND, "compact", OK),
        ("cleanup.policy", APPEND, "shred", BAD_CONFIG),
        ("cleanup.policy", APPEND, None, BAD_REQUEST),
        ("cleanup.policy", SUBTRACT, "compact", OK),
        ("cleanup.policy", DELETE, None, OK),
        ("compression.type", SET, "LZ4", BAD_CONFIG),
        ("compression.type", SET, "none", BAD_CONFIG),
        ("compression.gzip.level", SET, "0", BAD_CONFIG),
        ("compression.gzip.level", SET, "-1", OK),
        ("compression.lz4.level", SET, "99", BAD_CONFIG),
        ("compression.zstd.level", SET, "50", BAD_CONFIG),
        ("preallocate", SET, "maybe", BAD_CONFIG),
        ("preallocate", SET, "TRUE", OK),
        ("preallocate", DELETE, None, OK),
        ("min.cleanable.dirty.ratio", SET, "2", BAD_CONFIG),
        ("message.timestamp.type", SET, "foo", BAD_CONFIG),
        ("max.compaction.lag.ms", SET, "0", BAD_CONFIG),
        ("min.compaction.lag.ms", SET, "100", OK),
        ("max.compaction.lag.ms", SET, "50", BAD_CONFIG),
        ("min.compaction.lag.ms", DELETE, None, OK),
        ("leader.replication.throttled.replicas", SET, "0:1", OK),
        ("leader.replication.throttled.replicas", SET, "*", OK),
        ("leader.replication.throttled.replicas", SET, "x", BAD_CONFIG),
        ("leader.replication.throttled.replicas", DELETE, "", OK),
        ("remote.storage.enable", SET, "true", BAD_CONFIG),
        ("remote.storage.enable", SET, "false", OK),
        ("local.retention.ms", SET, "5", OK),
        ("local.retention.ms", DELETE, None, OK),
        ("unclean.leader.election.enable", SET, "true", OK),
    ),
    Case(TOPIC, MISSING, "retention.ms", SET, "5", UNKNOWN_TOPIC),
    Case(TOPIC, MISSING, "no.such.name", SET, "5", BAD_CONFIG),
    Case(TOPIC, "", "retention.ms", SET, "5", BAD_REQUEST),
    Case(TOPIC, "a b", "retention.ms", SET, "5", INVALID_TOPIC),
    Case(TOPIC, "__cluster_metadata", "retention.ms", SET, "5", UNKNOWN_TOPIC),
]

BROKER_CASES = [
    case
    for level in ("1", "")
    for case in _cases(
        BROKER,
        level,
        ("num.partitions", SET, "3", BAD_REQUEST),
        ("num.partitions", DELETE, None, OK),
        ("log.retention.hours", SET, "5", BAD_REQUEST),
        ("log.flush.scheduler.interval.ms", SET, "4", BAD_REQUEST),
        ("socket.request.max.bytes", SET, "1000000", BAD_REQUEST),
        ("auto.create.topics.enable", SET, "false", BAD_REQUEST),
        ("ssl.keystore.password", SET, "x", BAD_REQUEST),
        ("of.a.plugin", SET, "3", OK),
        ("of.a.plugin", APPEND, "3", BAD_CONFIG),
        ("of.a.plugin", DELETE, None, OK),
        ("message.max.bytes", SET, "abc", BAD_REQUEST),
        ("message.max.bytes", SET, "", BAD_REQUEST),
        ("message.max.bytes", SET, "-1", BAD_REQUEST),
        ("message.max.bytes", SET, None, BAD_REQUEST),
        ("message.max.bytes", 7, "4", BAD_REQUEST),
        ("message.max.bytes", APPEND, "1", BAD_CONFIG),
        ("message.max.bytes", SET, "1000000", OK),
        ("message.max.bytes", DELETE, None, OK),
        ("log.cleanup.policy", APPEND, "compact", OK),
        ("log.cleanup.policy", SUBTRACT, "delete", OK),
        ("log.cleanup.policy", DELETE, None, OK),
        ("log.segment.bytes", SET, "5", BAD_REQUEST),
        ("log.message.timestamp.type", SET, "Foo", BAD_REQUEST),
        ("log.cleaner.max.compaction.lag.ms", SET, "0", BAD_REQUEST),
        ("log.cleaner.threads", SET, "many", BAD_REQUEST),
        ("log.retention.ms", SET, "5000", OK),
        ("log.retention.ms", DELETE, None, OK),
        ("max.connections", SET, "0", BAD_REQUEST),
        ("max.connections", SET, "100", OK),
        ("max.connections", DELETE, None, OK),
        ("max.connections.per.ip", SET, "0", BAD_REQUEST),
        ("max.connections.per.ip", SET, "100", OK),
        ("max.connections.per.ip", DELETE, None, OK),
        ("producer.id.expiration.ms", SET, "5", OK),
        ("producer.id.expiration.ms", DELETE, "", OK),
        ("unclean.leader.election.enable", SET, "true", OK),
        ("unclean.leader.election.enable", DELETE, None, OK),
    )
] + [
    Case(BROKER, "", "listener.security.protocol.map", SET, "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT", BAD_REQUEST),
    Case(BROKER, "1", "listener.security.protocol.map", SET, "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT", OK),
    Case(BROKER, "1", "listener.security.protocol.map", DELETE, None, OK),
    Case(BROKER, "2", "message.max.bytes", SET, "1000000", BAD_REQUEST),
    Case(BROKER, "-1", "message.max.bytes", SET, "1000000", BAD_REQUEST),
    Case(BROKER, "x", "message.max.bytes", SET, "1000000", BAD_REQUEST),
]

LOGGER_CASES = [
    *_cases(
        LOGGER,
        "1",
        ("root", SET, "INFO", OK),
        ("root", SET, "info", BAD_CONFIG),
        ("root", SET, "LOUD", BAD_CONFIG),
        ("root", SET, "OFF", BAD_CONFIG),
        ("root", SET, "", BAD_CONFIG),
        ("root", DELETE, None, BAD_REQUEST),
        ("root", APPEND, "INFO", BAD_REQUEST),
        ("root", SUBTRACT, "INFO", BAD_REQUEST),
        ("no.such.logger", SET, "INFO", BAD_CONFIG),
        ("no.such.logger", DELETE, None, BAD_CONFIG),
    ),
    Case(LOGGER, "", "root", SET, "INFO", BAD_REQUEST),
    Case(LOGGER, "2", "root", SET, "INFO", BAD_REQUEST),
    Case(LOGGER, "x", "root", SET, "INFO", BAD_REQUEST),
]

METRICS_CASES = [
    *_cases(
        METRICS,
        "a-subscription",
        ("no.such.name", SET, "1", BAD_REQUEST),
        ("interval.ms", SET, "50", BAD_REQUEST),
        ("interval.ms", SET, "5000000", BAD_REQUEST),
        ("interval.ms", SET, "abc", BAD_CONFIG),
        ("interval.ms", SET, "1000", OK),
        ("metrics", SET, "org.apache", OK),
        ("metrics", SET, "*", OK),
        ("metrics", SET, "", OK),
        ("metrics", APPEND, "a.b", BAD_CONFIG),
        ("metrics", DELETE, None, OK),
        ("match", SET, "client_id=a.*", OK),
        ("match", SET, "client_id=a=b", BAD_CONFIG),
        ("match", SET, "x=y", BAD_CONFIG),
        ("match", SET, "client_id=[", BAD_CONFIG),
        ("match", SET, "client_id", BAD_CONFIG),
        ("match", SUBTRACT, "client_id=a.*", BAD_CONFIG),
    ),
    Case(METRICS, "", "interval.ms", SET, "1000", BAD_REQUEST),
]

GROUP_CASES = [
    *_cases(
        GROUP,
        "a-group",
        ("no.such.name", SET, "1", BAD_CONFIG),
        ("consumer.session.timeout.ms", SET, "50000", OK),
        ("consumer.session.timeout.ms", SET, "5500", BAD_CONFIG),
        ("consumer.session.timeout.ms", SET, "0", BAD_CONFIG),
        ("consumer.session.timeout.ms", SET, "abc", BAD_CONFIG),
        ("consumer.session.timeout.ms", SET, "99999999", BAD_CONFIG),
        ("consumer.session.timeout.ms", APPEND, "5", BAD_CONFIG),
        ("consumer.heartbeat.interval.ms", SET, "6000", OK),
        ("consumer.heartbeat.interval.ms", SET, "1", BAD_CONFIG),
        ("consumer.heartbeat.interval.ms", SET, "60000", BAD_CONFIG),
        ("consumer.assignment.interval.ms", SET, "0", OK),
        ("consumer.assignment.interval.ms", SET, "-1", BAD_CONFIG),
        ("consumer.assignment.interval.ms", SET, "99999999", BAD_CONFIG),
        ("share.session.timeout.ms", SET, "46000", OK),
        ("share.session.timeout.ms", SET, "1", BAD_CONFIG),
        ("share.heartbeat.interval.ms", SET, "5500", OK),
        ("share.heartbeat.interval.ms", SET, "1", BAD_CONFIG),
        ("share.record.lock.duration.ms", SET, "100", BAD_CONFIG),
        ("share.record.lock.duration.ms", SET, "2000", BAD_CONFIG),
        ("share.record.lock.duration.ms", SET, "20000", OK),
        ("share.record.lock.duration.ms", SET, "99999999", BAD_CONFIG),
        ("share.auto.offset.reset", SET, "earliest", OK),
        ("share.auto.offset.reset", SET, "by_duration:PT1H", OK),
        ("share.auto.offset.reset", SET, "by_duration:P2DT3H4M5.5S", OK),
        ("share.auto.offset.reset", SET, "by_duration:x", BAD_CONFIG),
        ("share.auto.offset.reset", SET, "by_duration:P", BAD_CONFIG),
        ("share.auto.offset.reset", SET, "by_duration:PT", BAD_CONFIG),
        ("share.auto.offset.reset", SET, "by_duration:-PT1H", BAD_CONFIG),
        ("share.auto.offset.reset", SET, "foo", BAD_CONFIG),
        ("share.isolation.level", SET, "read_committed", OK),
        ("share.isolation.level", SET, "READ_COMMITTED", BAD_CONFIG),
        ("share.delivery.count.limit", SET, "1", BAD_CONFIG),
        ("share.delivery.count.limit", SET, "3", OK),
        ("share.delivery.count.limit", SET, "11", BAD_CONFIG),
        ("share.partition.max.record.locks", SET, "99", BAD_CONFIG),
        ("share.partition.max.record.locks", SET, "1000", OK),
        ("share.partition.max.record.locks", SET, "99999", BAD_CONFIG),
        ("share.renew.acknowledge.enable", SET, "false", OK),
        ("share.assignment.interval.ms", SET, "20000", BAD_CONFIG),
        ("streams.session.timeout.ms", SET, "50000", OK),
        ("streams.session.timeout.ms", SET, "1", BAD_CONFIG),
        ("streams.heartbeat.interval.ms", SET, "1", BAD_CONFIG),
        ("streams.heartbeat.interval.ms", SET, "6000", OK),
        ("streams.num.standby.replicas", SET, "5", BAD_CONFIG),
        ("streams.num.standby.replicas", SET, "-1", BAD_CONFIG),
        ("streams.num.standby.replicas", SET, "1", OK),
        ("streams.initial.rebalance.delay.ms", SET, "-1", BAD_CONFIG),
        ("streams.initial.rebalance.delay.ms", SET, "0", OK),
        ("streams.assignment.interval.ms", SET, "1", OK),
    ),
    Case(GROUP, "", "consumer.session.timeout.ms", SET, "50000", BAD_REQUEST),
]

ODD_RESOURCES = [Case(kind, "x", "a", SET, "5", BAD_REQUEST) for kind in (0, 1, 3, 5, 99)]

CASES = [*TOPIC_CASES, *BROKER_CASES, *LOGGER_CASES, *METRICS_CASES, *GROUP_CASES, *ODD_RESOURCES]
