"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import uuid4

from tests.differential.case import Case, case, each, ends, newest
from tests.differential.talk import Talk
from tests.differential.words import versions_of

DESCRIBE, ALTER, INCREMENTAL, LIST = 32, 33, 44, 74
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, REMOVE, APPEND, SUBTRACT = 0, 1, 2, 3

TOPIC_KEYS = ["retention.ms", "cleanup.policy", "segment.bytes", "min.insync.replicas", "max.message.bytes"]
BROKER_KEYS = ["log.retention.ms", "num.partitions", "message.max.bytes", "log.cleanup.policy", "background.threads"]


def cases() -> Iterator[Case]:
    yield from describe()
    yield from incremental()
    yield from replacing()
    yield from listing()


def resource(kind: int, name: str, keys: list[str] | None = None) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}


def describe() -> Iterator[Case]:
    def of(*resources: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"resources": list(resources), **more}

    every: dict[str, dict[str, Any]] = {
        "some of a topic": of(resource(TOPIC, "configured", TOPIC_KEYS)),
        "all of a topic": of(resource(TOPIC, "configured")),
        "a topic with synonyms": of(resource(TOPIC, "configured", TOPIC_KEYS), include_synonyms=True),
        "a topic's words": of(resource(TOPIC, "configured", TOPIC_KEYS), include_documentation=True),
        "some of the broker": of(resource(BROKER, "1", BROKER_KEYS)),
        "the broker with synonyms": of(resource(BROKER, "1", BROKER_KEYS), include_synonyms=True),
        "the default of brokers": of(resource(BROKER, "", BROKER_KEYS)),
        "an unknown topic": of(resource(TOPIC, "nowhere")),
        "another broker": of(resource(BROKER, "99")),
    }
    for what, fields in every.items():
        yield from each(DESCRIBE, what, **fields)
    questions: dict[str, dict[str, Any]] = {
        "no keys": of(resource(TOPIC, "configured", [])),
        "an unknown key": of(resource(TOPIC, "configured", ["no.such"])),
        "a key twice": of(resource(TOPIC, "configured", ["retention.ms", "retention.ms"])),
        "a bad topic name": of(resource(TOPIC, "a/b")),
        "the empty topic name": of(resource(TOPIC, "")),
        "an internal topic": of(resource(TOPIC, "__consumer_offsets", TOPIC_KEYS)),
        "the metadata topic": of(resource(TOPIC, "__cluster_metadata", TOPIC_KEYS)),
        "a broker that is no number": of(resource(BROKER, "one")),
        "broker -1": of(resource(BROKER, "-1")),
        "broker 01": of(resource(BROKER, "01", BROKER_KEYS)),
        "a read-only setting": of(resource(BROKER, "1", ["node.id", "process.roles"])),
        "a secret": of(resource(BROKER, "1", ["ssl.keystore.password", "ssl.key.password"])),
        "an unknown setting of the broker": of(resource(BROKER, "1", ["no.such"])),
        "loggers of the default": of(resource(BROKER_LOGGER, "")),
        "loggers of another broker": of(resource(BROKER_LOGGER, "99")),
        "an unknown logger": of(resource(BROKER_LOGGER, "1", ["no.such.logger"])),
        "client metrics that are not there": of(resource(CLIENT_METRICS, "nobody")),
        "client metrics without a name": of(resource(CLIENT_METRICS, "")),
        "a group that is not there": of(resource(GROUP, "nobody")),
        "a group with synonyms": of(resource(GROUP, "nobody"), include_synonyms=True),
        "a group without a name": of(resource(GROUP, "")),
        "a user": of(resource(1, "somebody")),
        "type 0": of(resource(0, "x")),
        "type 3": of(resource(3, "x")),
        "type 64": of(resource(64, "x")),
        "type -1": of(resource(-1, "x")),
        "nothing": of(),
        "a topic twice": of(resource(TOPIC, "configured", TOPIC_KEYS), resource(TOPIC, "configured", ["preallocate"])),
        "a topic and nobody": of(resource(TOPIC, "configured", TOPIC_KEYS), resource(TOPIC, "nowhere")),
        "two brokers": of(resource(BROKER, "1", BROKER_KEYS), resource(BROKER, "2", BROKER_KEYS)),
        "a known and a bad type": of(resource(TOPIC, "configured", TOPIC_KEYS), resource(3, "x")),
    }
    yield from ends(DESCRIBE, questions)
    yield case(DESCRIBE, 4, "loggers of the broker", loggers)


def loggers(talk: Talk) -> None:
    """Which loggers there are is each broker's own; how they are described is not."""
    answer = talk.look(DESCRIBE, 4, resources=[resource(BROKER_LOGGER, "1")], include_synonyms=True)
    for result in answer.results:
        assert result.configs, "no loggers"
        result.configs = result.configs[:1]
        result.configs[0].name = result.configs[0].value = "a logger"
    talk.note(talk.words.plain(answer))


def change(name: str, value: str | None, operation: int = SET) -> dict[str, Any]:
    return {"name": name, "config_operation": operation, "value": value}


def altered(kind: int, name: str, *changes: dict[str, Any]) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configs": list(changes)}


VALUES: dict[str, tuple[str, str | None]] = {
    "sound": ("retention.ms", "1000"),
    "spaces": ("retention.ms", " 1000 "),
    "no number": ("retention.ms", "soon"),
    "null": ("retention.ms", None),
    "empty": ("retention.ms", ""),
    "too small": ("retention.ms", "-2"),
    "a fraction": ("retention.ms", "1.5"),
    "a plus sign": ("retention.ms", "+5"),
    "too large for a long": ("retention.ms", "9223372036854775808"),
    "too large for an int": ("segment.bytes", "2147483648"),
    "a small segment": ("segment.bytes", "1000"),
    "unknown name": ("no.such", "1"),
    "no name": ("", "1"),
    "upper case bool": ("preallocate", "TRUE"),
    "bool 1": ("preallocate", "1"),
    "a list": ("cleanup.policy", "compact,delete"),
    "a list with spaces": ("cleanup.policy", " compact , delete "),
    "a list with a double": ("cleanup.policy", "compact,compact"),
    "an empty list": ("cleanup.policy", ""),
    "a bad list": ("cleanup.policy", "compact,burn"),
    "a ratio": ("min.cleanable.dirty.ratio", "0.25"),
    "a ratio above 1": ("min.cleanable.dirty.ratio", "1.01"),
    "a ratio that is none": ("min.cleanable.dirty.ratio", "NaN"),
    "a codec": ("compression.type", "zstd"),
    "a codec in capitals": ("compression.type", "ZSTD"),
    "no codec": ("compression.type", "rar"),
    "a level": ("compression.gzip.level", "9"),
    "a level too high": ("compression.gzip.level", "10"),
    "a level of 0": ("compression.gzip.level", "0"),
    "a timestamp type": ("message.timestamp.type", "LogAppendTime"),
    "a timestamp type in small letters": ("message.timestamp.type", "logappendtime"),
    "in-sync replicas": ("min.insync.replicas", "2"),
    "in-sync replicas 0": ("min.insync.replicas", "0"),
    "a message size": ("max.message.bytes", "0"),
    "throttled replicas": ("leader.replication.throttled.replicas", "0:1,1:1"),
    "throttled replicas all": ("leader.replication.throttled.replicas", "*"),
    "throttled replicas bad": ("leader.replication.throttled.replicas", "everyone"),
    "remote storage": ("remote.storage.enable", "true"),
    "local retention above retention": ("local.retention.ms", "99999999999"),
    "a setting of ours": ("flush.mode", "ack"),
    "a removed setting": ("message.downconversion.enable", "false"),
    "compaction lag in the wrong order": ("min.compaction.lag.ms", "9223372036854775807"),
    "file delete delay": ("file.delete.delay.ms", "-1"),
    "index interval": ("index.interval.bytes", "-1"),
    "index size": ("segment.index.bytes", "3"),
    "jitter": ("segment.jitter.ms", "-1"),
    "flush messages 0": ("flush.messages", "0"),
    "flush ms": ("flush.ms", "-1"),
}


def incremental() -> Iterator[Case]:
    def only(*resources: dict[str, Any]) -> dict[str, Any]:
        return {"resources": list(resources), "validate_only": True}

    for what, (name, value) in VALUES.items():
        yield from newest(INCREMENTAL, {f"value: {what}": only(altered(TOPIC, "configured", change(name, value)))})
    questions: dict[str, dict[str, Any]] = {
        "sound": only(altered(TOPIC, "configured", change("retention.ms", "5"))),
        "an unknown topic": only(altered(TOPIC, "nowhere", change("retention.ms", "5"))),
        "a bad topic name": only(altered(TOPIC, "a/b", change("retention.ms", "5"))),
        "the empty topic name": only(altered(TOPIC, "", change("retention.ms", "5"))),
        "no change": only(altered(TOPIC, "configured")),
        "no change of an unknown topic": only(altered(TOPIC, "nowhere")),
        "nothing": only(),
        "a setting twice": only(altered(TOPIC, "configured", change("retention.ms", "5"), change("retention.ms", "6"))),
        "set and deleted": only(
            altered(TOPIC, "configured", change("retention.ms", "5"), change("retention.ms", None, REMOVE))
        ),
        "a topic twice": only(
            altered(TOPIC, "configured", change("retention.ms", "5")),
            altered(TOPIC, "configured", change("segment.bytes", "2000000")),
        ),
        "a topic twice and another": only(
            altered(TOPIC, "configured", change("retention.ms", "5")),
            altered(TOPIC, "configured", change("segment.bytes", "2000000")),
            altered(TOPIC, "one", change("retention.ms", "5")),
        ),
        "a good and a bad one": only(
            altered(TOPIC, "configured", change("retention.ms", "5")),
            altered(TOPIC, "one", change("retention.ms", "soon")),
        ),
        "good and bad settings": only(
            altered(TOPIC, "configured", change("retention.ms", "5"), change("segment.bytes", "x"))
        ),
        "deletes what is set": only(altered(TOPIC, "configured", change("retention.ms", None, REMOVE))),
        "deletes what is not set": only(altered(TOPIC, "configured", change("segment.bytes", None, REMOVE))),
        "deletes what nobody knows": only(altered(TOPIC, "configured", change("no.such", None, REMOVE))),
        "deletes with a value": only(altered(TOPIC, "configured", change("retention.ms", "9", REMOVE))),
        "appends to a list": only(altered(TOPIC, "configured", change("cleanup.policy", "delete", APPEND))),
        "appends to a number": only(altered(TOPIC, "configured", change("retention.ms", "1", APPEND))),
        "appends null": only(altered(TOPIC, "configured", change("cleanup.policy", None, APPEND))),
        "appends what is bad": only(altered(TOPIC, "configured", change("cleanup.policy", "burn", APPEND))),
        "appends to what nobody knows": only(altered(TOPIC, "configured", change("no.such", "1", APPEND))),
        "subtracts": only(altered(TOPIC, "configured", change("cleanup.policy", "delete", SUBTRACT))),
        "subtracts all": only(altered(TOPIC, "configured", change("cleanup.policy", "delete,compact", SUBTRACT))),
        "subtracts what is not there": only(altered(TOPIC, "one", change("cleanup.policy", "compact", SUBTRACT))),
        "subtracts null": only(altered(TOPIC, "configured", change("cleanup.policy", None, SUBTRACT))),
        "subtracts from a number": only(altered(TOPIC, "configured", change("retention.ms", "1", SUBTRACT))),
        "operation 4": only(altered(TOPIC, "configured", change("retention.ms", "1", 4))),
        "operation -1": only(altered(TOPIC, "configured", change("retention.ms", "1", -1))),
        "broker: one that may change": only(altered(BROKER, "1", change("background.threads", "12"))),
        "broker: bad value": only(altered(BROKER, "1", change("background.threads", "none"))),
        "broker: below the least": only(altered(BROKER, "1", change("background.threads", "0"))),
        "broker: read-only": only(altered(BROKER, "1", change("node.id", "3"))),
        "broker: read-only, deleted": only(altered(BROKER, "1", change("node.id", None, REMOVE))),
        "broker: num.partitions": only(altered(BROKER, "1", change("num.partitions", "3"))),
        "broker: unknown name": only(altered(BROKER, "1", change("no.such", "3"))),
        "broker: of all, given to one": only(altered(BROKER, "1", change("log.retention.ms", "60000"))),
        "broker: of one, given to all": only(altered(BROKER, "", change("advertised.listeners", "PLAINTEXT://x:1"))),
        "broker: all of them": only(altered(BROKER, "", change("message.max.bytes", "2000000"))),
        "broker: all of them, bad": only(altered(BROKER, "", change("message.max.bytes", "-3"))),
        "broker: all of them, read-only": only(altered(BROKER, "", change("node.id", "3"))),
        "broker: all of them, unknown": only(altered(BROKER, "", change("no.such", "3"))),
        "broker: another": only(altered(BROKER, "99", change("background.threads", "12"))),
        "broker: no number": only(altered(BROKER, "one", change("background.threads", "12"))),
        "broker: null value": only(altered(BROKER, "1", change("background.threads", None))),
        "broker: appends to a list": only(altered(BROKER, "", change("log.cleanup.policy", "compact", APPEND))),
        "logger: sound": only(altered(BROKER_LOGGER, "1", change("root", "INFO"))),
        "logger: bad level": only(altered(BROKER_LOGGER, "1", change("root", "LOUD"))),
        "logger: unknown": only(altered(BROKER_LOGGER, "1", change("no.such.logger", "INFO"))),
        "logger: root deleted": only(altered(BROKER_LOGGER, "1", change("root", None, REMOVE))),
        "logger: appended": only(altered(BROKER_LOGGER, "1", change("root", "INFO", APPEND))),
        "logger: another broker": only(altered(BROKER_LOGGER, "99", change("root", "INFO"))),
        "logger: no broker": only(altered(BROKER_LOGGER, "", change("root", "INFO"))),
        "client metrics: sound": only(altered(CLIENT_METRICS, "mine", change("interval.ms", "1000"))),
        "client metrics: all three": only(
            altered(
                CLIENT_METRICS,
                "mine",
                change("interval.ms", "1000"),
                change("metrics", "org.apache.kafka.,x"),
                change("match", "client_id=a.*,client_software_version=1.0"),
            )
        ),
        "client metrics: too often": only(altered(CLIENT_METRICS, "mine", change("interval.ms", "99"))),
        "client metrics: too seldom": only(altered(CLIENT_METRICS, "mine", change("interval.ms", "3600001"))),
        "client metrics: no number": only(altered(CLIENT_METRICS, "mine", change("interval.ms", "often"))),
        "client metrics: bad match": only(altered(CLIENT_METRICS, "mine", change("match", "nonsense"))),
        "client metrics: bad key": only(altered(CLIENT_METRICS, "mine", change("match", "colour=red"))),
        "client metrics: bad pattern": only(altered(CLIENT_METRICS, "mine", change("match", "client_id=["))),
        "client metrics: unknown": only(altered(CLIENT_METRICS, "mine", change("no.such", "1"))),
        "client metrics: no name": only(altered(CLIENT_METRICS, "", change("interval.ms", "1000"))),
        "client metrics: appended": only(altered(CLIENT_METRICS, "mine", change("metrics", "a", APPEND))),
        "group: sound": only(altered(GROUP, "mine", change("consumer.session.timeout.ms", "50000"))),
        "group: too short": only(altered(GROUP, "mine", change("consumer.session.timeout.ms", "1"))),
        "group: too long": only(altered(GROUP, "mine", change("consumer.session.timeout.ms", "999999999"))),
        "group: no number": only(altered(GROUP, "mine", change("consumer.session.timeout.ms", "long"))),
        "group: heartbeat": only(altered(GROUP, "mine", change("consumer.heartbeat.interval.ms", "5001"))),
        "group: heartbeat above session": only(
            altered(
                GROUP,
                "mine",
                change("consumer.heartbeat.interval.ms", "14000"),
                change("consumer.session.timeout.ms", "45000"),
            )
        ),
        "group: share": only(altered(GROUP, "mine", change("share.auto.offset.reset", "earliest"))),
        "group: share bad": only(altered(GROUP, "mine", change("share.auto.offset.reset", "middle"))),
        "group: unknown": only(altered(GROUP, "mine", change("no.such", "1"))),
        "group: no name": only(altered(GROUP, "", change("consumer.session.timeout.ms", "50000"))),
        "type 0": only(altered(0, "x", change("a", "1"))),
        "a user": only(altered(1, "x", change("a", "1"))),
        "type 3": only(altered(3, "x", change("a", "1"))),
        "type 64": only(altered(64, "x", change("a", "1"))),
        "type -1": only(altered(-1, "x", change("a", "1"))),
    }
    for what, fields in questions.items():
        yield from each(INCREMENTAL, what, **fields)
    for version in versions_of(INCREMENTAL):
        yield case(INCREMENTAL, version, "step by step", partial(step_by_step, version=version))
        yield case(INCREMENTAL, version, "a group and client metrics", partial(others, version=version))
        yield case(INCREMENTAL, version, "the broker and its default", partial(dynamic, version=version))


def step_by_step(talk: Talk, version: int) -> None:
    topic = f"stepping-{version}"
    talk.create(topic)
    keys = ["retention.ms", "cleanup.policy", "max.message.bytes"]
    steps = [
        [change("retention.ms", "5000"), change("cleanup.policy", "compact", APPEND)],
        [change("retention.ms", None, REMOVE), change("max.message.bytes", " 77777 ")],
        [change("cleanup.policy", "delete", SUBTRACT)],
        [change("cleanup.policy", "compact", SUBTRACT)],
        [change("retention.ms", "soon"), change("max.message.bytes", None, REMOVE)],
        [change("cleanup.policy", None, REMOVE)],
    ]
    for changes in steps:
        talk.ask(INCREMENTAL, version, resources=[altered(TOPIC, topic, *changes)])
        settled(talk)
        talk.ask(DESCRIBE, 4, resources=[resource(TOPIC, topic, keys)], include_synonyms=True)


def settled(talk: Talk) -> None:
    """Kafka's broker hears of a change after its controller has answered, and applies what it hears in order: once the
    second of two new topics is there, all that came before the first was applied."""
    for _ in range(2):
        talk.create(f"marker-{uuid4()}")


def others(talk: Talk, version: int) -> None:
    group, metrics = f"group-{version}", f"metrics-{version}"
    changes = [
        altered(GROUP, group, change("consumer.session.timeout.ms", "50000")),
        altered(CLIENT_METRICS, metrics, change("interval.ms", "1000"), change("metrics", "a,b")),
    ]
    wanted = [resource(GROUP, group), resource(CLIENT_METRICS, metrics)]
    for _ in range(2):
        talk.ask(INCREMENTAL, version, resources=changes)
        settled(talk)
        talk.ask(DESCRIBE, 4, resources=wanted, include_synonyms=True)
        changes = [
            altered(GROUP, group, change("consumer.session.timeout.ms", None, REMOVE)),
            altered(CLIENT_METRICS, metrics, change("interval.ms", None, REMOVE), change("metrics", None, REMOVE)),
        ]


def dynamic(talk: Talk, version: int) -> None:
    """Set for all, then for this one, then taken back: who wins, and in which order the synonyms stand."""
    wanted = [resource(BROKER, name, ["background.threads", "log.retention.ms"]) for name in ("1", "")]
    steps: list[tuple[str, list[dict[str, Any]]]] = [
        ("", [change("background.threads", "11"), change("log.retention.ms", "999999999")]),
        ("1", [change("background.threads", "12")]),
        ("", [change("background.threads", None, REMOVE), change("log.retention.ms", None, REMOVE)]),
        ("1", [change("background.threads", None, REMOVE)]),
    ]
    for name, changes in steps:
        talk.ask(INCREMENTAL, version, resources=[altered(BROKER, name, *changes)])
        settled(talk)
        talk.ask(DESCRIBE, 4, resources=wanted, include_synonyms=True)
        talk.ask(DESCRIBE, 4, resources=[resource(TOPIC, "one", ["retention.ms"])], include_synonyms=True)


def replacing() -> Iterator[Case]:
    def only(*resources: dict[str, Any]) -> dict[str, Any]:
        return {"resources": list(resources), "validate_only": True}

    def setting(name: str, value: str | None) -> dict[str, Any]:
        return {"name": name, "value": value}

    questions: dict[str, dict[str, Any]] = {
        f"value: {what}": only(altered(TOPIC, "configured", setting(name, value)))
        for what, (name, value) in list(VALUES.items())[:16]
    }
    questions |= {
        "no settings": only(altered(TOPIC, "configured")),
        "nothing": only(),
        "an unknown topic": only(altered(TOPIC, "nowhere", setting("retention.ms", "5"))),
        "a topic twice": only(*[altered(TOPIC, "configured", setting("retention.ms", "5"))] * 2),
        "a setting twice": only(
            altered(TOPIC, "configured", setting("retention.ms", "5"), setting("retention.ms", "6"))
        ),
        "broker: sound": only(altered(BROKER, "1", setting("background.threads", "12"))),
        "broker: read-only": only(altered(BROKER, "1", setting("node.id", "12"))),
        "broker: all": only(altered(BROKER, "", setting("background.threads", "12"))),
        "broker: another": only(altered(BROKER, "99", setting("background.threads", "12"))),
        "logger": only(altered(BROKER_LOGGER, "1", setting("root", "INFO"))),
        "client metrics": only(altered(CLIENT_METRICS, "mine", setting("interval.ms", "1000"))),
        "group": only(altered(GROUP, "mine", setting("consumer.session.timeout.ms", "50000"))),
        "type 0": only(altered(0, "x", setting("a", "1"))),
        "type 3": only(altered(3, "x", setting("a", "1"))),
    }
    for what, fields in questions.items():
        yield from each(ALTER, what, **fields)
    for version in versions_of(ALTER):
        yield case(ALTER, version, "replaces all", partial(replaces, version=version))


def replaces(talk: Talk, version: int) -> None:
    topic = f"replacing-{version}"
    talk.create(topic, retention_ms="5", cleanup_policy="compact")
    for settings in ([{"name": "max.message.bytes", "value": "77"}], []):
        talk.ask(ALTER, version, resources=[altered(TOPIC, topic, *settings)])
        settled(talk)
        wanted = [resource(TOPIC, topic, ["retention.ms", "cleanup.policy", "max.message.bytes"])]
        talk.ask(DESCRIBE, 4, resources=wanted)


def listing() -> Iterator[Case]:
    kinds: dict[str, list[int]] = {
        "client metrics": [CLIENT_METRICS],
        "brokers": [BROKER],
        "loggers": [BROKER_LOGGER],
        "groups": [GROUP],
        "type 0": [0],
        "type 3": [3],
        "type 64": [64],
        "type -1": [-1],
        "users": [1],
        "brokers twice": [BROKER, BROKER],
        "brokers and a bad type": [BROKER, 3],
    }
    for version in versions_of(LIST):
        for what, types in kinds.items():
            if version >= 1:
                yield case(LIST, version, what, partial(listed, version=version, types=types))
        yield case(LIST, version, "all", partial(listed, version=version, types=[]))
    yield case(LIST, 1, "topics", partial(listed, version=1, types=[TOPIC]))


def listed(talk: Talk, version: int, types: list[int]) -> None:
    """Of topics only those of the stage: which others are there depends on the cases before."""
    fields: dict[str, Any] = {"resource_types": types} if version else {}
    answer = talk.look(LIST, version, **fields)
    answer.config_resources = [
        each for each in answer.config_resources if each.resource_type != TOPIC or each.resource_name in ("one", "read")
    ]
    talk.note(talk.words.plain(answer))
